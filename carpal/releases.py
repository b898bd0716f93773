"""How long a daemon is served: twelve months from its release, and what that asks of us. Pure.

A daemon says its version and the day it was released; the brain counts. A contract version is
spoken until every daemon that speaks nothing newer is out of its twelve months.
"""

from datetime import UTC, date, datetime
from typing import Final

RELEASED: Final = date(2026, 11, 30)
"""The day this version was released; set together with `carpal.__version__`."""
PROTOCOLS: Final[dict[int, date]] = {1: date(2026, 11, 30)}
"""Contract versions → the day of the first release that speaks it. None is ever removed."""


def supported_until(released: date) -> date:
    """The last day on which a daemon released then is served: the same day a year later."""
    try:
        return released.replace(year=released.year + 1)
    except ValueError:  # 29 February
        return released.replace(year=released.year + 1, day=28)


def read(text: str) -> date | None:
    """`2026-11-30` as a day; None for anything else, as of a daemon that does not say."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if 2000 <= day.year <= 9000 else None


def end_of(day: date) -> datetime:
    """The end of a day, in UTC: a moment, for the wire."""
    return datetime(day.year, day.month, day.day, 23, 59, 59, tzinfo=UTC)


def must_speak(released: date) -> int:
    """The oldest contract version that a brain released then has to speak.

    A version is dropped only once the next one has been there for twelve months.
    """
    old = [
        version
        for version, since in PROTOCOLS.items()
        if version + 1 in PROTOCOLS
        and supported_until(PROTOCOLS[version + 1]) < released
        and since <= released
    ]
    return max(old, default=0) + 1
