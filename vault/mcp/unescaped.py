"""Secrets that a server hid in the escapes of JSON, where no reader of bytes finds them. Pure.

The guard strikes out what is there in any usual spelling. But JSON may say each letter by its
number, and whoever reads it has the letter again. So what has such escapes is looked through once
more, as it will be read.
"""

import json
from collections.abc import Iterable

from vault.mcp.jsonrpc import Json
from vault.redact.stream import Patterns
from vault.secret import Secret


def without(result: Json, secrets: Iterable[Secret]) -> tuple[Json, bool]:
    """The same without secrets, and whether there was one."""
    patterns = Patterns(secrets)
    text, found = patterns.text(json.dumps(result, ensure_ascii=False))
    if not found:
        return result, False
    clean = json.loads(text)
    assert isinstance(clean, dict)
    return clean, True


def may_hide(data: bytes) -> bool:
    """Whether bytes of JSON say letters by their numbers."""
    return b"\\u" in data
