"""What a check is: a sentence of the contract, and a coroutine that tries to make it false.

The first paragraph of its docstring is its name. It returns when the sentence
is true of the hand type, and raises `Failed` when not. It is made only of
types that have its capability, and those it needs beside that.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from hands.conformance.bench import Bench

Run = Callable[[Bench], Awaitable[None]]

CONTRACT = "contract"
"""What every type has."""


class Verdict(NamedTuple):
    """What came of one check."""

    check: str
    capability: str
    verdict: str
    """`pass`, `fail` or `skipped`."""
    detail: str = ""
    """What was otherwise, or why it was skipped."""
    change: str = ""
    """Of one that failed, what the type's author must change."""


@dataclass(frozen=True)
class Check:
    """One sentence of the contract, and the coroutine that tries to make it false."""

    capability: str
    cases: tuple[str, ...]
    """Ids of what it was learned from."""
    name: str
    """Of the function, unique."""
    sentence: str
    run: Run
    needs: tuple[str, ...]
    """Further capabilities."""
    daemons: bool
    """A daemon sees to it, before a server on a socket hears of it: asked only of one that is as a
    daemon is, which it says by the capability `claim`."""
    alone: bool
    """It measures time or memory, or stops the server: made when no other is."""


@dataclass
class Group:
    """Checks of one capability."""

    capability: str
    checks: list[Check] = field(default_factory=list)
    needs: tuple[str, ...] = ()
    """Further capabilities, of each of them."""

    def __call__(
        self,
        *cases: str,
        needs: tuple[str, ...] = (),
        daemons: bool = False,
        alone: bool = False,
    ) -> Callable[[Run], Run]:
        """Add a check."""

        def add(run: Run) -> Run:
            paragraph = (run.__doc__ or "").split("\n\n")[0]
            sentence = " ".join(paragraph.split()).removesuffix(".")
            name = getattr(run, "__name__", "")
            more = (*self.needs, *needs)
            check = Check(self.capability, cases, name, sentence, run, more, daemons, alone)
            self.checks.append(check)
            return run

        return add
