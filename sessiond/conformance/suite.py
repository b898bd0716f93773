"""All checks there are, in the order they are said."""

from collections.abc import Sequence

from carpal.errors import invalid
from sessiond.conformance.checks import (
    append,
    blobs,
    chain,
    deletion,
    documents,
    forks,
    frames,
    imports,
    lease_terms,
    lease_watches,
    leases,
    listing,
    parking,
    redaction,
    refusals,
    roles,
    runnable,
    sessions,
    slices,
    tail,
    updates,
)
from sessiond.conformance.group import Check, Group

_GROUPS: tuple[Group, ...] = (
    sessions.group,
    updates.group,
    listing.group,
    refusals.group,
    append.group,
    frames.group,
    slices.group,
    tail.group,
    leases.group,
    lease_terms.group,
    lease_watches.group,
    runnable.group,
    parking.group,
    chain.group,
    forks.group,
    redaction.group,
    deletion.group,
    imports.group,
    blobs.group,
    documents.group,
    roles.group,
)
CHECKS: tuple[Check, ...] = tuple(check for group in _GROUPS for check in group.checks)


def chosen(groups: Sequence[str]) -> list[Check]:
    """The checks of these groups, or all; INVALID_FIELD when there is no such group."""
    names = list(dict.fromkeys(check.group for check in CHECKS))
    for name in groups:
        if name not in names:
            raise invalid("--only", f"{name!r} is none of {', '.join(names)}")
    return [check for check in CHECKS if not groups or check.group in groups]
