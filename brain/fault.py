"""What is said of a harness that is at fault: one line, with its name. Pure."""

from brain.effect_check import Wrong, check
from brain.effects import Effect, Finish
from brain.session.transcript import Transcript
from brain.text import clean
from carpal.errors import CarpalError, refuse
from carpal.status import Reason

_TOLD_MAX = 500
"""Characters that are told of what a harness raised."""


def at_fault(name: str, what: str) -> CarpalError:
    """HARNESS_FAILED: what a harness does wrong, with its name."""
    return refuse(
        Reason.HARNESS_FAILED,
        f"the harness {name!r} is at fault: {what}",
        action="correct the harness, or have the agent name another",
    )


def raised(name: str, error: BaseException) -> CarpalError:
    """What a step of it raised, as the fault it is; a refusal of ours is one already."""
    if isinstance(error, StopIteration | StopAsyncIteration):
        return at_fault(name, f"it ended without a {Finish.__name__}")
    # That a lease is over is not a harness's to say.
    if isinstance(error, CarpalError) and error.reason is not Reason.STALE_EPOCH:
        return error
    return at_fault(name, told(error))


def checked(name: str, effect: object, transcript: Transcript) -> Effect:
    """What it yielded, when that can be performed. HARNESS_FAILED else."""
    if not isinstance(effect, Effect):
        raise at_fault(name, f"it yielded no effect but a {type(effect).__name__}")
    try:
        check(effect, transcript)
    except Wrong as wrong:
        raise at_fault(name, f"it yielded {wrong}") from None
    return effect


def told(error: BaseException) -> str:
    """That it was raised, in a line that can be sent."""
    try:
        text = " ".join(clean(str(error)[:_TOLD_MAX]).split())
    except Exception:  # noqa: BLE001 - somebody's code too
        text = "(its text cannot be had)"
    name = type(error).__name__
    return f"it raised {name}: {text}" if text else f"it raised {name}"
