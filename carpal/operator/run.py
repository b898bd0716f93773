"""`carpal run`: give an agent a task and follow it to the end of its turn."""

import asyncio
import json
from dataclasses import dataclass, field

import click

from carpal import process
from carpal.agent import Agent
from carpal.cli import INTERRUPTED
from carpal.errors import CarpalError
from carpal.ids import check_id, new_id
from carpal.operator import agent_documents
from carpal.operator.agent import message_data, session_data, with_flags, with_mounts
from carpal.operator.changing import change
from carpal.operator.connection import Found, Operator, connect, operator_options
from carpal.operator.deciding import ask, notice_waiting, on_terminal
from carpal.operator.follow import follow, until_processed
from carpal.operator.inbox import send_confirmation, send_interrupt
from carpal.operator.mounting import NOTHING, MountFlag, read_mount, source_of
from carpal.operator.outcome import Turn
from carpal.operator.said import said
from carpal.operator.screen import LiveScreen, notice, notice_missing
from carpal.operator.timeline import duration, usage_summary
from carpal.operator.waiting import Calls
from carpal.users import check_user
from carpal.v1 import session_pb2, types_pb2

INTERRUPT_SECONDS = 15.0
"""How long a session may take to go idle after Ctrl-C before we leave it."""
_TASK_AT = 2
"""Position of the task: it follows the agent."""
_TITLE = 80
"""Characters of the task that become the session's title."""


@click.command()
@click.argument("task")
@click.option(
    "--hand", "hands", multiple=True, metavar="NAME=TYPE",
    help="A hand the agent may use; the first is the default one. Repeatable; adds to the "
    "agent file's, or replaces one of that name.  [without either: shell=process]",
)  # fmt: skip
@click.option(
    "--mount", "mounts", multiple=True, metavar="[NAME:]PATH=SOURCE",
    help="What is in the workspace of hand NAME (else the default one) at PATH before its first "
    "call: a file or a folder of this machine, or a source such as git:https://… or text:… "
    "Repeatable.",
)  # fmt: skip
@click.option(
    "--agent", "named", metavar="NAME|FILE",
    help="An agent that sessiond keeps, by name, or a YAML file, which has a dot or a slash in "
    "its name; `-` is stdin.",
)  # fmt: skip
@click.option("--model", help="Model to ask, instead of the agent's.")
@click.option(
    "--user", default="", metavar="ID",
    help="The end user that the session is for, by your name for them: whose credentials it may "
    "use of MCP servers that say so. Fixed for good.",
)  # fmt: skip
@click.option("--detach", is_flag=True, help="Print the session's id and leave it to its work.")
@click.option("--json", "as_json", is_flag=True, help="One object, at the end.")
@operator_options
def run(
    *,
    found: Found,
    task: str,
    hands: tuple[str, ...],
    mounts: tuple[str, ...],
    named: str | None,
    model: str | None,
    user: str,
    detach: bool,
    as_json: bool,
) -> int:
    """Give an agent a TASK (`-` reads it from stdin) and follow it to the end.

    Ctrl-C interrupts the session and waits for it to stop; a second one leaves
    at once, and the session goes on. Exit code: 0 done, 1 failed or without a
    hand it was given, 3 sessiond does not answer, 10 a person must act, 11
    budget reached, 130 interrupted.
    """
    text = said(task, "TASK")
    wanted = [read_mount(flag) for flag in mounts]
    if user:
        check_user(user, "--user")
    work = _Run(found, text, model, hands, wanted, user=user, detach=detach, as_json=as_json)
    # Before anything is sent: a mistake in a file, a hand that there is not, a path that leads out.
    if named is None or agent_documents.is_file(named):
        work.take(Agent() if named is None else agent_documents.agent_in(named))
    else:
        work.named = check_id(named, "--agent")
    if process.run(work.main):  # the second Ctrl-C
        notice(f"left; the session goes on: carpal session tail {work.session_id}")
        return INTERRUPTED
    return work.code


