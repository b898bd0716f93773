"""`carpal session save`: a hand's workspace as an archive that any hand can mount.

It is asked for in the log, like a message: whoever drives the session has the
hand pack it after the calls before, and says in the log what became of it.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from carpal.errors import refuse
from carpal.operator import blob_out
from carpal.operator.asking import checked, get_session, run
from carpal.operator.connection import Found, Operator, operator_options
from carpal.operator.events import data_of, printable
from carpal.operator.follow import follow
from carpal.operator.inbox import send_save
from carpal.operator.outcome import DONE
from carpal.operator.screen import notice
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2, types_pb2

WAIT_SECONDS = 900.0
"""How long a save may take: the calls before it, and gigabytes on their way."""
_ANSWERS = ("hand.saved", "hand.save_failed")
_PREFIX = "sha256:"


class _Nobody:
    """Shows what following itself has to say, and nothing else."""

    def event(self, event: types_pb2.Event) -> None:
        """Not shown."""

    def moment(self, moment: orchestrator_pb2.WatchResponse) -> None:
        """Not shown."""

    def watching(self) -> None:
        """Nothing depends on it."""

    def notice(self, text: str) -> None:
        """Say it on stderr."""
        notice(text)


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option("--hand", default="", help="The hand of this name.  [the default one]")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write the archive to this new file too."
)
@click.option("--json", "as_json", is_flag=True, help="One object.")
@operator_options
def save(*, found: Found, session_id: str, hand: str, out: Path | None, as_json: bool) -> int:
    """Save the workspace of a session's hand; prints what mounts it again.

    It is packed after the calls that were made before. A session that sleeps
    is woken for it, and the model hears nothing of it.
    """

    async def main(operator: Operator) -> int:
        if out is not None:
            blob_out.check_new(out)
        await get_session(operator, session_id)  # it may be unknown, and then nothing is sent
        saved = await _saved(operator, session_id, hand)
        digest = str(saved.get("blob", "")).removeprefix(_PREFIX)
        if out is not None:
            await blob_out.write(operator, digest, out)
        told = {
            "session_id": session_id,
            "hand_id": saved.get("hand_id"),
            "hand": saved.get("name"),
            "source": f"tar:{digest}",
            "size": saved.get("size"),
            "said": saved.get("said"),
        }
        line = f"{told['source']}  {told['size']} bytes  {told['said']}"
        click.echo(json.dumps(told) if as_json else printable(line))
        return DONE

    return run(found, main)


async def _saved(operator: Operator, session_id: str, hand: str) -> dict[str, Any]:
    """The data of the `hand.saved` that answers a new `user.save`. Raises why there is none."""
    event = await send_save(operator, checked(session_id), hand)

    def answers(later: types_pb2.Event) -> bool:
        return later.type in _ANSWERS and data_of(later).get("save_id") == event.id

    try:
        async with asyncio.timeout(WAIT_SECONDS):
            answer = await follow(
                operator, session_id, _Nobody(), until=answers, after=event.position
            )
    except TimeoutError:
        raise refuse(
            Reason.UNAVAILABLE,
            f"{session_id} was not saved within {WAIT_SECONDS:.0f} s",
            action=f"it may be yet: look with `carpal session tail {session_id}`",
        ) from None
    data = data_of(answer)
    if answer.type == "hand.save_failed":
        raise refuse(Reason.SAVE_FAILED, f"not saved: {data.get('message')}")
    return data
