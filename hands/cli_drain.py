"""`carpal hand drain`: said on the machine itself, with a link or without."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from carpal.durations import duration
from carpal.errors import invalid
from hands.cli_options import CONFIG, STATE, settings_of

_LOOK = 0.5
"""Seconds between looks at which hands are left."""
_NAMED = 5
"""Hands that are named in a line."""


@click.command()
@STATE
@CONFIG
@click.option("--wait", is_flag=True, help="Wait until no hand is left.")
@click.option("--timeout", default="30m", show_default=True, help="Of --wait: 90s, 30m, 12h.")
@click.option("--reason", default="", help="Why, for the daemon's log.")
@click.option("--lift", is_flag=True, help="Take new hands again.")
def drain(  # noqa: PLR0917 - click passes by name
    state_dir: Path | None,
    config_file: Path | None,
    wait: bool,
    timeout: str,
    reason: str,
    lift: bool,
) -> int:
    """Take no new hands, also after a restart, until --lift; those there are go on.

    Works without a link too. A hand ends when its session gives it up: with
    --wait this says which are left, and exits with 1 when the time is over.
    """
    from hands.files import HandFiles
    from hands.local_ask import ask

    limit = duration(timeout, "--timeout").total_seconds()
    if lift and wait:
        raise invalid("--wait", "there is nothing to wait for with --lift")
    folder = HandFiles(settings_of(state_dir, config_file).state_dir).folder
    ask(folder, "/drain", {"lift": True} if lift else {"reason": reason})
    if lift:
        click.echo("new hands are taken again")
        return 0
    click.echo("drained: no new hands are taken, until `carpal hand drain --lift`")
    rows = hands_of(ask(folder, "/hands"))
    if not wait:
        click.echo(f"{left(rows)}; wait for the end with --wait" if rows else left(rows))
        return 0
    return 0 if wait_for_none(lambda: hands_of(ask(folder, "/hands")), limit) else 1


def hands_of(answer: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The rows of `GET /hands`."""
    rows: Sequence[Mapping[str, Any]] = answer["hands"]
    return rows


def wait_for_none(
    look: Callable[[], Sequence[Mapping[str, Any]]],
    limit: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Say each change of which hands are left until none is, for `limit` seconds; whether so."""
    ends, said = clock() + limit, ""
    while True:
        rows = look()
        if (now := left(rows)) != said:
            click.echo(now)
            said = now
        if not rows:
            return True
        if clock() >= ends:
            click.echo(
                f"the time is over and {now}: wait again, or end the sessions that have them",
                err=True,
            )
            return False
        sleep(_LOOK)


def left(rows: Sequence[Mapping[str, Any]]) -> str:
    """Which hands are left, and what they are at."""
    if not rows:
        return "no hand is left: the daemon can be stopped without anybody noticing"
    named = ", ".join(_named(row) for row in rows[:_NAMED])
    more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    return f"{len(rows)} left: {named}{more}"


def _named(row: Mapping[str, Any]) -> str:
    calls = len(row["calls"])
    sessions = ", ".join(row["sessions"]) or "no session"
    doing = f"{calls} calls run or wait" if calls else "idle"
    return f"{row['hand_id']} ({row['type']} of {sessions}, {doing})"
