"""Running checks: several at once where that is safe, each bounded in time."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from carpal.verdict import Skipped, explain, judged
from sessiond.conformance.bench import Bench
from sessiond.conformance.callers import Caller
from sessiond.conformance.group import Check, Verdict

SECONDS = 10.0
"""One check may take, on a machine of scale 1."""
AT_ONCE = 8


async def judge(check: Check, callers: dict[str, Caller], scale: float = 1.0) -> Verdict:
    """Make one check; whatever it raises is its detail."""
    bench = Bench(callers, scale)
    try:
        async with asyncio.timeout(SECONDS * scale):
            await check.run(bench)
    except Skipped as reason:
        return Verdict(check.sentence, check.group, "skipped", str(reason))
    except Exception as error:  # noqa: BLE001 - whatever a service answers, the others go on
        return Verdict(check.sentence, check.group, "fail", explain(error))
    finally:
        bench.close()
    return Verdict(check.sentence, check.group, "pass")


def verdicts(
    checks: Sequence[Check], callers: dict[str, Caller], scale: float = 1.0
) -> AsyncGenerator[Verdict, None]:
    """Each check's verdict, in order, as it comes; those that must be alone come last."""
    return judged(checks, lambda check: judge(check, callers, scale), AT_ONCE)
