"""What is done is in the audit before it is done, or it is not done."""

import asyncio
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from tests.command import ROOT
from tests.faults import Points
from tests.vault.audit.desk import ACTOR, FIRST, Plain, checked, lines, opened
from vault.audit.keys import AuditKeys
from vault.audit.log import AuditLog
from vault.audit.opening import day
from vault.audit.table import AuditTable
from vault.database import Database

WAIT = 20.0


async def test_an_intent_is_on_the_disk_before_the_block_begins(tmp_path: Path) -> None:
    with opened(tmp_path) as audit:
        async with audit.intent("mcp.call", actor=ACTOR, credential="c1", port=443) as record:
            (line,) = lines(tmp_path)
            assert (line["what"], line["action"], line["n"]) == ("intent", "mcp.call", 1)
            record.outcome("ok", bytes=12)
    intent, outcome = lines(tmp_path)
    assert (intent["actor"], intent["credential"], intent["port"]) == (ACTOR, "c1", 443)
    assert (outcome["of"], outcome["status"], outcome["bytes"]) == (1, "ok", 12)
    assert checked(tmp_path).ok
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


async def test_an_exception_and_a_cancellation_are_outcomes(tmp_path: Path) -> None:
    with opened(tmp_path) as audit:
        with pytest.raises(CarpalError):
            async with audit.intent("sign", actor=ACTOR):
                raise refuse(Reason.TOKEN_REFUSED, "words that are not kept")
        with pytest.raises(ZeroDivisionError), audit.intent_now("sign", actor=ACTOR):
            _ = 1 // 0
        begun = asyncio.Event()

        async def forever() -> None:
            async with audit.intent("sign", actor=ACTOR):
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(forever())
        await asyncio.wait_for(begun.wait(), WAIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    ends = [line for line in lines(tmp_path) if line["what"] == "outcome"]
    assert [(each["status"], each.get("reason")) for each in ends] == [
        ("error", "TOKEN_REFUSED"),
        ("error", "INTERNAL"),
        ("cancelled", None),
    ]
    assert "words that are not kept" not in (tmp_path / "audit.log").read_text()


async def test_callers_that_leave_while_their_intent_is_written_stop_no_other(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as audit:

        async def one() -> None:
            async with audit.intent("mcp.call", actor=ACTOR):
                pass

        for _ in range(50):
            tasks = [asyncio.create_task(one()) for _ in range(20)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), WAIT)
            assert ended[1::2] == [None] * 10
    assert checked(tmp_path).ok


async def test_many_at_once_share_the_wait_for_the_disk(tmp_path: Path) -> None:
    with opened(tmp_path) as audit:

        async def one() -> None:
            async with audit.intent("mcp.call", actor=ACTOR):
                pass

        began = time.monotonic()
        await asyncio.gather(*(one() for _ in range(2_000)))
        assert time.monotonic() - began < WAIT
    found = lines(tmp_path)
    assert [line["n"] for line in found] == list(range(1, 4_001))
    assert checked(tmp_path).ok


def test_v32_a_request_is_denied_while_the_audit_cannot_be_written(tmp_path: Path) -> None:
    """A file may not grow: as on a full disk, for root too. It recovers, and says what it missed"""
    code = f"""
import resource, signal
from pathlib import Path
from carpal.errors import CarpalError
from tests.vault.audit.desk import opened
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path({str(tmp_path)!r})
with opened(folder) as audit:
    with audit.intent_now("first", actor="a"):
        pass
    audit.flush()
    size = (folder / "audit.log").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
    for _ in range(2):
        try:
            with audit.intent_now("second", actor="a"):
                print("DECRYPTED")
        except CarpalError as error:
            print(error.reason)
    audit.denied("third", "unknown_grant", actor="b")
    assert not audit.flush() and audit.problem
    assert (folder / "audit.log").stat().st_size == size
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    with audit.intent_now("fourth", actor="a"):
        print("done")
"""
    done = run(code)
    assert done.stdout.split() == ["AUDIT_NOT_WRITTEN", "AUDIT_NOT_WRITTEN", "done"], done.stderr
    found = lines(tmp_path)
    said = [(line["what"], line.get("action")) for line in found]
    assert ("denied", "third") in said
    assert ("intent", "second") not in said
    assert [line["refused"] for line in found if line["what"] == "resumed"] == [2]
    assert checked(tmp_path).ok


@pytest.mark.parametrize("point", ["vault.audit.before_written", "vault.audit.written"])
def test_a_kill_beside_the_write_leaves_a_chain_that_goes_on(tmp_path: Path, point: str) -> None:
    points = Points(tmp_path / "points")
    folder = tmp_path / "audit"
    with opened(folder) as audit:
        audit.written("first")
    points.arm(point, "kill")
    done = run(
        f"""
from pathlib import Path
from tests.vault.audit.desk import opened
with opened(Path({str(folder)!r})) as audit:
    audit.written("second")
    print("told")
""",
        points.environ,
    )
    assert (done.returncode, done.stdout) == (-9, "")
    with opened(folder) as audit:
        audit.written("third")
    there = [line.get("action") for line in lines(folder)]
    assert there == ["first", *(["second"] if point.endswith(".written") else []), "third"]
    assert checked(folder).ok


def test_a_line_that_a_crash_cut_short_is_said_and_left_out(tmp_path: Path) -> None:
    with opened(tmp_path) as audit:
        audit.written("first")
    with (tmp_path / "audit.log").open("ab") as file:
        file.write(b'{"n":2,"time"')
    with opened(tmp_path) as audit:
        audit.written("second")
    assert [line["what"] for line in lines(tmp_path)] == ["event", "torn", "event"]
    verdict = checked(tmp_path)
    assert verdict.ok
    assert "cut short by a crash" in verdict.noted[0]


def test_two_processes_write_one_chain(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from tests.vault.audit.desk import opened
with opened(Path({str(tmp_path)!r})) as audit:
    for _ in range(50):
        audit.written("theirs")
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as other:
        with opened(tmp_path) as audit:
            for _ in range(50):
                audit.written("ours")
        assert other.wait(WAIT) == 0
    assert len(lines(tmp_path)) == 100
    assert checked(tmp_path).ok


def test_what_has_no_name_in_the_audit_cannot_be_written(tmp_path: Path) -> None:
    with opened(tmp_path) as audit:
        with pytest.raises(ValueError, match="authorization"):
            audit.event("x", authorization="Bearer secret")
        with pytest.raises(ValueError, match="must be"):
            audit.event("x", target=b"bytes")  # type: ignore[arg-type]
        audit.event("x", target="a\nb\x00" + "c" * 10_000)
    (line,) = lines(tmp_path)
    assert line["target"].startswith("a�b�c")
    assert len(line["target"]) == 512


def test_a_full_file_is_followed_by_another_and_all_are_kept(tmp_path: Path) -> None:
    database = Database(tmp_path / "audit.db")
    keys = AuditKeys(database, Plain(), day)
    keys.start(FIRST)
    log = AuditLog(tmp_path, keys, AuditTable(database), size=2_000)
    for number in range(40):
        (head,) = log.append([("event", {"action": f"a{number}"})])
    log.let_go()
    database.close()
    assert len(log.files.older()) > 2
    verdict = checked(tmp_path)
    assert verdict.ok
    assert (verdict.head, verdict.lines) == (head, head.number)


def run(code: str, environ: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )


async def test_what_is_done_one_after_the_other_waits_for_the_disk_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How it went goes with the intent of the next; the last by itself, in a moment."""
    waits, fsync = [], os.fsync

    def counted(handle: int) -> None:
        waits.append(handle)
        fsync(handle)

    with opened(tmp_path) as audit:
        audit.written("first")
        monkeypatch.setattr(os, "fsync", counted)
        # As fast as it goes: a machine that stands still for a tenth of a second writes once more.
        for _ in range(20):
            async with audit.intent("mcp.call", actor=ACTOR):
                pass
        assert 20 <= len(waits) <= 35
        ends = time.monotonic() + WAIT
        while lines(tmp_path)[-1]["what"] != "outcome":
            assert time.monotonic() < ends
            time.sleep(0.01)  # noqa: ASYNC251 - nothing else is to happen
    assert checked(tmp_path).lines == 41


async def test_who_waits_for_a_line_does_not_wait_for_the_table_which_has_it_in_the_end(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as audit, closing(Database(tmp_path / "audit.db")) as other:
        audit.written("first")
        audit.flush()
        with other.transaction():  # nobody else writes meanwhile
            async with asyncio.timeout(WAIT), audit.intent("mcp.call", actor=ACTOR):
                pass
        assert audit.flush()
        assert other.one("SELECT max(number) FROM audit") == (3,)
    assert checked(tmp_path).ok
