"""Waiting until the daemon has no hand left, saying meanwhile which there are."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

_LOOK = 0.5
"""Seconds between looks at which hands are left."""
_NAMED = 5
"""Hands that are named in a line."""


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
                f"the time is over and {now}: wait again (an idle session gives its hands back "
                "after ten minutes), or `carpal hand stop HAND_ID`",
                err=True,
            )
            return False
        sleep(_LOOK)


def left(rows: Sequence[Mapping[str, Any]]) -> str:
    """Which hands are left, and what they are at."""
    if not rows:
        return "no hand is left: the daemon can be stopped without anybody noticing"
    first = ", ".join(named(row) for row in rows[:_NAMED])
    more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    return f"{len(rows)} left: {first}{more}"


def named(row: Mapping[str, Any]) -> str:
    """A row of `GET /hands` for people."""
    calls = len(row["calls"])
    sessions = ", ".join(row["sessions"]) or "no session"
    several = "1 call runs or waits" if calls == 1 else f"{calls} calls run or wait"
    doing = several if calls else "idle"
    return f"{row['hand_id']} ({row['type']} of {sessions}, {doing})"
