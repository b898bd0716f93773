"""A secret in memory: it takes part in everything and shows itself in nothing.

What prints, formats, logs, pickles, copies or encodes a `Secret` gets its mark, or an error. The
one way to the value is `reveal()`, so a search for that word finds each place that has it. Python
cannot erase a value from memory: keep a `Secret` for one request, and no longer.
"""

import hmac
import re
from hashlib import sha256
from typing import NoReturn, SupportsIndex, final

from carpal.errors import invalid

LEAST, MOST = 12, 8192
"""Bytes of a secret that may be stored. Shorter ones would be found everywhere by chance."""
_VISIBLE = re.compile(rb"[\x21-\x7e]+")
_HIDDEN = "a Secret is neither copied nor stored: take reveal() where its value is used"


@final
class Secret:
    """A value that only `reveal()` gives.

    `key` makes the fingerprint, by which an audit tells one value from another; without one
    there is none. Equality takes the same time wherever two values differ.
    """

    __slots__ = ("__fingerprint", "__value")

    def __init__(self, value: bytes | str, key: bytes | None = None) -> None:
        self.__value = value.encode() if isinstance(value, str) else bytes(value)
        self.__fingerprint = _fingerprint(key, self.__value) if key else "none"

    def reveal(self) -> bytes:
        """The value itself."""
        return self.__value

    @property
    def fingerprint(self) -> str:
        """16 hex digits that say which value it is to who has the key, or `none`."""
        return self.__fingerprint

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.__value, other.__value)

    __hash__ = None  # type: ignore[assignment] # a hash would tell values apart

    def __repr__(self) -> str:
        return f"Secret(fp={self.__fingerprint})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)  # whatever the width: padding would be no mark

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(_HIDDEN)

    def __copy__(self) -> NoReturn:
        raise TypeError(_HIDDEN)

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError(_HIDDEN)


def storable(value: bytes, field: str = "secret") -> None:
    """Refuse what may not be stored: it must be visible ASCII, since it goes into headers (V25).

    BadInput names `field`, and never says what is in it.
    """
    if not LEAST <= len(value) <= MOST:
        raise invalid(field, f"must have {LEAST} to {MOST} bytes")
    if not _VISIBLE.fullmatch(value):
        raise invalid(field, "must be visible ASCII without spaces or line ends")


def _fingerprint(key: bytes, value: bytes) -> str:
    return hmac.new(key, b"fp" + value, sha256).digest()[:8].hex()
