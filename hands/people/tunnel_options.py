"""What a person asks of a tunnel: what is missing or malformed is refused here, by its field. Pure.

What is not known is refused too: it would be passed on into the hand.
"""

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, Literal, cast

from carpal.errors import invalid
from carpal.json_in import read_object

Kind = Literal["shell", "copy", "forward", "view", "control"]
COMMAND_MAX = 128 * 1024 - 4096
"""Bytes of a command: of one argument the kernel takes little more."""
_PATH_MAX = 4000
_CELLS_MAX = 10_000

Check = Callable[[Any], bool]


def _text(most: int) -> Check:
    return lambda value: (
        isinstance(value, str)
        and 0 < len(value.encode("utf-8", "surrogatepass")) <= most
        and "\0" not in value
    )


def _number(least: int, most: int) -> Check:
    return lambda value: type(value) is int and least <= value <= most


_NAME: Check = lambda value: (  # noqa: E731 - one of a table's
    _text(255)(value) and "/" not in value and value not in {".", ".."}
)
_TERM: Check = lambda value: (  # noqa: E731 - one of a table's
    _text(64)(value) and value.isascii() and all(c.isalnum() or c in "-_.+" for c in value)
)
_KINDS: Mapping[str, Mapping[str, tuple[Check, str]]] = {
    "shell": {
        "tty": (lambda value: isinstance(value, bool), "true or false"),
        "rows": (_number(1, _CELLS_MAX), f"1 to {_CELLS_MAX}"),
        "columns": (_number(1, _CELLS_MAX), f"1 to {_CELLS_MAX}"),
        "term": (_TERM, "the name of a terminal"),
        "command": (_text(COMMAND_MAX), f"a text of at most {COMMAND_MAX} bytes"),
    },
    "copy": {
        "from": (_text(_PATH_MAX), "a path"),
        "to": (_text(_PATH_MAX), "a path"),
        "name": (_NAME, "the name of a file"),
    },
    "forward": {"port": (_number(1, 65535), "1 to 65535")},
    "view": {},
    "control": {},
}


def read(kind: str, options: bytes) -> dict[str, Any]:
    """What was asked for, each of it one that the kind knows."""
    known = _KINDS.get(kind)
    if known is None:
        raise invalid("kind", f"{kind!r} is none of {', '.join(_KINDS)}")
    given = read_object(options or b"{}", "options")
    for name, value in given.items():
        if name not in known:
            there = ", ".join(known) or "none"
            raise invalid(f"options.{name}", f"a {kind} does not know it; it knows {there}")
        check, what = known[name]
        if not check(value):
            raise invalid(f"options.{name}", f"must be {what}")
    if kind == "copy":
        if ("from" in given) == ("to" in given):
            raise invalid("options", "a copy is either `from` a path or `to` one")
        if "to" in given and "name" not in given:
            raise invalid("options.name", "must be what to call it in a folder")
        for side in ("from", "to"):
            if ".." in PurePosixPath(given.get(side, "")).parts:
                raise invalid(f"options.{side}", "must lead nowhere by '..'")
    return given


def kind_of(text: str) -> Kind:
    """A kind that `read` took."""
    return cast(Kind, text)
