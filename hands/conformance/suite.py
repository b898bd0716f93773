"""All checks there are, in the order they are said."""

from collections.abc import Sequence

from carpal.errors import invalid
from hands.conformance.checks import (
    calls,
    described,
    events,
    faults,
    files,
    floods,
    isolated,
    killing,
    limits,
    listed,
    provisions,
    screens,
    shell,
    tunnels,
    units,
    visual,
)
from hands.conformance.group import Check, Group

_GROUPS: tuple[Group, ...] = (
    described.contract,
    listed.lists_tools,
    provisions.contract,
    calls.contract,
    faults.contract,
    shell.shell,
    killing.shell,
    floods.shell,
    limits.shell,
    files.files,
    isolated.isolated,
    units.units,
    visual.visual,
    events.events,
    tunnels.tunnel,
    screens.view,
    screens.control,
)
CHECKS: tuple[Check, ...] = tuple(check for group in _GROUPS for check in group.checks)


def chosen(capabilities: Sequence[str]) -> list[Check]:
    """The checks of these capabilities, or all; INVALID_FIELD when there is no such one."""
    names = list(dict.fromkeys(check.capability for check in CHECKS))
    for name in capabilities:
        if name not in names:
            raise invalid("--only", f"{name!r} is none of {', '.join(names)}")
    return [one for one in CHECKS if not capabilities or one.capability in capabilities]
