"""Secrets of a credential that lie in a secret manager: `sources` of its policy. Pure.

    "sources": {"token": {"source": "corp", "ref": "agents/tracker#token"}}

What lies in the safe in such a secret's stead is the reference itself. So it is bound to the
policy as a secret is: whoever widens that in the database has nothing fetched.
"""

from collections.abc import Mapping
from typing import Any

from carpal.errors import invalid
from vault.sources.reference import Reference

WHERE = "policy.sources"


def sources_of(
    given: Mapping[str, Any], before: Mapping[str, Any] | None, names: tuple[str, ...]
) -> dict[str, Any]:
    """The policy's member in one form; empty when it has none. `names` are secrets that may be so.

    Where a secret lies may be changed, but not whether it lies there. INVALID_FIELD.
    """
    had = (before or {}).get("sources", {})
    told = given.get("sources", had)
    if not isinstance(told, dict):
        raise invalid(WHERE, 'must be an object: {"token": {"source": NAME, "ref": "PATH#KEY"}}')
    if before is not None and told.keys() != had.keys():
        raise invalid(WHERE, "cannot be added or taken away: make another credential")
    found = {}
    for name, each in told.items():
        where = f"{WHERE}.{name[:64]}"
        if name not in names:
            raise invalid(where, f"is no secret that may lie elsewhere; {', '.join(names)} may")
        if not isinstance(each, dict) or each.keys() != {"source", "ref"}:
            raise invalid(where, 'must have "source" and "ref"')
        if not isinstance(each["source"], str):
            raise invalid(f"{where}.source", "must be the name of a source")
        reference = Reference.parse(each["source"], each["ref"], f"{where}.ref")
        found[name] = {"source": reference.source, "ref": str(reference)}
    return {"sources": found} if found else {}


def references(policy: Mapping[str, Any]) -> dict[str, Reference]:
    """By the names of the secrets that they stand for."""
    return {
        name: Reference.parse(each["source"], each["ref"], f"{WHERE}.{name}.ref")
        for name, each in policy.get("sources", {}).items()
    }


def kept_instead(reference: Reference) -> bytes:
    """What the safe has in the stead of a secret that lies elsewhere."""
    return f"{reference.source} {reference}".encode()
