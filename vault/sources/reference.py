"""Where in a secret manager a value is: `PATH#KEY`, or `PATH#KEY@VERSION`. Pure.

A reference is no secret. It names a place within a source and can mean nothing else: no part of
it is an address, an option, a way up or anything that would have to be decoded.
"""

import re
from dataclasses import dataclass
from typing import Self

from carpal.errors import invalid

LONGEST = 512
"""Characters of a path."""
_PART = r"[A-Za-z0-9_.~+=:,@][A-Za-z0-9_.~+=:,@-]{0,127}"
_FORM = re.compile(
    rf"(?P<path>{_PART}(?:/{_PART})*)#(?P<key>[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})"
    r"(?:@(?P<version>[1-9][0-9]{0,8}))?"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """One value, in one source."""

    source: str
    path: str
    key: str
    version: int | None = None
    """None: the newest."""

    @classmethod
    def parse(cls, source: str, text: object, field: str) -> Self:
        """From its text. INVALID_FIELD names `field`."""
        found = _FORM.fullmatch(text) if isinstance(text, str) else None
        if found is None or len(found["path"]) > LONGEST or _leads_up(found["path"]):
            raise invalid(
                field,
                "must be PATH#KEY, or PATH#KEY@VERSION: a path of names with / between them, "
                "of letters, digits and _.~+=:,@-",
            )
        version = found["version"]
        return cls(source, found["path"], found["key"], int(version) if version else None)

    def __str__(self) -> str:
        version = "" if self.version is None else f"@{self.version}"
        return f"{self.path}#{self.key}{version}"


def within(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether a path is one of these; one that ends in `/` is all that lies below it."""
    return any(path.startswith(each) if each.endswith("/") else path == each for each in patterns)


def _leads_up(path: str) -> bool:
    return any(set(part) == {"."} for part in path.split("/"))
