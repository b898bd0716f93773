"""The vault's lines of the audit: those of `carpal.audit_chain`, each with a keyed mark. Pure.

The chain alone shows a line that was changed, to anyone. The mark, an HMAC over the hash before
and the line, shows also whoever wrote all lines anew: its key is replaced by one that derives from
it, day by day, so that a thief of today's key can forge no line of yesterday.
"""

import hmac
import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from carpal import audit_chain
from carpal.audit_chain import Head

KEY_SIZE = 32
_DOMAIN = b"carpal/v1/vault/audit\0"
_MARK = re.compile(rb',"mac":"([0-9a-f]{64})","hash":"[0-9a-f]{64}"\}$')


def line(
    head: Head, time: str, what: str, facts: Mapping[str, Any], key: tuple[int, bytes]
) -> tuple[bytes, Head]:
    """The line after `head`, with its end, and the head then; `key` is a number and the key."""
    number, secret = key
    marked = {**facts, "key": number}
    # As `audit_chain.line` writes it, up to the mark.
    body = json.dumps(
        {"n": head.number + 1, "time": time, "what": what, **marked}, separators=(",", ":")
    )
    mark = _mark(secret, head.hash, body[:-1].encode())
    return audit_chain.line(head, time, what, {**marked, "mac": mark})


def next_key(key: bytes) -> bytes:
    """The key after this one; there is no way back."""
    return HKDF(hashes.SHA256(), KEY_SIZE, salt=None, info=_DOMAIN + b"next").derive(key)


def later_key(first: bytes, number: int) -> bytes:
    """The key of that number, from key 0."""
    key = first
    for _ in range(number):
        key = next_key(key)
    return key


class Marks:
    """Checks the marks of lines in order, as far as their keys are known."""

    def __init__(self, number: int, key: bytes) -> None:
        """The key of that number is known, and so are those after it."""
        self._number, self._key = number, key
        self._last = 0
        self.checked = self.unchecked = 0

    def __call__(self, before: Head, text: bytes, record: Mapping[str, Any]) -> str:
        """What is wrong with a line's mark; a `carpal.audit_chain.Check`."""
        found, number = _MARK.search(text), record.get("key")
        if found is None or type(number) is not int:
            return "has no mark"
        if number < self._last or number > self._last + 100_000:
            return "has a mark by a key of another time"
        self._last = number
        if number < self._number:
            self.unchecked += 1
            return ""
        while self._number < number:
            self._number, self._key = self._number + 1, next_key(self._key)
        self.checked += 1
        right = _mark(self._key, before.hash, text[: found.start()])
        if hmac.compare_digest(right.encode(), found[1]):
            return ""
        return "was not written by this vault: its mark is wrong"


def _mark(key: bytes, before: str, body: bytes) -> str:
    return hmac.new(key, _DOMAIN + before.encode() + body, sha256).hexdigest()
