"""Ids: time-sortable when we make them, checked when others do."""

import os
import re
import time

from carpal.errors import invalid

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [one + other for one in _ALPHABET for other in _ALPHABET]
_SHIFTS = range(120, -1, -10)
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")


def new_id(prefix: str) -> str:
    """`<prefix>_` and 26 base-32 characters: 48 bits of milliseconds, 82 random bits.

    Ids made later sort later, to the millisecond.
    """
    number = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 82
    number |= int.from_bytes(os.urandom(11), "big") & (1 << 82) - 1
    # Ten bits at a time: 130 are thirteen pairs of characters.
    return f"{prefix}_" + "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


def check_id(value: str, field: str) -> str:
    """`value`, or INVALID_FIELD when it is not 1 to 128 of [A-Za-z0-9_-]."""
    if not _ID.match(value):
        raise invalid(field, "must be 1 to 128 letters, digits, '_' or '-'")
    return value


def check_name(value: str, field: str) -> str:
    """A process or workspace name: a DNS label, so it fits in a SPIFFE path."""
    if not _NAME.match(value):
        raise invalid(field, f"{value!r} must be 1 to 63 of a-z, 0-9 and '-', no '-' at the ends")
    return value
