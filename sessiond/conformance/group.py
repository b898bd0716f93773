"""What a check is: a sentence of the contract, and a coroutine that tries to make it false.

The first paragraph of its docstring is its name. It returns when the sentence
is true of the service, and raises `Failed` when not.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from sessiond.conformance.bench import Bench

Run = Callable[[Bench], Awaitable[None]]


class Verdict(NamedTuple):
    """What came of one check."""

    check: str
    group: str
    verdict: str
    """`pass`, `fail` or `skipped`."""
    detail: str = ""


@dataclass(frozen=True)
class Check:
    """One sentence of the contract, and the coroutine that tries to make it false."""

    group: str
    name: str
    """Of the function, unique in its group."""
    sentence: str
    run: Run
    alone: bool
    """It touches what checks share, and is run when no other is."""


@dataclass
class Group:
    """Checks about one thing; `@group` adds one."""

    name: str
    checks: list[Check] = field(default_factory=list)

    def __call__(self, run: Run) -> Run:
        """Add a check that may run beside others."""
        return self._add(run, alone=False)

    def alone(self, run: Run) -> Run:
        """Add a check that must run when no other does."""
        return self._add(run, alone=True)

    def _add(self, run: Run, *, alone: bool) -> Run:
        paragraph = (run.__doc__ or "").split("\n\n")[0]
        sentence = " ".join(paragraph.split()).removesuffix(".")
        name = getattr(run, "__name__", "")
        self.checks.append(Check(self.name, name, sentence, run, alone))
        return run
