"""What a line of the audit may say, and nothing beyond it. Pure.

No header, body, query, argument or secret has a name here, so none can be written by mistake.
"""

from collections.abc import Mapping

TEXT_MAX = 512
"""Characters of a text; callers choose some of them."""

FACTS = frozenset({
    "action",       # what: `mcp.call`, `sign`, `credential.create`, `unseal`
    "actor",        # SPIFFE URI, or `local:<user id>` for a command on the vault's machine
    "agent", "user", "workspace", "session", "epoch_of_session", "grant", "call", "daemon", "hand",
    "credential", "generation", "kind", "fingerprint", "vault_id",
    "server", "source", "tool", "method", "host", "port", "route",  # never a URL as it came
    "target",       # host and port, or an identity
    "identity", "token", "serial", "name", "role",
    "jti", "kid",   # of a token that the vault signed
    "decision", "reason", "status", "verdict", "shape", "count",
    "bytes", "bytes_in", "ms", "of",
    "epoch", "manifest", "term", "seal", "version", "since", "through", "head",
})  # fmt: skip

Fact = str | int | bool
Facts = Mapping[str, Fact]


def checked(facts: Mapping[str, object]) -> dict[str, Fact]:
    """Those with a value, clamped. ValueError for what has no name here: a mistake in our code."""
    kept: dict[str, Fact] = {}
    for name, value in facts.items():
        if name not in FACTS:
            raise ValueError(f"{name} is nothing that the audit may say")
        if value is None or value == "":
            continue
        if not isinstance(value, str | int):
            raise ValueError(f"{name} must be a text or a whole number")
        kept[name] = _line(value) if isinstance(value, str) else value
    return kept


def _line(text: str) -> str:
    return "".join(each if each.isprintable() else "�" for each in text[:TEXT_MAX])
