"""What a hand may reach: its rules, and whether a request fits one.

Pure. Without a rule nothing goes out. A rule names a host, and may name methods
and paths: then requests must be read, so CONNECT, which hides them, is refused
for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from carpal.errors import invalid
from hands.forwarder import hosts
from hands.forwarder.paths import fits, plain
from hands.inside.schema import check

SCHEMA: dict[str, Any] = {
    "type": "array",
    "maxItems": 100,
    "items": {
        "type": "object",
        "required": ["host"],
        "additionalProperties": False,
        "properties": {
            "host": {"type": "string", "minLength": 1},
            "methods": {
                "type": "array",
                "minItems": 1,
                "maxItems": 20,
                "items": {"type": "string", "minLength": 1},
            },
            "paths": {
                "type": "array",
                "minItems": 1,
                "maxItems": 100,
                "items": {"type": "string", "minLength": 1},
            },
        },
    },
}
"""Of a hand's `egress`; absent and empty mean the same: nothing goes out."""

_USUAL = (80, 443)
_TEXT_MAX = 1024
_NAMED = 5
"""Hosts that a refusal lists."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One host, and what may be asked of it."""

    host: str
    """In its one form (`hosts.normal`); `*.example.com` for every name below that one."""
    port: int | None = None
    """None for 80 and 443."""
    methods: frozenset[str] = frozenset()
    """Empty for all."""
    paths: tuple[str, ...] = ()
    """Patterns, in which `*` stands for any characters; empty for all."""

    @property
    def looks(self) -> bool:
        """Whether it must read what is asked."""
        return bool(self.methods or self.paths)

    def names(self, host: str, port: int) -> bool:
        """Whether it is about that place."""
        if self.host.startswith("*."):
            # An address ends in no name, so it is below none.
            here = host.endswith(self.host[1:]) and hosts.address(host) is None
        else:
            here = host == self.host
        return here and (port in _USUAL if self.port is None else port == self.port)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a hand asks for."""

    host: str
    port: int
    method: str = ""
    path: str = ""
    """As it came, without the query; empty for a tunnel, whose requests nobody sees."""
    overridden: str = ""
    """A header by which some servers serve another method or path than was asked for."""

    @property
    def tunnel(self) -> bool:
        """Whether it is a CONNECT."""
        return not self.path


def parse(value: object, field: str = "config.egress") -> tuple[Rule, ...]:
    """The rules that a hand's configuration holds. INVALID_FIELD names what is wrong."""
    if problem := check(SCHEMA, value, field):
        raise invalid(problem.field, problem.text)
    assert isinstance(value, list)
    return tuple(_rule(given, f"{field}[{index}]") for index, given in enumerate(value))


def _rule(given: Mapping[str, Any], field: str) -> Rule:
    below = given["host"].startswith("*.")
    try:
        host, port = hosts.split(given["host"].removeprefix("*."))
        if below and hosts.address(host) is not None:
            raise ValueError("an address has no names below it")
    except ValueError as error:
        text = f"{error}; give a host such as pypi.org, *.pypi.org or 192.0.2.1:8080"
        raise invalid(f"{field}.host", text) from None
    for index, method in enumerate(given.get("methods", ())):
        if not (method.isascii() and method.isalpha() and method.isupper()):
            raise invalid(f"{field}.methods[{index}]", "must be a method such as GET")
        if method == "CONNECT":
            text = "CONNECT hides what is asked; leave methods and paths out to allow it"
            raise invalid(f"{field}.methods[{index}]", text)
    return Rule(
        host=f"*.{host}" if below else host,
        port=port,
        methods=frozenset(given.get("methods", ())),
        paths=tuple(
            _pattern(text, f"{field}.paths[{index}]")
            for index, text in enumerate(given.get("paths", ()))
        ),
    )


def _pattern(text: str, field: str) -> str:
    try:
        if len(text) > _TEXT_MAX or not text.isascii():
            raise ValueError(f"at most {_TEXT_MAX} letters, as a URL has them")
        if "?" in text or "#" in text:
            raise ValueError("a pattern is for the path alone, without a query")
        return plain(text)
    except ValueError as error:
        raise invalid(field, f"{error}; give a pattern such as /simple/*") from None


def as_config(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """The rules as `parse` takes them."""
    return [
        {
            "host": _host(rule),
            **({"methods": sorted(rule.methods)} if rule.methods else {}),
            **({"paths": list(rule.paths)} if rule.paths else {}),
        }
        for rule in rules
    ]


def refusal(rules: Sequence[Rule], asked: Asked) -> str:
    """Why a request is refused, in words for who asked; empty when a rule allows it."""
    place = hosts.joined(asked.host, asked.port)
    about = [rule for rule in rules if rule.names(asked.host, asked.port)]
    if not rules:
        return f"{place}: this hand has no egress rules, so nothing goes out"
    if not about:
        return f"{place} is not among this hand's egress rules, which name {_listed(rules)}"
    return min((_why_not(rule, asked) for rule in about), key=bool)


def _why_not(rule: Rule, asked: Asked) -> str:
    if not rule.looks:
        return ""
    host = hosts.bracketed(asked.host)
    if asked.tunnel:
        return (
            f"the rule for {host} looks at methods and paths, which CONNECT hides: "
            f"ask the proxy for the whole URL, as in GET https://{host}/"
        )
    if asked.overridden:
        return f"the rule for {host} looks at methods and paths, which {asked.overridden} changes"
    if rule.methods and asked.method not in rule.methods:
        return f"{asked.method} is not allowed at {host}, only {', '.join(sorted(rule.methods))}"
    if not rule.paths:
        return ""
    try:
        path = plain(asked.path)
    except ValueError as error:
        return f"the path is not allowed at {host}: {error}"
    if any(fits(pattern, path) for pattern in rule.paths):
        return ""
    return f"the path is not allowed at {host}, only {', '.join(rule.paths[:_NAMED])}"


def _host(rule: Rule) -> str:
    return rule.host if rule.port is None else hosts.joined(rule.host, rule.port)


def _listed(rules: Sequence[Rule]) -> str:
    named = list(dict.fromkeys(_host(rule) for rule in rules))
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return ", ".join(named[:_NAMED]) + more
