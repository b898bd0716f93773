"""`carpal hand diag`: one file, whatever is wrong with the machine, that says what is in it."""

import asyncio
import json
import os
import re
import stat
import zipfile
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.process import interpreter
from carpal.status import Reason
from hands.diag import log_lines, log_source
from hands.diag.bundle import Member, write
from hands.diag.known import Known
from hands.enroll import Links, links_path
from tests.command import SECONDS, Command
from tests.hands.doctor.conftest import Lone
from tests.pki import Pki

MEMBERS = (
    *("about.txt", "doctor.jsonl", "settings.json", "status.json", "metrics.txt"),
    *("journal.json", "log.txt", "machine.json", "versions.json"),
)


async def test_it_says_what_it_wrote_and_what_is_in_it(tmp_path: Path, pki: Pki) -> None:
    lone = Lone(pki, tmp_path / "state")
    async with lone.daemon():
        command, out = Command(tmp_path, {"CARPAL_SANDBOX": "off"}), tmp_path / "d.zip"
        options = ("--output", str(out), "--json", "--state-dir", str(lone.state))
        ran = await command("hand", "diag", *options)
    assert ran.code == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert (told["file"], told["bytes"]) == (str(out), out.stat().st_size)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    with zipfile.ZipFile(out) as archive:
        held = {name: archive.read(name).decode() for name in archive.namelist()}
    assert tuple(held) == MEMBERS
    assert set(told) == {"file", "bytes", "members"}
    assert all(set(each) == {"name", "bytes", "holds"} for each in told["members"])
    assert {each["name"]: each["bytes"] for each in told["members"]} == {
        name: len(text.encode()) for name, text in held.items()
    }
    rows = [json.loads(line) for line in held["doctor.jsonl"].splitlines()]
    assert {"settings", "certificate", "next"} <= {row["target"] for row in rows}
    assert json.loads(held["status.json"])["state"] == "not linked"
    assert "carpal_hand_linked 0" in held["metrics.txt"]
    assert json.loads(held["journal.json"])["calls"] == {}
    assert json.loads(held["settings.json"])["sandbox"] == "off"
    assert json.loads(held["versions.json"])["contract"]
    about = json.loads(held["machine.json"])
    assert about["kernel"] == os.uname().release
    assert about["memory"]
    assert about["state_disk"]["free"] > 0
    assert "cgroups" in about
    for name in MEMBERS[1:]:
        assert name in held["about.txt"]
    ran = await command("hand", "diag", *options)
    assert ran.code == 2
    assert "is there already" in ran.stderr


async def test_without_a_name_it_is_one_of_its_time_in_the_current_folder(tmp_path: Path) -> None:
    command = Command(tmp_path, {"CARPAL_SANDBOX": "off"})
    (tmp_path / "here").mkdir()
    program = (*interpreter(), "hand", "diag", "--state-dir", str(tmp_path / "state"))
    process = await asyncio.create_subprocess_exec(
        *program, cwd=tmp_path / "here", env=command.environ, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(SECONDS):
        said, _ = await process.communicate()
    (made,) = (tmp_path / "here").iterdir()
    assert re.fullmatch(r"carpal-hand-\d{8}T\d{6}Z\.zip", made.name)
    lines = said.decode().splitlines()
    assert f"wrote {made.name}" in lines[0]
    for name in MEMBERS:
        assert sum(name in line for line in lines[1:]) == 1, said.decode()


async def test_of_proxy_and_labels_it_is_said_that_they_are_set_and_of_variables_their_names(
    tmp_path: Path,
) -> None:
    given, out = tmp_path / "hand.toml", tmp_path / "d.zip"
    given.write_text('hands_max = 7\nproxy = "http://p:1"\nlabels = {rack = "seven"}\n')
    environ = {"CARPAL_SANDBOX": "off", "HTTPS_PROXY": "http://p:1", "OTHERS": "x"}
    given_, where = ("--config", str(given)), ("--state-dir", str(tmp_path / "state"))
    ran = await Command(tmp_path, environ)("hand", "diag", "--output", str(out), *given_, *where)
    assert ran.code == 0, ran.stderr
    with zipfile.ZipFile(out) as archive:
        told = json.loads(archive.read("settings.json"))
    assert (told["hands_max"], told["proxy"], told["labels"]) == (7, "(set)", {"rack": "(set)"})
    assert {"CARPAL_SANDBOX", "HTTPS_PROXY"} <= set(told["variables"])
    assert "OTHERS" not in told["variables"]


async def test_a_machine_on_which_all_is_wrong_has_one_too(tmp_path: Path) -> None:
    state, given = tmp_path / "state", tmp_path / "hand.toml"
    given.write_text("what is this")
    (state / "hand" / "identity").mkdir(parents=True)
    (state / "hand" / "identity" / "key.pem").write_bytes(os.urandom(900))
    (state / "hand" / "journal.db").write_bytes(os.urandom(9000))
    links = links_path(state / "hand" / "identity")
    Links((), "").save(links)
    links.write_text("{")
    out = tmp_path / "d.zip"
    command = Command(tmp_path, {"CARPAL_SANDBOX": "off"})
    options = ("--config", str(given), "--state-dir", str(state))
    ran = await command("hand", "diag", "--output", str(out), *options)
    assert ran.code == 0, ran.stderr
    assert f"wrote {out}" in ran.stdout
    with zipfile.ZipFile(out) as archive:
        assert tuple(archive.namelist()) == MEMBERS
        assert "left_out" in archive.read("journal.json").decode()
        assert "not TOML" in archive.read("doctor.jsonl").decode()


def test_a_secret_that_was_missed_is_never_written(tmp_path: Path) -> None:
    missed = [Member("a.txt", "", b"and it is s3cret!")]
    with pytest.raises(CarpalError) as raised:
        write(tmp_path / "d.zip", missed, Known([b"s3cret!"]))
    assert raised.value.reason is Reason.INTERNAL
    assert "s3cret" not in str(raised.value)
    assert not (tmp_path / "d.zip").exists()


def test_of_a_long_log_the_last_lines_are_taken(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(500_000)))
    found = log_source.recent(log)
    assert len(found.lines) == log_source.LINES_MAX == 2_000
    assert found.lines[-1] == "line 499999"
    log.write_text("".join(f"{number:1023}\n" for number in range(1_500)))
    assert [int(line) for line in log_source.recent(log).lines] == [*range(1_500 - 1_024, 1_500)]


def test_without_a_file_it_is_what_systemd_kept_of_the_unit_or_why_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no journalctl" in log_source.recent(None).source
    program = tmp_path / "journalctl"
    for does, source, lines in (
        ("exit 1", "the journal has none of carpal-hand.service", []),
        ('echo "$2"; echo two', "journalctl -u carpal-hand.service", [log_source.UNIT, "two"]),
    ):
        program.write_text(f"#!/bin/sh\n{does}\n")
        program.chmod(0o755)
        found = log_source.recent(None)
        assert (source in found.source, found.lines) == (True, lines)
    monkeypatch.setattr(log_source, "_LIMIT", 0.2)
    program.write_text("#!/bin/sh\nexec /bin/sleep 30\n")
    assert "TimeoutExpired" in log_source.recent(None).source


def test_lines_that_are_not_ours_are_counted() -> None:
    ours = "2026-11-30T12:00:00Z [info ] linked [hands.daemon] brain=b"
    lines = list(log_lines.kept([ours, "who knows", "", "what else"], lambda text: text))
    assert lines == [
        "2026-11-30T12:00:00Z info linked [hands.daemon] brain='b'",
        "(2 lines that are not this program's own words were left out)",
    ]
