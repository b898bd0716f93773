"""Which unit a hand gets: of those that have the labels asked for, the first that is free. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from carpal.errors import invalid, refuse
from carpal.status import Reason
from hands.contract import Unit


@dataclass(frozen=True, slots=True)
class Row:
    """What the journal has of a unit; of one that was never held, nothing."""

    holder: str = ""
    """The hand that has it, or had it last and after which it is not reset yet."""
    state: str = "free"
    """`free`, `held`, or `resetting`: its hand is dead, and it is to be reset."""
    reason: str = ""
    """Why it is in quarantine."""


def labels_wanted(config: dict[str, Any]) -> dict[str, str]:
    """Take `unit` out of a config: labels that the unit must have. INVALID_FIELD."""
    wanted: Any = config.pop("unit", {})
    if isinstance(wanted, dict) and all(isinstance(each, str) for each in wanted.values()):
        return wanted
    raise invalid("config.unit", "must be an object of labels, each a string")


def chosen(
    type_name: str, named: Mapping[str, Unit], rows: Mapping[str, Row], wanted: Mapping[str, str]
) -> str:
    """The id of a free unit.

    INVALID_FIELD: none has the labels; AT_CAPACITY: none is free; PROVISION_FAILED: there is none,
    for which nobody need wait.
    """
    if not named:
        raise refuse(
            Reason.PROVISION_FAILED,
            f"no unit of {type_name!r} is there now",
            action="connect one; `carpal hand units` there shows those it knows",
        )
    fits = [key for key, unit in named.items() if wanted.items() <= unit.labels.items()]
    if wanted and not fits:
        labels = " ".join(f"{key}={value}" for key, value in sorted(wanted.items()))
        raise refuse(
            Reason.INVALID_FIELD,
            f"config.unit: no unit of {type_name!r} has {labels}",
            action="ask for labels that one has: `carpal hand units` shows them",
            field="config.unit",
        )
    counts = Counter[str]()
    for unit_id in sorted(fits):
        row = rows.get(unit_id, Row())
        if row.reason:
            counts["quarantined"] += 1
        elif row.state == "free":
            return unit_id
        else:
            counts[row.state] += 1
    found = f"{counts['held']} held, {counts['quarantined']} quarantined"
    more = f", {counts['resetting']} being reset" if counts["resetting"] else ""
    problem = f"no unit of {type_name!r} is free: of {len(fits)} there are {found}{more}"
    action = (
        "wait, or end a hand that has one: `carpal hand units` on its machine says who holds each"
    )
    raise refuse(Reason.AT_CAPACITY, problem, action=action)
