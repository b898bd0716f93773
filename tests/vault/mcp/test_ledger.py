"""What must be on disk before a call is sent."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from vault.database import Database
from vault.mcp.journal import Journal
from vault.mcp.ledger import KEPT_DAYS, Ledger
from vault.mcp.pins import Pins
from vault.mcp.refusals import Refusal, Why


@asynccontextmanager
async def opened(
    path: Path, clock: Callable[[], float] = time.time
) -> AsyncIterator[tuple[Database, Ledger]]:
    with closing(Database(path)) as database, ThreadPoolExecutor(1) as executor:
        ledger = Ledger(database, executor, clock)
        yield database, ledger
        await ledger.close()


async def outcome(journal: Journal, call: str, session: str = "s") -> str:
    """What is known of a call that was sent."""
    with pytest.raises(Refusal) as caught:
        await journal.sending(session, call, "a")
    assert caught.value.why is Why.CALL_SENT
    return str(caught.value.data["outcome"])


KILLED = """
import asyncio, os, signal, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from vault.database import Database
from vault.mcp.journal import Journal
from vault.mcp.ledger import KEPT_DAYS, Ledger
async def main():
    journal = Journal(Ledger(Database(Path(sys.argv[1])), ThreadPoolExecutor(1)))
    (await journal.sending("s", "settled", "a")).settled("ok")
    await journal.sending("s", "c1", "a")
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


async def test_a_call_is_written_down_before_it_is_sent_and_survives_the_vault(
    tmp_path: Path,
) -> None:
    path = tmp_path / "vault.db"
    line = [sys.executable, "-c", KILLED, str(path)]
    process = await asyncio.create_subprocess_exec(*line, stderr=subprocess.PIPE)
    _, said = await process.communicate()
    assert process.returncode == -signal.SIGKILL, said
    async with opened(path) as (_, ledger):
        journal = Journal(ledger)
        assert await outcome(journal, "c1") == "unknown"
        assert await outcome(journal, "settled") == "ok"


async def test_a_call_is_one_of_its_session(tmp_path: Path) -> None:
    async with opened(tmp_path / "vault.db") as (_, ledger):
        journal = Journal(ledger)
        await journal.sending("s1", "c1", "a")
        await journal.sending("s2", "c1", "a")
        await journal.sending("s1", "c1", "a", turn=1)
        assert await outcome(journal, "c1", "s1") == "unknown"


async def test_of_many_that_send_one_call_at_a_time_one_does(tmp_path: Path) -> None:
    async with opened(tmp_path / "vault.db") as (_, ledger):
        journal = Journal(ledger)
        answers = await asyncio.gather(
            *(journal.sending("s", "c1", "a") for _ in range(50)), return_exceptions=True
        )
        refused = [each for each in answers if isinstance(each, Refusal)]
        assert len(refused) == 49


async def test_a_call_that_reached_nobody_is_forgotten_and_one_that_was_answered_is_not(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "vault.db") as (_, ledger):
        journal = Journal(ledger)
        (await journal.sending("s", "c1", "a")).unsent()
        second = await journal.sending("s", "c1", "a")
        second.settled("ok")
        second.unsent()
        assert await outcome(journal, "c1") == "ok"


async def test_who_leaves_while_it_is_written_leaves_no_row_but_its_own_alone(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "vault.db") as (_, ledger):
        journal = Journal(ledger)
        leaving = asyncio.create_task(journal.sending("s", "c1", "a"))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        sent = await journal.sending("s", "c1", "a")
        other = asyncio.create_task(journal.sending("s", "c1", "a"))
        await asyncio.sleep(0)
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
        assert await outcome(journal, "c1") == "unknown"
        sent.settled("ok")
        assert await outcome(journal, "c1") == "ok"


async def test_what_cannot_be_written_is_an_error_and_the_next_may_go_well(tmp_path: Path) -> None:
    async with opened(tmp_path / "vault.db") as (database, ledger):
        journal = Journal(ledger)
        await journal.sending("s", "c0", "a")
        pages = int(database.pragma("page_count"))
        database.pragma("max_page_count", pages)
        with pytest.raises(CarpalError) as caught:
            await journal.sending("s", "x" * 20_000, "a")
        assert caught.value.reason is Reason.STORE_FULL
        database.pragma("max_page_count", pages + 100)
        await journal.sending("s", "c1", "a")


async def test_tools_are_held_to_what_they_were_when_a_session_first_saw_them(
    tmp_path: Path,
) -> None:
    for turn in range(2):
        async with opened(tmp_path / "vault.db") as (_, ledger):
            pins = Pins(ledger)
            if not turn:
                assert await pins.changed("s", "a", {"one": "1", "two": "2"}) == set()
            assert await pins.changed("s", "a", {"one": "1"}) == set()
            assert await pins.changed("s", "a", {"one": "x", "two": "2", "new": "3"}) == {"one"}
            assert await pins.changed("s2", "a", {"one": f"y{turn}"}) == (
                {"one"} if turn else set()
            )
            assert await pins.changed("s", "b", {"one": "z"}) == set()
    async with opened(tmp_path / "vault.db") as (_, ledger):
        pins = Pins(ledger)
        await pins.agreed("s", "a", "one", "x")
        assert await pins.changed("s", "a", {"one": "x"}) == set()
        assert await pins.changed("s", "a", {"one": "1"}) == {"one"}


@dataclass
class Days:
    """A clock that a test moves."""

    day: float = 20_000.5

    def __call__(self) -> float:
        return self.day * 86_400


def sessions(database: Database, table: str) -> set[str]:
    rows = database.execute(f"SELECT DISTINCT session FROM {table}")
    return {session for (session,) in rows}


async def test_a_session_that_used_no_server_for_long_is_forgotten_whole_and_no_other(
    tmp_path: Path,
) -> None:
    days = Days()
    tables = ("mcp_calls", "mcp_tools", "mcp_sessions")
    async with opened(tmp_path / "vault.db", days) as (database, ledger):
        journal, pins = Journal(ledger), Pins(ledger)
        for number in range(250):  # more than go in one transaction
            await journal.sending(f"old-{number}", "c1", "a")
        for session in ("lives", "lists"):
            await journal.sending(session, "c1", "a")
            await pins.changed(session, "a", {"one": "1"})
        days.day += KEPT_DAYS
        await journal.sending("lives", "c2", "a")
        await pins.changed("lists", "a", {"one": "1"})
        assert await outcome(journal, "c1", "old-7") == "unknown", "to the last day"
        days.day += 1
        # Who uses a server on the very day on which it would be forgotten is not forgotten.
        assert await outcome(journal, "c1", "lives") == "unknown"
        for number in range(3):
            await journal.sending("new", f"c{number}", "a")
        for table in tables:
            assert sessions(database, table) - {"old-7"} <= {"lives", "lists", "new"}, table
        assert await outcome(journal, "c1", "lists") == "unknown", "calls of long ago too"
        assert await pins.changed("lists", "a", {"one": "2"}) == {"one"}
        assert await outcome(journal, "c1", "old-7") == "unknown"
