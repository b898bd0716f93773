"""Making checks: several at once where that is safe, each bounded in time."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import grpc

from carpal.verdict import NOT_BUILT, Failed, Skipped, explain, judged
from hands.conformance import refusals
from hands.conformance.bench import open_bench
from hands.conformance.changes import CHANGES
from hands.conformance.group import CONTRACT, Check, Verdict
from hands.conformance.subject import Subject
from hands.conformance.waits import Waits

SECONDS = 60.0
"""One check may take, on a machine of scale 1."""
_WITH_UNITS = 180.0
"""The same, of a type with units: each hand waits for two resets."""
AT_ONCE = 3


async def judge(check: Check, subject: Subject, scale: float = 1.0) -> Verdict:
    """Make one check; whatever it raises is its detail."""
    for capability in (check.capability, *check.needs):
        if capability not in {CONTRACT, *subject.capabilities}:
            reason = f"the type does not claim {capability}"
            return Verdict(check.sentence, check.capability, "skipped", reason)
    if check.daemons and "claim" not in subject.capabilities:
        reason = "a daemon sees to it, for a type that does not claim `claim`"
        return Verdict(check.sentence, check.capability, "skipped", reason)
    waits = Waits(scale)
    seconds = (_WITH_UNITS if subject.has_units else SECONDS) * scale
    try:
        async with asyncio.timeout(seconds), open_bench(subject, scale, waits) as bench:
            await check.run(bench)
    except Skipped as reason:
        return Verdict(check.sentence, check.capability, "skipped", str(reason))
    except Exception as error:  # noqa: BLE001 - whatever a server answers, the others go on
        detail, change = _meant(error, waits, seconds)
        change = change or CHANGES[check.name]
        return Verdict(check.sentence, check.capability, "fail", detail, change)
    return Verdict(check.sentence, check.capability, "pass")


def _meant(error: Exception, waits: Waits, seconds: float) -> tuple[str, str]:
    """What was otherwise, and what to change where that is known better than by the check."""
    if isinstance(error, Failed):
        rpc = "" if error.__context__ is None else waits.rpc_of(error.__context__)
        if rpc and str(error) == NOT_BUILT:
            return f"{rpc} {NOT_BUILT}", refusals.change(rpc, grpc.StatusCode.UNIMPLEMENTED)
        return explain(error), error.change
    if isinstance(error, TimeoutError):
        if waits.cut is None:
            return f"took longer than {seconds:g} s", ""
        return f"took longer than {seconds:g} s: {waits.cut.otherwise}", waits.cut.change
    if isinstance(error, grpc.aio.AioRpcError) and (rpc := waits.rpc_of(error)):
        return f"{rpc} {explain(error)}", refusals.change(rpc, error.code())
    return explain(error), ""


def verdicts(
    checks: Sequence[Check], subject: Subject, scale: float = 1.0
) -> AsyncGenerator[Verdict, None]:
    """Each check's verdict, in order, as it comes; those that must be alone come last."""
    # Of units there may be one, which each check must find free.
    at_once = 1 if subject.has_units else AT_ONCE
    return judged(checks, lambda check: judge(check, subject, scale), at_once)