@dataclass
class _Run:
    found: Found
    task: str
    model: str | None
    hands: tuple[str, ...]
    mounts: list[MountFlag]
    detach: bool
    as_json: bool
    user: str = ""
    named: str = ""
    """The agent's document, when it is from one."""
    agent: Agent = field(default_factory=Agent)
    session_id: str = field(default_factory=lambda: new_id("sesn"))
    code: int = 0
    _calls: Calls = field(default_factory=Calls)
    _asking: bool = False
    """A person is being asked, at the terminal."""

    def take(self, agent: Agent) -> None:
        """The agent, with what the flags say; refuses what cannot be."""
        self.agent = with_flags(agent, self.model, self.hands)
        mounted = [(each.hand, each.source or NOTHING, each.path) for each in self.mounts]
        with_mounts(self.agent, mounted)

    async def main(self, stop: asyncio.Event) -> None:
        """Create the session and see it through; sets `code`."""
        async with connect(self.found) as operator:
            if self.named:
                self.take((await agent_documents.get(operator, self.named)).agent())
            mounted = [await source_of(operator, each) for each in self.mounts]
            self.agent = with_mounts(self.agent, mounted)
            await self._create(operator)
            if self.detach:
                only_id = json.dumps({"session_id": self.session_id})
                click.echo(only_id if self.as_json else self.session_id)
                await _warn_alone(operator)
                return
            if not self.as_json:
                click.echo(f"session {self.session_id}")
            await self._see_through(operator, stop)

    async def _create(self, operator: Operator) -> None:
        events = [
            types_pb2.NewEvent(
                id=new_id("sevt"), type="session.updated", data=session_data(self.agent, self.user)
            ),
            types_pb2.NewEvent(
                id=new_id("sevt"), type="user.message", data=message_data(self.task)
            ),
        ]
        title = self.task.strip().splitlines()[0][:_TITLE]
        request = session_pb2.CreateSessionRequest(
            session_id=self.session_id, title=title, events=events, wake=True
        )
        await change(
            operator,
            lambda timeout: operator.sessions.CreateSession(request, timeout=timeout),
            look="it may have been accepted: look with "
            f"`carpal session show {self.session_id}` before you run it again",
        )

    async def _see_through(self, operator: Operator, stop: asyncio.Event) -> None:
        screen = LiveScreen(quiet=self.as_json, own=_TASK_AT)
        turn = Turn(message=_TASK_AT)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._follow(operator, screen, turn))
            await process.until_stopped(stop, following)
            if self._asking:
                # At the terminal, not at the log: to its end nobody follows any more.
                following.cancel()
                turn.resume(turn.position)
                following = group.create_task(self._follow(operator, screen, turn, asks=False))
            if not following.done():
                await self._interrupt(operator, turn, following)
        self._report(screen, turn)
        self.code = INTERRUPTED if stop.is_set() else turn.exit_code

    async def _follow(
        self, operator: Operator, screen: LiveScreen, turn: Turn, *, asks: bool = True
    ) -> None:
        """Follow to the end of the turn; a person at a terminal is asked what it waits for."""

        def take(event: types_pb2.Event) -> bool:
            self._calls.take(event)
            return turn.take(event)

        asks = asks and not self.as_json and on_terminal()
        while True:
            await follow(operator, self.session_id, screen, until=take, after=turn.position)
            if turn.stop_reason != "requires_action" or not asks:
                return
            last = await self._decide(operator)
            if not last:
                return
            turn.resume(last)

    async def _decide(self, operator: Operator) -> int:
        """Ask about each call that waits; the position of the last answer, 0 without any."""
        last = 0
        for asked in self._calls.waiting:
            if asked.is_consent:
                continue  # it takes a browser, and has a command of its own
            self._asking = True
            word = await ask(asked)
            self._asking = False
            if word is None:
                break
            allow, message = word
            event = await send_confirmation(
                operator, self.session_id, asked.call_id, allow=allow, message=message
            )
            last = event.position
        return last

    async def _interrupt(
        self, operator: Operator, turn: Turn, following: "asyncio.Task[None]"
    ) -> None:
        turn.interrupted = True
        notice("interrupting the session; Ctrl-C again leaves at once")
        try:
            async with asyncio.timeout(INTERRUPT_SECONDS):
                event = await send_interrupt(operator, self.session_id)
                stopped = await until_processed(operator, self.session_id, event.position)
                # All it did is in the log by now: show that, and no more.
                turn.last = stopped.head.position
                if turn.position < turn.last:
                    await following
        except TimeoutError:
            notice(
                f"it did not stop within {INTERRUPT_SECONDS:.0f} s and goes on: "
                f"carpal session tail {self.session_id}"
            )
        following.cancel()

    def _report(self, screen: LiveScreen, turn: Turn) -> None:
        if self.as_json:
            click.echo(json.dumps(turn.report(self.session_id)))
        else:
            screen.print_timeline(f"timeline of {self.session_id}")
            how = turn.stop_reason or "not finished"
            click.echo(
                f"{how}{' (interrupted)' if turn.interrupted else ''}: {turn.events} events, "
                f"{duration(turn.seconds)}, {usage_summary(turn.usage)}"
            )
        notice_missing(turn.missing_hands)
        if turn.stop_reason == "budget_reached":
            notice(f"raise a limit with `carpal session limits {self.session_id}`, and it goes on")
        if turn.stop_reason == "requires_action":
            notice_waiting(self.session_id, self._calls.waiting)


async def _warn_alone(operator: Operator) -> None:
    """Say it when nobody is there to drive a session that nobody follows."""
    try:
        alone = not await operator.brains()
    except CarpalError:
        return  # the session is made, and that is what was asked
    if alone:
        notice("no brain is live: it waits until one is; start one with `carpal brain run`")
