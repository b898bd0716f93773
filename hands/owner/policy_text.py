"""Reads a policy's text: every key known, every value checked, each mistake with its line. Pure."""

import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from hands.forwarder.rules import Rule, parse
from hands.owner.policy import ENTRIES, LIMITS, MOUNTS, Policy, check_absolute
from hands.owner.redact import PATTERNS_MAX, Redactor
from hands.owner.redact_pattern import Pattern
from hands.owner.redact_pattern import parse as parse_pattern

SYSLOG = "/dev/log"
_LIST_MAX = 1000
_TEXT_MAX = 1024
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_WHOLE = ("hands_max", "memory_bytes", "disk_bytes", "processes")
_ALL_LIMITS = ("hands_max", *LIMITS, "call_seconds", "orphan_seconds")
_HEADER = re.compile(r"\s*\[\s*([A-Za-z0-9_.\"' -]+?)\s*\]\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*=""")


class _Wrong(Exception):
    """A value that is no good."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


def read(text: str, file: str) -> Policy:
    """The policy. CONFIG_INVALID names the file, the line and the key, and says what to do."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _bad(f"{file}: not TOML: {error}", "correct the file") from None
    try:
        return _policy(given, file, hashlib.sha256(text.encode()).hexdigest())
    except _Wrong as wrong:
        number = line_of(text, wrong.key)
        at = f"{file}, line {number}" if number else file
        raise _bad(f"{at}: {wrong.key}: {wrong}", "correct it") from None


def line_of(text: str, key: str) -> int:
    """The line of a key such as `types` or `limits.cpus`; 0 when it is not found."""
    name = re.sub(r"\[[0-9]+\].*$", "", key)
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = header[1].strip() + "."
            if header[1].strip() == name:
                return number
        elif found := _KEY.match(line):
            here = found[1] or found[2] or found[3] or ""
            if table + here == name or (not table and name.startswith(here + ".")):
                return number
    return 0


def _policy(given: Mapping[str, Any], file: str, digest: str) -> Policy:
    kinds: dict[str, Callable[[str, Any], Any]] = {
        "workspaces": lambda key, value: _texts(key, value, _name),
        "types": lambda key, value: _texts(key, value, _name),
        "tools": lambda key, value: _texts(key, value, _tool),
        "images": lambda key, value: _texts(key, value, lambda _, text: text),
        "folders": lambda key, value: _texts(key, value, _folder),
        "mounts": lambda key, value: _texts(key, value, _one_of(MOUNTS)),
        "hosts": _hosts,
        "open_network": lambda key, value: _texts(key, value, _name),
        "namespaces": lambda key, value: _texts(key, value, _name),
        "people": lambda key, value: _texts(key, value, _one_of(ENTRIES)),
        "limits": _limits,
        "redact": _redactor,
        "syslog": _syslog,
    }
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key not in kinds:
            raise _Wrong(key, f"no such key; there are {', '.join(sorted(kinds))}")
        found["redactor" if key == "redact" else key] = kinds[key](key, value)
    return Policy(file=file, digest=digest, **found)


def _texts(key: str, value: Any, one: Callable[[str, str], Any]) -> tuple[Any, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _Wrong(key, 'must be a list of texts, as ["a", "b"]; an empty one allows nothing')
    if len(value) > _LIST_MAX:
        raise _Wrong(key, f"has {len(value)} texts, and may have {_LIST_MAX}")
    for index, each in enumerate(value):
        if not 0 < len(each) <= _TEXT_MAX:
            raise _Wrong(f"{key}[{index}]", f"must have 1 to {_TEXT_MAX} characters")
    return tuple(one(f"{key}[{index}]", each) for index, each in enumerate(value))


def _name(key: str, text: str) -> str:
    if not _NAME.fullmatch(text):
        raise _Wrong(key, f"{text!r} is no name: letters, digits, '.', '_' and '-'")
    return text


def _tool(key: str, text: str) -> tuple[str, str]:
    kind, slash, tool = text.rpartition("/")
    kind = kind if slash else "*"
    for part in (kind, tool):
        if part != "*":
            _name(key, part)
    return kind, tool


def _folder(key: str, text: str) -> str:
    try:
        return check_absolute(text, key)
    except CarpalError:
        raise _Wrong(key, f"{text!r} is not an absolute path without '..'") from None


def _one_of(words: tuple[str, ...]) -> Callable[[str, str], str]:
    def check(key: str, text: str) -> str:
        if text not in words:
            raise _Wrong(key, f"{text!r} is none of {', '.join(words)}")
        return text

    return check


def _hosts(key: str, value: Any) -> tuple[Rule, ...]:
    texts = _texts(key, value, lambda _, text: text)
    found: list[Rule] = []
    for index, text in enumerate(texts):
        try:
            found += parse([{"host": text}], key)
        except CarpalError as error:
            raise _Wrong(f"{key}[{index}]", error.message.partition(": ")[2]) from None
    return tuple(found)


def _limits(key: str, value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        raise _Wrong(key, "must be a table: [limits]")
    for name, most in value.items():
        named = f"{key}.{name}"
        if name not in _ALL_LIMITS:
            raise _Wrong(named, f"no such limit; there are {', '.join(_ALL_LIMITS)}")
        whole = isinstance(most, int) and not isinstance(most, bool)
        if not whole and (name in _WHOLE or not isinstance(most, float)):
            raise _Wrong(named, "must be a whole number" if name in _WHOLE else "must be a number")
        least = 0 if name == "hands_max" else 1 if name in _WHOLE else 0.01
        if not least <= most < 2**53:
            raise _Wrong(named, f"{most} must be {least} or more")
    return {name: float(most) for name, most in value.items()}


def _redactor(key: str, value: Any) -> Redactor:
    texts = _texts(key, value, _pattern)
    if len(texts) > PATTERNS_MAX:
        raise _Wrong(key, f"has {len(texts)} patterns, and may have {PATTERNS_MAX}")
    return Redactor(texts)


def _pattern(key: str, text: str) -> Pattern:
    try:
        return parse_pattern(text)
    except ValueError as error:
        raise _Wrong(key, f"{text!r}: {error}") from None


def _syslog(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return SYSLOG if value else ""
    if not isinstance(value, str):
        raise _Wrong(key, f"must be true, for {SYSLOG}, or the path of a socket")
    return _folder(key, value)


def _bad(message: str, action: str) -> CarpalError:
    return refuse(Reason.CONFIG_INVALID, message, action=action)
