"""Making checks: several at once where that is safe, each bounded in time."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from carpal.verdict import Skipped, explain, judged
from hands.conformance.bench import open_bench
from hands.conformance.changes import CHANGES
from hands.conformance.group import CONTRACT, Check, Verdict
from hands.conformance.subject import Subject

SECONDS = 60.0
"""One check may take, on a machine of scale 1."""
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
    try:
        async with asyncio.timeout(SECONDS * scale), open_bench(subject, scale) as bench:
            await check.run(bench)
    except Skipped as reason:
        return Verdict(check.sentence, check.capability, "skipped", str(reason))
    except Exception as error:  # noqa: BLE001 - whatever a server answers, the others go on
        change = CHANGES[check.name]
        return Verdict(check.sentence, check.capability, "fail", explain(error), change)
    return Verdict(check.sentence, check.capability, "pass")


def verdicts(
    checks: Sequence[Check], subject: Subject, scale: float = 1.0
) -> AsyncGenerator[Verdict, None]:
    """Each check's verdict, in order, as it comes; those that must be alone come last."""
    return judged(checks, lambda check: judge(check, subject, scale), AT_ONCE)
