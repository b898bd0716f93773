"""What a grant lets a session ask of one MCP server. Pure.

What no list names is denied. A name stands for itself, or with `*` at its end for what begins so;
there are no other patterns.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from carpal.errors import invalid

TOOL = re.compile(r"[\x21-\x7e]{1,128}")
"""Names of tools that are passed: whatever else is in one could end a header, or hide in a log."""
_PATTERN = re.compile(r"[\x21-\x29\x2b-\x7e]{0,127}\*?")
_SERVER = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_PATTERNS_MAX = 256
RESULT_MAX, CONCURRENCY_MAX, RATE_MAX = 64 * 1024 * 1024, 64, 100_000
SECONDS_MAX = 600.0


class Verdict(StrEnum):
    """What becomes of a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPolicy:
    """One server of a grant."""

    name: str
    """As the agent calls it: the last part of the path that the brain asks."""
    url: str
    """Where it is; nothing that a caller says becomes a part of it."""
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    changed: Verdict = Verdict.ASK
    """Of a tool that the server describes otherwise than when the session first saw it."""
    resources: bool = False
    prompts: bool = False
    per_user: bool = False
    """Whether the credential is one of the session's end user, and never another."""
    elicitation: bool = False
    """Whether the server may ask a person something, through the session."""
    result_bytes: int = 10 * 1024 * 1024
    concurrency: int = 8
    rate: int = 0
    """Calls a minute; 0 for as many as there are."""
    first_byte: float = 60.0
    """Seconds for the first byte of an answer."""

    def verdict(self, tool: str) -> Verdict:
        """Of a tool by its name: the strictest list that names it."""
        if not TOOL.fullmatch(tool) or _named(tool, self.deny):
            return Verdict.DENY
        if _named(tool, self.ask):
            return Verdict.ASK
        return Verdict.ALLOW if _named(tool, self.allow) else Verdict.DENY


def server_policy(name: str, value: Any) -> ServerPolicy:
    """From JSON; its names are the fields here. Raises INVALID_FIELD."""
    where = f"mcp.{name}"
    if not _SERVER.fullmatch(name):
        raise invalid("mcp", "a server's name must be 1 to 63 of a-z, 0-9, '_' and '-'")
    if not isinstance(value, dict):
        raise invalid(where, "must be an object")
    kinds: dict[str, Any] = {
        "url": str,
        **dict.fromkeys(("allow", "ask", "deny"), list),
        **dict.fromkeys(("resources", "prompts", "elicitation", "per_user"), bool),
        "changed": str,
        "result_bytes": int,
        "concurrency": int,
        "rate": int,
        "first_byte": (int, float),
    }
    for key, given in value.items():
        if key not in kinds:
            raise invalid(f"{where}.{key}", "is no part of a policy")
        if not isinstance(given, kinds[key]) or (
            isinstance(given, bool) and kinds[key] is not bool
        ):
            raise invalid(f"{where}.{key}", "is of another type")
    if not value.get("url", "").startswith("https://"):
        raise invalid(f"{where}.url", "must be an https URL")
    for key, most in (
        ("result_bytes", RESULT_MAX),
        ("concurrency", CONCURRENCY_MAX),
        ("rate", RATE_MAX),
    ):
        if not 0 < value.get(key, 1) <= most:
            raise invalid(f"{where}.{key}", f"must be 1 to {most}")
    if not 0 < value.get("first_byte", 1.0) <= SECONDS_MAX:
        raise invalid(f"{where}.first_byte", f"must be up to {SECONDS_MAX:g} s")
    changed = value.get("changed", Verdict.ASK)
    if changed not in list(Verdict):
        raise invalid(f"{where}.changed", "must be allow, ask or deny")
    lists = {
        key: _patterns(f"{where}.{key}", value.get(key, [])) for key in ("allow", "ask", "deny")
    }
    return ServerPolicy(name=name, **{**value, **lists, "changed": Verdict(changed)})


def _patterns(where: str, given: Iterable[Any]) -> tuple[str, ...]:
    found = tuple(given)
    if len(found) > _PATTERNS_MAX:
        raise invalid(where, f"has more than {_PATTERNS_MAX} names")
    for each in found:
        if not isinstance(each, str) or not each or not _PATTERN.fullmatch(each):
            raise invalid(where, "a name must be visible ASCII, with '*' only at its end")
    return found


def _named(tool: str, patterns: Iterable[str]) -> bool:
    return any(
        tool.startswith(each[:-1]) if each.endswith("*") else tool == each for each in patterns
    )
