"""What was erased is nowhere in SQLite's files: not in the file, not in its write-ahead log."""

from pathlib import Path

import pytest

from sessiond.parts import running
from sessiond.rules.sessions import NewSession, create
from sessiond.sqlite import checkpoint as sqlite_checkpoint
from sessiond.sqlite.store import SqliteStore
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import ADA, SELF, Desk, message
from tests.sessiond.keeping import delete, owes, redact, sweep
from tests.sessiond.stores import OpenStore
from tests.sessiond.test_deadlines import NotClosed

CANARY = b"the-canary-sings-at-dawn"


@pytest.fixture
def open_store(tmp_path: Path) -> OpenStore:
    """Of SQLite's files alone."""
    return lambda clock: SqliteStore(tmp_path / "sessions.db", clock)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for the next try."""
    monkeypatch.setattr(sqlite_checkpoint, "ERASE_AGAIN", 0.0)


def anywhere(folder: Path, needle: bytes = CANARY) -> list[str]:
    """Names of the store's files that hold these bytes."""
    return [
        path.name for path in folder.iterdir() if path.is_file() and needle in path.read_bytes()
    ]


@pytest.mark.parametrize("size", [0, 3000, 300_000])
def test_its_bytes_are_nowhere_on_the_disk_of_sqlite(
    desk: Desk, store: SqliteStore, tmp_path: Path, size: int
) -> None:
    store.maintain()
    data = CANARY * (size // len(CANARY) + 1)
    desk.create("sesn_1", *(message(f"e{n}", b"x" * 700) for n in range(50)))
    desk.append("sesn_1", message("b", data))
    desk.append("sesn_1", *(message(f"f{n}", b"x" * 700) for n in range(50)))
    assert anywhere(tmp_path)
    redact(desk, "sesn_1", 51)
    assert owes(store)
    store.maintain()
    assert not owes(store)
    assert anywhere(tmp_path) == []
    assert len(desk.log()) == 101


def test_the_bytes_of_a_deleted_session_are_nowhere_on_the_disk_of_sqlite(
    desk: Desk, store: SqliteStore, tmp_path: Path
) -> None:
    desk.create("keep", *(message(f"k{n}", b"x" * 700) for n in range(50)))
    for n in range(50):
        desk.append("keep", message(f"l{n}", b"y" * 700))
        desk.create(f"other{n}")
        if n == 0:
            labels = {"canary": CANARY.decode()}
            new = NewSession(
                "go", "default", CANARY.decode(), labels, labels, (), wake=False, request=b"r"
            )
            desk.run(lambda tx, new=new: create(tx, ADA, new))  # type: ignore[misc]
        desk.append("go", message(f"h{n}", CANARY * 40))
    redact(desk, "go", 7)
    store.maintain()
    assert anywhere(tmp_path)
    delete(desk, "go")
    sweep(desk)
    store.maintain()
    assert anywhere(tmp_path) == []
    assert len(desk.log("keep")) == 100


def test_a_long_read_puts_the_erasing_off_and_no_more(
    desk: Desk, store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.create("sesn_1")
    desk.append("sesn_1", message("a"), message("b", CANARY))
    monkeypatch.setattr(sqlite_checkpoint, "ERASE_AGAIN", 3600.0)
    reader = store.reader()
    with reader.snapshot():
        assert reader.session("sesn_1") is not None
        redact(desk, "sesn_1", 2)
        store.maintain()
        assert owes(store)
        desk.append("sesn_1", message("d"))  # nobody waits for the read
    reader.close()
    store.maintain()
    assert owes(store)  # not tried again at once
    monkeypatch.setattr(sqlite_checkpoint, "ERASE_AGAIN", 0.0)
    store.maintain()
    assert not owes(store)
    assert anywhere(tmp_path) == []


async def test_bytes_that_a_read_kept_on_the_disk_go_once_it_ends(desk: Desk) -> None:
    async with running(NotClosed(desk.store), SELF) as parts:  # type: ignore[arg-type]
        await parts.sweeper.act()
        assert not owes(desk.store)
        desk.create("sesn_1", message("a"))
        reader = desk.store.reader()
        with reader.snapshot():
            assert reader.session("sesn_1") is not None
            delete(desk, "sesn_1")
            assert not await parts.sweeper.act()
            assert owes(desk.store)
        reader.close()
        assert await parts.sweeper.act()
        assert not owes(desk.store)


def test_a_crash_before_the_log_was_cut_off_is_made_good_at_the_next_start(
    desk: Desk, store: SqliteStore, tmp_path: Path, clock: FakeClock
) -> None:
    desk.create("sesn_1")
    desk.append("sesn_1", message("a", CANARY))
    redact(desk, "sesn_1", 1)
    died = tmp_path / "died"
    died.mkdir()
    for path in tmp_path.glob("sessions.db*"):
        (died / path.name).write_bytes(path.read_bytes())
    assert anywhere(died)
    found = SqliteStore(died / "sessions.db", clock)
    Desk(found, clock).append("sesn_1", message("b"))
    found.maintain()
    assert anywhere(died) == []
    found.close()
