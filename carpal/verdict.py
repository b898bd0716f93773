"""How checks are made and say what is wrong, and a refusal is held to the contract's table."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

import grpc

from carpal.client import from_rpc
from carpal.errors import CarpalError, from_status
from carpal.rpc import status_pb2
from carpal.status import SPECS, Reason

NOT_BUILT = "not built"
PEER = "the service"
_VAGUE = frozenset({Reason.NOT_BUILT, Reason.INTERNAL, Reason.UNREACHABLE, Reason.UNAVAILABLE})
"""No answer to what was asked."""


class Checkable(Protocol):
    """A check, of whatever it is."""

    @property
    def alone(self) -> bool:
        """Whether no other may be made beside it."""


_Check = TypeVar("_Check", bound=Checkable)
_Verdict = TypeVar("_Verdict")


async def judged(
    checks: Sequence[_Check], judge: Callable[[_Check], Awaitable[_Verdict]], at_once: int
) -> AsyncGenerator[_Verdict, None]:
    """Each check's verdict, in order, as it comes; those that must be alone come last."""
    room = asyncio.Semaphore(at_once)

    async def beside(check: _Check) -> _Verdict:
        async with room:
            return await judge(check)

    running = [asyncio.create_task(beside(check)) for check in checks if not check.alone]
    try:
        for task in running:
            yield await task
        for check in checks:
            if check.alone:
                yield await judge(check)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Failed(Exception):
    """The service does not do what the sentence says; the message says how."""

    def __init__(self, message: str, change: str = "") -> None:
        """`change` is a sentence: what its author must change, where this is known here."""
        super().__init__(message)
        self.change = change


class Skipped(Exception):
    """The check could not be made; the message says what it needs."""


def must(holds: bool, otherwise: str, change: str = "") -> None:
    """Fail with what is wrong, unless it holds; `change` is as of `Failed`."""
    if not holds:
        raise Failed(otherwise, change)


def equal(what: str, got: object, wanted: object, change: str = "") -> None:
    """Fail when `what` is not as wanted, saying both; `change` is as of `Failed`."""
    if got != wanted:
        raise Failed(f"{what}: {_brief(got)}, not {_brief(wanted)}", change)


@contextmanager
def refused(*reasons: Reason, field: str = "", says: str = "") -> Iterator[None]:
    """The call inside must be refused, for one of these reasons; without any, for whatever.

    The refusal must name `field`, and its message hold `says`.
    """
    try:
        yield
    except grpc.RpcError as error:
        code = error.code().value[0] if isinstance(error, grpc.aio.AioRpcError) else 0
        refusal = from_rpc(error, PEER)
        check_refusal(refusal, code, *reasons)
        if field:
            equal(f"the field that {refusal.name} names", refusal.fields.get("field"), field)
        must(says in refusal.message, f"{refusal.name} does not say {says!r}: {refusal.message}")
    else:
        raise Failed(f"was not refused{_wanted(reasons)}")


def refused_ack(status: status_pb2.Status | None, *reasons: Reason) -> None:
    """A group's status must be a refusal for one of these reasons."""
    if status is None:
        raise Failed(f"the group was not refused{_wanted(reasons)}")
    check_refusal(from_status(status), status.code, *reasons)


def check_refusal(error: CarpalError, code: int, *reasons: Reason) -> None:
    """Fail unless an error is one of these reasons, under the code the contract gives it."""
    if error.reason is Reason.NOT_BUILT:
        raise Failed(NOT_BUILT)
    if reasons and error.reason not in reasons:
        raise Failed(f"refused as {_named(error)} ({error.message}){_wanted(reasons)}")
    if not reasons and error.reason in _VAGUE:
        raise Failed(f"answered {_named(error)} ({error.message})")
    equal(f"the code of {error.name}", code, int(SPECS[error.reason].code))


def explain(error: Exception) -> str:
    """One line for whatever a check raised."""
    if isinstance(error, Failed):
        text = str(error)
    elif isinstance(error, grpc.aio.AioRpcError):
        meant = from_rpc(error, PEER)
        text = f"refused as {_named(meant)}: {meant.message}"
        if meant.reason is Reason.NOT_BUILT:
            text = NOT_BUILT
    elif isinstance(error, TimeoutError):
        text = "took too long"
    else:
        text = f"{type(error).__name__}: {error}"
    return _line(text)


def _named(error: CarpalError) -> str:
    return error.name if error.bare is None else f"{error.name} without a reason"


def _wanted(reasons: tuple[Reason, ...]) -> str:
    return f", where {' or '.join(reasons)} was due" if reasons else ""


def _brief(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else f"{text[:200]}…"


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 500 else f"{text[:500]}…"
