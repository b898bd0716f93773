"""`carpal session request` and `replay`: what a log proves of its model calls and harness."""

import json
import sys
from contextlib import aclosing
from pathlib import Path

import click

from brain import harness
from brain.recorded.kept import from_blobs
from brain.recorded.rebuilt import Rebuilt, rebuild
from brain.recorded.recording import Asked, Recording
from brain.recorded.replay import Replay, Replayed
from brain.session.log import entry_of
from carpal.errors import invalid, refuse
from carpal.operator.asking import get_session, run
from carpal.operator.connection import Found, Operator, operator_options
from carpal.operator.exporting import check_free, events_up_to
from carpal.operator.files_out import content
from carpal.operator.outcome import DONE, FAILED
from carpal.operator.screen import notice
from carpal.status import Reason


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option("--n", "number", type=int, help="Which: 1 is the first, -1 the last.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write it to a file.")
@click.option("--json", "as_json", is_flag=True, help="One object a line.")
@operator_options
def request(
    *, found: Found, session_id: str, number: int | None, out: Path | None, as_json: bool
) -> int:
    """Make the exact input of a model call again from the log, and check its hash.

    Without --n, list the session's model calls. Exit code 1 when it is not what was sent.
    """
    if out is not None:
        if number is None:
            raise invalid("--out", "needs --n: which call of the model")
        check_free(out)

    async def main(operator: Operator) -> int:
        recording = await _recorded(operator, session_id)
        if number is None:
            for asked in recording.asked():
                click.echo(json.dumps(_row(asked)) if as_json else _row_text(asked))
            return DONE
        asked = _chosen(recording.asked(), number, session_id)
        rebuilt = await _rebuilt(operator, recording, asked)
        _show(asked, rebuilt, out, as_json=as_json)
        return DONE if rebuilt.same else FAILED

    return run(found, main)


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option("--harness", "name", help="Another than the one that the agent names.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@operator_options
def replay(*, found: Found, session_id: str, name: str | None, as_json: bool) -> int:
    """Run a harness over a session's log with the model's recorded answers.

    Nothing is asked and nothing runs. Exit code 1 at the first difference.
    """

    async def main(operator: Operator) -> int:
        recording = await _recorded(operator, session_id)
        agent = recording.folded(len(recording.entries)).agent
        chosen = str(name or agent.get("harness") or harness.DEFAULT)
        kind = harness.load(chosen)
        replayed = Replay(recording, kind, chosen).run()
        if as_json:
            click.echo(json.dumps(_replay_row(session_id, f"{chosen}/{kind.version}", replayed)))
        else:
            click.echo(_replay_text(f"{chosen}/{kind.version}", replayed))
        return DONE if replayed.difference is None else FAILED

    return run(found, main)


async def _recorded(operator: Operator, session_id: str) -> Recording:
    info = await get_session(operator, session_id)
    log = events_up_to(operator, info.session_id, info.head.position)
    async with aclosing(log) as events:
        entries = [entry_of(event) async for event in events]
    return Recording(entries, max(info.forked_at, info.imported_to))


def _chosen(asked: list[Asked], number: int, session_id: str) -> Asked:
    if not asked:
        raise refuse(Reason.INVALID_FIELD, f"session {session_id} called no model yet")
    if number == 0 or abs(number) > len(asked):
        raise invalid("--n", f"there are {len(asked)}: 1 to {len(asked)}, or -1 for the last")
    return asked[number - 1 if number > 0 else number]


async def _rebuilt(operator: Operator, recording: Recording, asked: Asked) -> Rebuilt:
    """By its policy, or from the blobs that hold what no policy makes again."""
    if not isinstance(asked.start.data.get("request_blob"), str):
        return rebuild(recording, asked)

    async def blob(digest: str) -> bytes:
        return b"".join([piece async for piece in content(operator, digest)])

    return await from_blobs(recording, asked, blob)


def _show(asked: Asked, rebuilt: Rebuilt, out: Path | None, *, as_json: bool) -> None:
    verdict = "is what was sent" if rebuilt.same else f"is NOT what was sent: {rebuilt.why}"
    if out is not None:
        out.write_bytes(rebuilt.body)
    elif not as_json:
        sys.stdout.buffer.write(rebuilt.body + b"\n")
        sys.stdout.flush()
    if as_json:
        told = {"same": rebuilt.same, "rebuilt_sha256": rebuilt.sha256, "why": rebuilt.why}
        given = {} if out is not None else {"request": json.loads(rebuilt.body)}
        click.echo(json.dumps({**_row(asked), **told, **given}, ensure_ascii=False))
    else:
        notice(f"request {asked.number} {verdict} (SHA-256 {asked.sha256})")


def _row(asked: Asked) -> dict[str, object]:
    return {
        "n": asked.number,
        "position": asked.start.position,
        "model": asked.start.data.get("model"),
        "purpose": asked.purpose,
        "policy": asked.policy,
        "through": asked.through,
        "outcome": asked.outcome,
        "sha256": asked.sha256,
    }


def _row_text(asked: Asked) -> str:
    return (
        f"{asked.number:>4}  at {asked.start.position:<6} {asked.start.data.get('model')}  "
        f"{asked.purpose}  {asked.policy}  through {asked.through}  {asked.outcome}"
    )


def _replay_row(session_id: str, chosen: str, replayed: Replayed) -> dict[str, object]:
    parted = replayed.difference
    row: dict[str, object] = {
        "session_id": session_id,
        "harness": chosen,
        "decisions": replayed.decisions,
        "same": parted is None,
    }
    if parted is not None:
        row |= {"position": parted.position, "recorded": parted.recorded, "now": parted.now}
    return row


def _replay_text(chosen: str, replayed: Replayed) -> str:
    parted = replayed.difference
    if parted is None:
        return f"{chosen} decides as recorded: {replayed.decisions} decisions, no difference"
    return (
        f"{chosen} parts from the log at position {parted.position}, "
        f"after {replayed.decisions} decisions that are the same\n"
        f"  recorded: {parted.recorded}\n"
        f"  now:      {parted.now}"
    )
