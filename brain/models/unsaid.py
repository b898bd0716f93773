"""What a message about a model must not hold: keys, tokens, paths of the brain's machine. Pure.

A service may quote what it was shown, and the log is read by others.
"""

import json
import re
from collections.abc import Mapping

SHORTEST = 8
"""Characters: what is shorter is no secret, and would be found in other words."""
_KEPT = 64
"""Secrets that a client remembers: a token command's change, and calls go on with an old one."""
_SIGNED = "AWS4-"
"""How the signature of one request begins: no secret, and another each time."""
_STRUCK = "[struck out: a key]"
_SECRET = re.compile(r"auth|key|token|secret|passw|credential|cookie", re.IGNORECASE)
"""Headers that may hold a secret, by their names."""
_PATH = re.compile(r"(?<![\w/:.])~?/(?:[^\s/'\",;:()]+/)*[^\s/'\",;:()]+")


class Unsaid:
    """The secrets that were shown to one service."""

    def __init__(self) -> None:
        self._secrets: dict[str, None] = {}
        """The newest last."""

    def saw(self, headers: Mapping[str, str]) -> None:
        """A request is sent with these."""
        for name, value in headers.items():
            if not _SECRET.search(name) or value.startswith(_SIGNED):
                continue
            for word in (value.strip(), *value.split()):
                if len(word) >= SHORTEST:
                    self._secrets.pop(word, None)
                    self._secrets[word] = None
        while len(self._secrets) > _KEPT:
            del self._secrets[next(iter(self._secrets))]

    def strike(self, text: str) -> str:
        """The text without any of them."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, _STRUCK)
            text = text.replace(json.dumps(secret)[1:-1], _STRUCK)
        return text


def without_paths(text: str) -> str:
    """The text without paths of this machine."""
    return _PATH.sub("[a path of the brain]", text)
