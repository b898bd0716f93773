"""What a secret manager is to the vault: something that a value can be fetched from.

A plug-in is an entry point in `carpal.secret_sources`: a callable that takes the settings of one
source, a dict without the members that are the vault's own, and returns a `Source`. It raises
ValueError for settings that are wrong, in words for whoever wrote them.
"""

from enum import StrEnum
from typing import Protocol

from vault.guard.transport import Guard
from vault.secret import Secret
from vault.sources.reference import Reference

GROUP = "carpal.secret_sources"


class Failure(StrEnum):
    """Why there is no value: all that a caller is told of it."""

    NOT_CONFIGURED = "not_configured"
    """This vault has no such source."""
    NOT_ALLOWED = "not_allowed"
    """It has, and not for this workspace, or not for this path."""
    REFUSED = "refused"
    """The manager does not let the vault read that."""
    MISSING = "missing"
    """There is no such path, key or version."""
    DELETED = "deleted"
    """That version was deleted or destroyed."""
    UNUSABLE = "unusable"
    """The value is none that can be kept, or sent."""
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"
    """It answers, and cannot now: sealed, standing by, overloaded."""
    MALFORMED = "malformed"
    """The answer is none: a redirect, too long, not as it must be."""
    FAILED = "failed"
    """It failed, and does not say how."""

    @property
    def final(self) -> bool:
        """Whether asking again changes nothing until somebody acts."""
        return self in _FINAL


_FINAL = frozenset(
    (
        Failure.NOT_CONFIGURED,
        Failure.NOT_ALLOWED,
        Failure.REFUSED,
        Failure.MISSING,
        Failure.DELETED,
        Failure.UNUSABLE,
    )
)


class SourceFailed(Exception):
    """There is no value. `detail` is for the audit: words of ours, none of the manager's."""

    def __init__(self, failure: Failure, detail: str) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.detail = detail


class Source(Protocol):
    """One secret manager, as it is configured."""

    async def fetch(self, reference: Reference, guard: Guard) -> Secret:
        """The value of now. Raises SourceFailed. It is bounded in time and size by itself.

        Whoever asks over a network asks through `guard`.
        """
        ...
