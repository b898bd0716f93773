"""The commands `backup` and `restore`: what they say, and that a refusal is one line."""

from contextlib import closing
from pathlib import Path

from sessiond.sqlite.store import SqliteStore
from tests.command import Command
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import Desk, message


async def test_commands_say_what_they_did_and_refuse_in_one_line(
    tmp_path: Path,
) -> None:
    carpal = Command(tmp_path)
    state = tmp_path / "state"
    with closing(SqliteStore(state / "sessiond" / "sessions.db", FakeClock())) as store:
        Desk(store, FakeClock()).create("sesn_1", message("a"))
    to = str(tmp_path / "backup.db")
    done = await carpal("sessiond", "backup", "--state-dir", str(state), "--to", to)
    assert done.code == 0, done.stderr
    assert f"{to}: " in done.stdout
    assert "checked" in done.stdout
    restored = ("sessiond", "restore", "--state-dir", str(state), "--from", to)
    done = await carpal(*restored)
    assert done.code == 2
    assert done.stderr.count("\n") == 1
    done = await carpal(*restored, "--replace")
    assert done.code == 0, done.stderr
    assert "the store that was there is now " in done.stdout
    assert "1 sessions, generation " in done.stdout
    for arguments in (("--to", to), ("--from", to)):
        command = "backup" if arguments[0] == "--to" else "restore"
        refusal = await carpal("sessiond", command, "--store", "postgresql://u@h/d", *arguments)
        assert refusal.code == 2
        assert "by its own tools" in refusal.stderr
        assert refusal.stderr.count("\n") == 1


async def test_a_database_restored_by_its_own_tools_is_fenced(
    tmp_path: Path, database: str
) -> None:
    environ = {"CARPAL_STORE": database}  # not in the arguments, should it hold a password
    first = await Command(tmp_path, environ)("sessiond", "restore")
    assert first.code == 0, first.stderr
    assert "0 sessions, generation " in first.stdout
    second = await Command(tmp_path, environ)("sessiond", "restore")
    generations = [
        int(said.stdout.split("generation ")[1].split(",")[0]) for said in (first, second)
    ]
    assert generations[0] < generations[1]
