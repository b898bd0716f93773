"""End users of an application: whom a session may be for, and whose a credential may be. Pure."""

import re

from carpal.errors import invalid

_USER = re.compile(r"[\x21-\x7e]{1,128}\Z")


def check_user(value: str, field: str) -> str:
    """`value`, an application's own name for one of its users, or INVALID_FIELD."""
    if not _USER.match(value):
        raise invalid(field, "must be 1 to 128 visible characters of ASCII, without spaces")
    return value
