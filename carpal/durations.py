"""Lengths of time as people write them: `90s`, `30m`, `12h`."""

import re
from datetime import timedelta

from carpal.errors import invalid

_DURATION = re.compile(r"([0-9]{1,6})([smh])\Z")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours"}


def duration(text: str, flag: str) -> timedelta:
    """What `text` says. INVALID_FIELD names `flag`."""
    match = _DURATION.match(text)
    if match is None:
        raise invalid(flag, f"{text!r} is not a number and s, m or h, such as 1h")
    return timedelta(**{_UNITS[match.group(2)]: int(match.group(1))})
