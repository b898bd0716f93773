"""`carpal hand stop` and `carpal hand audit`: the words of the machine's owner."""

import json
from pathlib import Path

import click

from carpal import logs
from carpal.errors import refuse
from carpal.status import Reason
from hands.commands.options import CONFIG, STATE, folder_of, settings_even_so

_HOW = {
    "asked": "",
    "without": "; no daemon runs here: they had outlived it",
    "around": "; the daemon does not answer, and finds their calls lost once it does",
}


@click.command("stop")
@STATE
@CONFIG
@click.argument("hand_id", required=False, default="")
@click.option("--all", "all_hands", is_flag=True, help="Every hand there is.")
def stop(state_dir: Path | None, config_file: Path | None, hand_id: str, all_hands: bool) -> int:
    """End a hand, or all, with all that their calls started. Needs no link and no daemon.

    Calls under way are interrupted, and the brain hears it. New hands may come: `carpal hand
    drain` takes none. Exit code 1 when something resists.
    """
    from hands.local import stop as stopping

    logs.setup()
    if all_hands == bool(hand_id):
        raise refuse(Reason.INVALID_FIELD, "which hand?", action="give HAND_ID, or --all")
    settings = settings_even_so(state_dir, config_file)
    done = stopping.stop(settings.state_dir, hand_id, settings.sandbox, settings.sockets)
    for each in done.hands:
        resists = each in done.resist
        click.echo(f"{each}: " + ("resists, and may still run" if resists else "stopped"))
    click.echo(f"{len(done.hands) - len(done.resist)} stopped{_HOW[done.how]}")
    return 1 if done.resist else 0


@click.group("audit")
def audit() -> None:
    """What happened on this machine, chained line by line."""


@audit.command("verify")
@STATE
@CONFIG
@click.option("--head", metavar="NUMBER:HASH", help="A head that was noted elsewhere.")
def verify(state_dir: Path | None, config_file: Path | None, head: str | None) -> int:
    """Find any line that was cut, changed, moved or repeated; print the head, to be noted.

    Exit code 1 when something is wrong.
    """
    from carpal.audit_chain import Head
    from carpal.audit_files import AuditFiles

    noted = None
    if head:
        number, colon, digest = head.partition(":")
        if not (colon and number.isdecimal() and len(digest) == 64):
            raise refuse(
                Reason.INVALID_FIELD, f"--head {head!r} is not NUMBER:HASH", action="correct it"
            )
        noted = Head(int(number), digest)
    files = AuditFiles(folder_of(state_dir, config_file))
    verifier, problems = files.verify(noted)
    if problems:  # a daemon that just began another file, perhaps
        verifier, problems = files.verify(noted)
    for problem in problems:
        click.echo(f"{problem.where}: {problem.what}")
    for text in verifier.noted:
        click.echo(f"note: {text}")
    verdict = f"{len(problems)} wrong" if problems else "all holds"
    click.echo(
        f"{verifier.lines} lines, {verdict}; head {verifier.head.number}:{verifier.head.hash}"
    )
    return 1 if problems else 0


@audit.command("tail")
@STATE
@CONFIG
@click.option("-n", "--lines", type=click.IntRange(1, 100_000), default=20, help="How many.  [20]")
@click.option("--json", "as_json", is_flag=True, help="The lines as they are.")
def tail(state_dir: Path | None, config_file: Path | None, lines: int, as_json: bool) -> None:
    """Show the last lines. It does not hold them against each other: `verify` does."""
    from collections import deque

    from carpal.audit_chain import record_of
    from carpal.audit_files import AuditFiles

    files = AuditFiles(folder_of(state_dir, config_file))
    for _, text in deque(files.lines(), lines):
        record = record_of(text)
        if as_json or record is None:
            click.echo(text.decode("utf-8", "replace"))
            continue
        left_out = ("n", "time", "what", "hash", "sha256", "after")
        more = (f"{key}={json.dumps(each)}" for key, each in record.items() if key not in left_out)
        click.echo(f"{record['n']} {record.get('time')} {record.get('what')} {' '.join(more)}")
