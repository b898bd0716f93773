"""The units that a hand type of others names, checked: they may be anything. Pure."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from hands.contract import Unit

UNITS_MAX = 256
ALL_MAX = 64 * 1024
"""Bytes of all of them as JSON: each daemon's hello has them."""
_ID = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def units(told: Iterable[tuple[Any, Any]]) -> tuple[Unit, ...]:
    """Those of these ids with these labels. Raises ValueError, which says what is wrong."""
    found: dict[str, Unit] = {}
    for unit_id, labels in told:
        if not isinstance(unit_id, str) or not _ID.fullmatch(unit_id):
            raise ValueError("the id of a unit is not 1 to 128 of a-z, A-Z, 0-9, '_' and '-'")
        if unit_id in found:
            raise ValueError(f"two units are named {unit_id}")
        if not isinstance(labels, Mapping):
            raise ValueError(f"the labels of unit {unit_id} are no object")
        if not all(isinstance(each, str) for pair in labels.items() for each in pair):
            raise ValueError(f"the labels of unit {unit_id} are not all strings")
        found[unit_id] = Unit(unit_id, dict(labels))
        if len(found) > UNITS_MAX:
            raise ValueError(f"there are more than {UNITS_MAX} units")
    _check_text({unit_id: each.labels for unit_id, each in found.items()})
    return tuple(found.values())


def read(data: bytes) -> tuple[Unit, ...]:
    """What a process wrote of them. Raises ValueError."""
    told = _object(data).get("units")
    if not isinstance(told, list) or not all(_is_pair(each) for each in told):
        raise ValueError("what it says of its units is no list of ids with labels")
    return units((unit_id, labels) for unit_id, labels in told)


def was_reset(data: bytes) -> None:
    """What a process wrote of a reset that went well; raises ValueError of any other."""
    if _object(data).get("reset") is not True:
        raise ValueError("it does not say that it was reset")


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("what it says is no JSON") from None
    if not isinstance(said, dict):
        raise ValueError("what it says is no object")
    if "wrong" in said:
        raise ValueError(str(said["wrong"]).encode("utf-8", "replace").decode()[:1000])
    return said


def _is_pair(each: object) -> bool:
    return isinstance(each, list) and len(each) == 2


def _check_text(told: Mapping[str, Mapping[str, str]]) -> None:
    try:
        size = len(json.dumps(told, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        raise ValueError("a label is no text") from None
    if size > ALL_MAX:
        raise ValueError(f"all units and their labels have more than {ALL_MAX} bytes")
