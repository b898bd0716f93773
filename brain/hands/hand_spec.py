"""What a session asks of a hand, beside its type and place, held to what a hand can be. Pure.

Whoever wrote the log wrote it: what no hand could have is refused here, by the name of its field,
before anything is asked for.
"""

import math
from collections.abc import Mapping
from typing import Any

from carpal.errors import invalid
from carpal.link_terms import ORPHAN_DEADLINE
from carpal.mounts import parse, refuse_twice

LIMITS: Mapping[str, type] = {
    "memory_bytes": int,
    "disk_bytes": int,
    "processes": int,
    "cpus": float,
}
"""Limits of a hand, as the contract names them."""
_MOST: Mapping[str, float] = {
    "memory_bytes": 2**63 - 1,
    "disk_bytes": 2**63 - 1,
    "processes": 2**31 - 1,
    "cpus": 65536,
}
_DEADLINE_MAX = 30 * 24 * 3600.0
"""Seconds; more than that no daemon takes."""


def asked(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A hand's `config`, `resources`, `limits` and `orphan_deadline`, all checked.

    Raises INVALID_FIELD.
    """
    config = spec.get("config")
    if not isinstance(config, dict | None):
        raise invalid(f"hands.{name}.config", "must be an object")
    return {
        "config": config or {},
        "resources": _resources(name, spec.get("resources")),
        "limits": _limits(name, spec.get("limits")),
        "orphan_deadline": _deadline(name, spec.get("orphan_deadline")),
    }


def _resources(name: str, given: Any) -> list[list[str]]:
    field = f"hands.{name}.resources"
    given = given or []
    pairs = isinstance(given, list) and all(isinstance(e, list) and len(e) == 2 for e in given)
    if not pairs or not all(isinstance(part, str) for each in given for part in each):
        raise invalid(field, "must be a list of [source_ref, mount_path]")
    parsed = [parse(source, path, f"{field}[{n}]") for n, (source, path) in enumerate(given)]
    refuse_twice(parsed, field)
    return list(given)


def _limits(name: str, given: Any) -> dict[str, float]:
    field = f"hands.{name}.limits"
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise invalid(field, "must be an object")
    for limit, value in given.items():
        if limit not in LIMITS:
            raise invalid(f"{field}.{limit}", f"is no limit; there is {', '.join(LIMITS)}")
        whole = LIMITS[limit] is int
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise invalid(f"{field}.{limit}", f"must be a {'whole ' if whole else ''}number")
        if not math.isfinite(value) or not 0 < value <= _MOST[limit]:
            raise invalid(f"{field}.{limit}", f"must be above 0 and at most {_MOST[limit]}")
    return dict(given)


def _deadline(name: str, given: Any) -> float:
    if given is None:
        return ORPHAN_DEADLINE
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not 1 <= given <= _DEADLINE_MAX:
        raise invalid(f"hands.{name}.orphan_deadline", f"must be 1 to {_DEADLINE_MAX:g} seconds")
    return float(given)
