"""`carpal hand shell`: a person's shell in a hand, on their terminal or in a pipe."""

import asyncio
import json
import os
import sys
from contextlib import ExitStack

import click

from carpal.operator.connection import Found
from carpal.v1 import orchestrator_pb2 as pb
from hands.visit import terminal
from hands.visit.entering import Visit, entered
from hands.visit.escapes import Escapes
from hands.visit.terminal import Keys

LEFT = 130
"""Exit code of who left, or was told to."""
_FAILED = 1


async def shell(
    found: Found,
    session_id: str,
    hand: str,
    *,
    command: str = "",
    tty: bool | None = None,
    take: bool = True,
) -> int:
    """Serve the person until the shell ended, or they left; its exit code."""
    on_terminal = terminal.is_one()
    wants_tty = on_terminal if tty is None else tty
    options: dict[str, object] = {"tty": wants_tty}
    if command:
        options["command"] = command
    if wants_tty:
        rows, columns = terminal.size() if on_terminal else (24, 80)
        options |= {"rows": rows, "columns": columns}
        if term := os.environ.get("TERM"):
            options["term"] = term
    opening = pb.EnterOpen(
        session_id=session_id,
        hand=hand,
        kind="shell",
        options=json.dumps(options).encode(),
        take=take,
    )
    async with entered(found, opening) as (_, visit):
        is_raw = wants_tty and on_terminal
        if is_raw:
            _welcome(visit, took=take)
        _beside(visit)
        return await _Shell(visit, is_raw=is_raw).run()


def _welcome(visit: Visit, *, took: bool) -> None:
    opened = visit.opened
    click.echo(
        f"in hand {opened.hand} ({opened.hand_id}) on {opened.daemon_id}; leave with exit, or ~. "
        "at the beginning of a line",
        err=True,
    )
    if took:
        click.echo("you have control: calls that have not begun wait until you leave", err=True)


def _beside(visit: Visit) -> None:
    """Also who is in a pipe is told which calls go on."""
    if visit.opened.running_call_ids:
        running = ", ".join(visit.opened.running_call_ids)
        click.echo(f"running beside you: {running}", err=True)


class _Shell:
    def __init__(self, visit: Visit, *, is_raw: bool) -> None:
        self._visit = visit
        self._is_raw = is_raw
        self._left: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._resized = asyncio.Event()

    async def run(self) -> int:
        """Until it is over."""
        with ExitStack() as held:
            if self._is_raw:
                held.enter_context(terminal.raw())
            resized = self._resized.set if self._is_raw else None
            held.enter_context(terminal.signals(ends=self._end, resized=resized))
            showing = asyncio.create_task(self._show())
            sending = asyncio.create_task(self._send())
            resizing = asyncio.create_task(self._resize())
            tasks = {showing, sending, resizing}
            try:
                await asyncio.wait({showing, self._left}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
        if showing.cancelled():
            click.echo("left", err=True)
            return self._left.result() if self._left.done() else LEFT
        return showing.result()

    def _end(self, code: int) -> None:
        if not self._left.done():
            self._left.set_result(code)

    async def _show(self) -> int:
        problem, code = "", None
        async for said in self._visit.came():
            await terminal.show(sys.stdout.fileno(), said.data)
            await terminal.show(sys.stderr.fileno(), said.error)
            if said.HasField("end"):
                problem = said.end.problem
                code = said.end.exit_code if said.end.HasField("exit_code") else None
        if code is None:
            why = terminal.plain(problem) or "the shell ended without saying how"
            click.echo(f"\rcarpal: {why}", err=True)
            return _FAILED
        return code

    async def _send(self) -> None:
        keys, escapes = Keys(), Escapes()
        while data := await keys.next():
            if self._is_raw:
                data = escapes.feed(data)
            if data:
                await self._visit.send(data)
            if escapes.left:
                self._end(LEFT)
                return
        await self._visit.end()

    async def _resize(self) -> None:
        while True:
            await self._resized.wait()
            self._resized.clear()
            await self._visit.resize(*terminal.size())
