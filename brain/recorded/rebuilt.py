"""The exact input of a model call, made again from the log and held against its hash. Pure."""

from dataclasses import dataclass

from brain.context.made_again import made_again
from brain.context.request import digest
from brain.recorded.recording import Asked, Recording
from brain.text import canonical
from carpal.errors import CarpalError, refuse
from carpal.status import Reason


@dataclass(frozen=True)
class Rebuilt:
    """A request as it was sent, or as near as the log still has it."""

    body: bytes
    """Canonical JSON of the Messages API's parameters."""
    sha256: str
    same: bool
    """Whether it has the hash that was noted before it was sent."""
    why: str = ""
    """Why not, where that can be told."""


def rebuild(recording: Recording, asked: Asked) -> Rebuilt:
    """Make it again by the policy that is named. CONFIG_INVALID when that is not installed."""
    transcript = recording.folded(asked.through)
    try:
        request = made_again(transcript, asked.purpose, asked.policy).request
    except CarpalError:
        raise
    except (AttributeError, KeyError, LookupError, TypeError, ValueError) as error:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"request {asked.number} cannot be made again: the log up to position {asked.through} "
            f"is not what its policy can read ({type(error).__name__}: {error})",
            action="look at the log with `carpal session tail`",
        ) from error
    again = digest(request)
    same = again == asked.sha256
    return Rebuilt(canonical(request), again, same, "" if same else _why(recording, asked))


def _why(recording: Recording, asked: Asked) -> str:
    if gone := recording.redacted(asked.through):
        shown = ", ".join(str(position) for position in gone[:10])
        more = f" and {len(gone) - 10} more" if len(gone) > 10 else ""
        return f"redacted since: {shown}{more}"
    return "this brain's code makes another request of the same log than the one that sent it"
