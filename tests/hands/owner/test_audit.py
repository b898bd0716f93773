"""The audit: chained, whole after whatever death, and no step taken that it does not have."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from carpal.audit_chain import Head
from carpal.audit_files import AuditFiles
from carpal.errors import CarpalError
from carpal.status import Reason
from hands.owner.audit import Audit


@pytest.fixture
def audit(tmp_path: Path) -> Iterator[Audit]:
    found = Audit(tmp_path)
    yield found
    found.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def said(folder: Path) -> list[dict[str, object]]:
    """All records."""
    return [json.loads(text) for _, text in AuditFiles(folder).lines()]


def whats(folder: Path) -> list[object]:
    return [record["what"] for record in said(folder)]


def problems(folder: Path, noted: Head | None = None) -> list[str]:
    return [f"{each.where}: {each.what}" for each in AuditFiles(folder).verify(noted)[1]]


def filled(folder: Path, lines: int = 9) -> Path:
    audit = Audit(folder)
    for number in range(lines):
        audit.write("call", call=f"c{number}")
    audit.close()
    return folder / "audit.log"


def test_each_line_is_json_with_its_number_and_time_and_the_chain_holds(audit: Audit) -> None:
    audit.write("call", hand="h", call="c", tool="bash")
    audit.note("ended", call="c", output_bytes=3)
    audit.close()
    first, second = said(audit.files.folder)
    assert (first["n"], first["what"], first["tool"]) == (1, "call", "bash")
    assert (second["n"], second["what"], second["output_bytes"]) == (2, "ended", 3)
    assert problems(audit.files.folder) == []
    assert audit.files.log.stat().st_mode & 0o777 == 0o600


def test_another_daemon_goes_on_with_the_chain(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    filled(tmp_path, 3)
    assert [each["n"] for each in said(tmp_path)] == [1, 2, 3, 4, 5, 6]
    assert problems(tmp_path) == []


@pytest.mark.parametrize("at", range(9))
@pytest.mark.parametrize("how", ["cut", "changed", "moved", "repeated"])
def test_verify_finds_any_line_that_is_cut_changed_moved_or_repeated(
    tmp_path: Path, how: str, at: int
) -> None:
    log = filled(tmp_path)
    lines = log.read_bytes().splitlines(keepends=True)
    if how == "cut":
        del lines[at]
    elif how == "changed":
        lines[at] = lines[at].replace(b'"call":"c', b'"call":"d')
    elif how == "moved":
        lines.insert((at + 3) % 9, lines.pop(at))
    else:
        lines.insert(at, lines[at])
    log.write_bytes(b"".join(lines))
    assert problems(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.data())
def test_verify_finds_any_byte_that_is_changed(tmp_path: Path, draw: st.DataObject) -> None:
    log = tmp_path / "audit.log"
    whole = log.read_bytes() if (tmp_path / "whole").exists() else filled(tmp_path).read_bytes()
    if not (tmp_path / "whole").exists():
        (tmp_path / "whole").write_bytes(whole)
    whole = (tmp_path / "whole").read_bytes()
    at = draw.draw(st.integers(0, len(whole) - 1))
    byte = draw.draw(st.integers(0, 255).filter(lambda each: each != whole[at]))
    log.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
    assert problems(tmp_path)
    log.write_bytes(whole)
    assert problems(tmp_path) == []


@pytest.mark.parametrize("left", [0, 1, 8])
def test_lines_cut_off_the_end_show_against_the_head_and_the_next_daemon_writes_it_down(
    tmp_path: Path, left: int
) -> None:
    log = filled(tmp_path)
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:left]))
    assert any("it was cut" in each for each in problems(tmp_path))
    filled(tmp_path, 1)
    assert whats(tmp_path)[left] == "cut"
    assert any("were cut away" in each for each in problems(tmp_path))


def test_a_log_that_was_written_anew_shows_against_a_head_that_was_noted_elsewhere(
    tmp_path: Path,
) -> None:
    filled(tmp_path)
    noted = AuditFiles(tmp_path).noted().head
    for name in ("audit.log", "audit.head"):
        (tmp_path / name).unlink()
    audit = Audit(tmp_path)
    audit.write("call", call="another")  # than the first was, whatever the clock says
    audit.close()
    filled(tmp_path, 11)
    assert problems(tmp_path) == []
    assert problems(tmp_path, noted) == ["the head that was given: has another hash for line 9"]


@pytest.mark.parametrize("torn", [b"{", b'{"n":4,"time":"2026', b"\xff\x00" * 99])
def test_after_a_crash_in_the_middle_of_a_line_it_goes_on_and_says_so(
    tmp_path: Path, torn: bytes
) -> None:
    log = filled(tmp_path, 3)
    with log.open("ab") as file:
        file.write(torn)
    filled(tmp_path, 1)
    assert whats(tmp_path) == ["call", "call", "call", "torn", "call"]
    assert said(tmp_path)[3]["bytes"] == len(torn)
    verifier, found = AuditFiles(tmp_path).verify()
    assert found == []
    assert "cut short by a crash" in verifier.noted[0]


def test_a_crash_between_a_line_and_the_note_of_the_head_is_no_fault(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    head = (tmp_path / "audit.head").read_bytes()
    filled(tmp_path, 1)
    (tmp_path / "audit.head").write_bytes(head)
    filled(tmp_path, 1)
    assert whats(tmp_path) == ["call"] * 5
    assert problems(tmp_path) == []


def test_files_turn_by_size_and_the_chain_goes_on_across_them(tmp_path: Path) -> None:
    audit = Audit(tmp_path, size=2000, files=3)
    for number in range(100):
        audit.write("call", call=f"c{number}")
    audit.close()
    assert len(audit.files.older()) == 3
    verifier, found = audit.files.verify()
    assert found == []
    assert verifier.noted == [
        f"begins with line {said(tmp_path)[0]['n']}: older files were removed"
    ]
    assert said(tmp_path)[-1]["call"] == "c99"
    audit.files.older()[0].unlink()
    assert any("lines are missing" in each for each in problems(tmp_path))


def test_a_file_in_the_middle_that_is_gone_is_found(tmp_path: Path) -> None:
    audit = Audit(tmp_path, size=2000, files=0)
    for number in range(100):
        audit.write("call", call=f"c{number}")
    audit.close()
    assert problems(tmp_path) == []
    audit.files.older()[2].unlink()
    assert any("lines are missing" in each for each in problems(tmp_path))


def test_a_daemon_killed_in_the_middle_of_a_turn_goes_on(tmp_path: Path) -> None:
    log = filled(tmp_path, 5)
    log.rename(AuditFiles(tmp_path).older_name(1))
    filled(tmp_path, 2)
    assert whats(tmp_path)[5:] == ["continued", "call", "call"]
    assert problems(tmp_path) == []


def test_a_file_that_was_moved_away_while_it_is_written_is_noticed(audit: Audit) -> None:
    audit.write("call", call="c0")
    audit.files.log.rename(audit.files.folder / "elsewhere")
    audit.write("call", call="c1")
    assert any("were cut away" in each for each in problems(audit.files.folder))


def refused(audit: Audit, **facts: str) -> CarpalError:
    with pytest.raises(CarpalError) as caught:
        audit.write("call", **facts)
    assert caught.value.reason is Reason.AUDIT_NOT_WRITTEN
    return caught.value


def write_on(audit: Audit) -> None:
    for number in range(10_000):
        audit.write("call", call=f"c{number}")


def test_on_a_full_disk_a_step_is_refused_and_with_room_it_recovers_by_itself(
    small_disk: Path,
) -> None:
    audit = Audit(small_disk)
    audit.write("call", call="before")
    (small_disk / "filler").write_bytes(b"x" * 48 * 1024)
    with pytest.raises(CarpalError) as caught:
        write_on(audit)
    assert caught.value.reason is Reason.AUDIT_NOT_WRITTEN
    assert "No space" in caught.value.message or "no room" in caught.value.message
    audit.note("ended", call="before")
    refused(audit, call="never")
    assert problems(small_disk) == []
    (small_disk / "filler").unlink()
    audit.write("call", call="after")
    audit.close()
    assert problems(small_disk) == []
    last = said(small_disk)[-3:]
    assert [each["what"] for each in last] == ["resumed", "ended", "call"]
    assert last[0]["refused"] == 2
    assert "never" not in json.dumps(said(small_disk))


def test_in_a_folder_that_is_read_only_a_step_is_refused_and_it_recovers_by_itself(
    small_disk: Path,
) -> None:
    audit = Audit(small_disk)
    audit.write("call", call="before")
    audit.close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert "Read-only file system" in refused(audit, call="never").message
    refused(audit, call="never")
    assert audit.problem
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    audit.write("call", call="after")
    audit.close()
    assert whats(small_disk) == ["call", "resumed", "call"]
    assert (audit.problem, problems(small_disk)) == ("", [])


def test_a_link_in_the_place_of_the_file_is_not_followed(audit: Audit) -> None:
    audit.files.log.symlink_to(audit.files.folder / "other")
    refused(audit, call="never")
    assert not (audit.files.folder / "other").exists()


def test_syslog_gets_a_copy_of_each_line_and_holds_up_nothing_when_it_is_away(
    tmp_path: Path,
) -> None:
    there = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    there.bind(str(tmp_path / "log"))
    audit = Audit(tmp_path, syslog=str(tmp_path / "log"))
    audit.write("call", call="c0")
    got = there.recv(10_000)
    assert got.startswith(b"<86>carpal-hand: {")
    assert got.partition(b": ")[2] == audit.files.log.read_bytes().rstrip()
    there.close()
    (tmp_path / "log").unlink()
    audit.write("call", call="c1")
    audit.close()
    assert problems(tmp_path) == []


async def test_what_ended_is_written_a_moment_later_many_in_one_write(audit: Audit) -> None:
    audit.write("call", call="c0")
    size = audit.files.log.stat().st_size
    for number in range(50):
        audit.note("ended", call=f"c{number}")
    assert audit.files.log.stat().st_size == size
    audit.write("call", call="c50")
    assert whats(audit.files.folder) == ["call", *["ended"] * 50, "call"]


def test_of_a_text_that_others_chose_a_line_holds_so_much(audit: Audit) -> None:
    audit.write("entered", operator="o" * 1_000_000)
    assert audit.files.log.stat().st_size < 2000
    assert problems(audit.files.folder) == []


@pytest.mark.parametrize("size", [100, 70_000, 300_000])
def test_of_zeros_that_a_power_cut_left_nothing_stays_and_what_follows_is_whole(
    tmp_path: Path, size: int
) -> None:
    audit = Audit(tmp_path)
    audit.write("call", call="c0")
    audit.close()
    with audit.files.log.open("ab") as file:
        file.write(bytes(size))
    again = Audit(tmp_path)
    again.write("call", call="c1")
    again.close()
    assert whats(tmp_path) == ["call", "torn", "call"]
    assert problems(tmp_path) == []


@pytest.mark.parametrize("name", ["audit.head", "audit-000000000009.log"])
def test_a_pipe_in_the_place_of_a_file_holds_nothing_up(tmp_path: Path, name: str) -> None:
    audit = Audit(tmp_path)
    audit.write("call", call="c0")
    audit.close()
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    again = Audit(tmp_path)
    again.write("call", call="c1")
    again.close()
    assert whats(tmp_path) == ["call", "call"]
    assert problems(tmp_path) == []
