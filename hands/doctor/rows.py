"""What the doctor says: rows, and what their verdicts mean."""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from carpal.errors import CarpalError

LIMIT = 30.0
"""Seconds that one check may take, unless it is asked to hold something for longer."""


class Verdict(StrEnum):
    """What a check came to."""

    OK = "ok"
    """Looked at, and as it must be."""
    WARN = "warn"
    """A daemon works all the same, now; read it, and do what it says when you can."""
    FAIL = "fail"
    """A daemon does not work, or not for long, until what the row says is done."""
    SKIP = "skip"
    """Not looked at; the detail says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was looked at."""

    target: str
    """What: a word, and where there are several, which of them."""
    verdict: Verdict
    detail: str
    """What was found, in words."""
    action: str = ""
    """What to do, in words; empty where there is nothing to do."""

    def json(self) -> dict[str, str]:
        """As `--json` gives it."""
        return asdict(self)

    def milder(self, because: str) -> "Row":
        """The same, of something that a daemon can do without because of something else."""
        if self.verdict is not Verdict.FAIL:
            return self
        return replace(self, verdict=Verdict.WARN, detail=f"{self.detail}; {because}")

    def text(self) -> str:
        """As people read it."""
        line = f"{self.verdict:4}  {self.target}: {self.detail}"
        return f"{line}\n      → {self.action}" if self.action else line


def ok(target: str, detail: str) -> Row:
    """All is well."""
    return Row(target, Verdict.OK, detail)


def warn(target: str, detail: str, action: str) -> Row:
    """It works, and there is something to do."""
    return Row(target, Verdict.WARN, detail, action)


def fail(target: str, detail: str, action: str) -> Row:
    """It does not work."""
    return Row(target, Verdict.FAIL, detail, action)


def skip(target: str, why: str, action: str = "") -> Row:
    """It was not looked at."""
    return Row(target, Verdict.SKIP, why, action)


def refused(target: str, error: CarpalError) -> Row:
    """It does not work, in the words of a refusal."""
    return fail(target, error.message, error.action)


def failed(rows: Iterable[Row]) -> bool:
    """Whether any of them is a failure."""
    return any(row.verdict is Verdict.FAIL for row in rows)


async def looked(target: str, check: Awaitable[list[Row]], limit: float = LIMIT) -> list[Row]:
    """What a check came to, in good time and whatever it raises: one that fails itself is a row."""
    try:
        async with asyncio.timeout(limit):
            return await check
    except CarpalError as error:
        return [refused(target, error)]
    except TimeoutError:
        detail = f"nothing came of it within {limit:g} s"
        return [fail(target, detail, "look what it waits for, and run it again")]
    except PermissionError as error:
        detail = f"{error.filename} cannot be looked at: {error.strerror}"
        return [fail(target, detail, "run it as the user that the row `user` names, or as root")]
    except Exception as error:  # noqa: BLE001 - the one top of a check: the others go on
        kind = type(error).__name__
        problem = f"this could not be looked at: {kind}: {str(error)[:200]}"
        return [fail(target, problem, "if the words do not help, this is a bug: report it")]
