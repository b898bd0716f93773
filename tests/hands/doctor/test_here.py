"""What is wrong on the machine itself is found, and what the row says cures it."""

import contextlib
import json
import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carpal.audit_files import AuditFiles
from carpal.status import Reason
from hands import types
from hands.app import HandConfig
from hands.contract import Description, Health
from hands.doctor import machine
from hands.doctor.journal import summary
from hands.doctor.rows import Verdict
from hands.doctor.settings import read
from hands.doctor.subject import Subject
from hands.isolation import disk
from hands.journal import Journal
from hands.owner.audit import Audit
from tests.hands.doctor.conftest import Lone, Patient, Seen, follow
from tests.hands.hand_server import Least, serving
from tests.hands.local.test_status import until as linked
from tests.hands.place import until
from tests.pace import AT_ONCE

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away, or mount")


async def test_a_row_without_a_sandbox_is_a_sentence_and_says_once_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    subject = Subject(HandConfig(state_dir=tmp_path, sandbox="required"))
    (row,) = await machine.sandbox(subject)
    assert row.detail == (
        "there are no process hands, since none can be made: bubblewrap is not installed"
    )
    assert row.action == "install it: apt-get install bubblewrap"


async def test_a_machine_that_is_as_it_must_be_has_no_failure_and_is_not_changed(
    patient: Patient,
) -> None:
    before = _state(patient.state)
    rows = await patient.rows()
    assert not [row.text() for row in rows.values() if row.verdict is Verdict.FAIL]
    address = patient.brain.address
    for target in ("files", "identity", "certificate", "clock", "standing", "version"):
        assert rows[target].verdict is Verdict.OK, rows[target].text()
    for step in ("proxy", "dns", "tcp", "tls", "mtls"):
        target = f"{step} {address if step != 'dns' else '127.0.0.1'}"
        assert rows[target].verdict is Verdict.OK, rows[target].text()
    assert rows["daemon"].verdict is Verdict.WARN
    assert "carpal hand run" in rows["next"].action
    assert _state(patient.state) == before


async def test_beside_a_daemon_that_runs_it_says_that_it_is_linked_and_takes_no_link_from_it(
    patient: Patient,
) -> None:
    async with patient.daemon():
        link = await patient.brain.link()
        await linked(patient, state="linked")
        await patient.cured("daemon")
        assert "nothing" in (await patient.rows())["next"].detail
        await link.provision("h")
    assert patient.brain.links.empty()


async def test_a_file_that_others_may_read_is_closed_by_the_command_it_gives(
    lone: Lone,
) -> None:
    lone.files.identity.key.chmod(0o644)
    row = await lone.fails("files", "key.pem", "0644")
    assert (await lone.rows())["identity"].verdict is Verdict.FAIL
    follow(row)
    await lone.cured("files")
    lone.files.folder.chmod(0o755)
    follow(await lone.fails("files", "0755"))
    await lone.cured("files")


@needs_root
async def test_a_file_of_another_user_is_given_back_by_the_command_it_gives(
    lone: Lone,
) -> None:
    os.chown(lone.files.identity.certificate, 12345, 12345)
    follow(await lone.fails("files", "cert.pem is 12345's"))
    await lone.cured("files")


async def test_files_that_are_not_of_one_identity_are_told_and_enrolling_anew_cures_it(
    patient: Patient,
) -> None:
    patient.has_identity_of(timedelta())
    patient.files.identity.certificate.write_bytes(b"what a full disk left")
    await patient.fails("identity", "not a PEM certificate")
    await patient.enrol()
    await patient.cured("identity")


async def test_an_expired_certificate_is_renewed_by_starting_the_daemon_as_it_says(
    patient: Patient,
) -> None:
    patient.has_identity_of(timedelta(days=3))
    await patient.fails("certificate", "start the daemon")
    await patient.fails("standing", Reason.CERTIFICATE_EXPIRED)
    async with patient.daemon():
        await patient.brain.link()
        await patient.renewed()
    await patient.cured("certificate")
    await patient.cured("standing")


async def test_a_certificate_too_old_to_renew_is_told_from_one_that_is_late(
    lone: Lone,
) -> None:
    lone.has_identity_of(timedelta(days=40))
    await lone.fails("certificate", "too late", "carpal hand enroll")
    lone.has_identity_of(timedelta(hours=20))
    await lone.warns("certificate", "should have been renewed")
    lone.has_identity_of(timedelta())
    await lone.cured("certificate")


@pytest.mark.parametrize("hours", [-2.0, 2.0])
async def test_a_clock_that_is_wrong_is_told_by_how_much_and_set_it_is_right(
    patient: Patient, hours: float
) -> None:
    def wrong() -> datetime:
        return datetime.now(UTC) + timedelta(hours=hours)

    row = await patient.fails("clock", "ahead" if hours > 0 else "behind", now=wrong)
    assert abs(float(row.detail.split()[0]) - 7200) < AT_ONCE
    if hours < 0:
        await patient.fails("certificate", "set this machine's clock", now=wrong)
    await patient.cured("clock")
    await patient.cured("certificate")


async def test_a_clock_of_another_year_is_told_too_though_no_certificate_is_valid_then(
    patient: Patient,
) -> None:
    def wrong() -> datetime:
        return datetime.now(UTC) - timedelta(days=700)

    await patient.fails("clock", "behind", now=wrong)
    await patient.fails(f"tls {patient.brain.address}", "set the clock", now=wrong)


@needs_root
async def test_a_full_disk_is_told_and_freed_it_is_well(lone: Lone, tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    disk.mount(place, 8 << 20, 0, 0)
    try:
        shutil.copytree(lone.files.folder, place / "hand")
        (place / "ballast").write_bytes(b"\0" * (7 << 20))
        with contextlib.suppress(OSError), (place / "more").open("wb", buffering=0) as more:
            while more.write(b"\0" * 4096):
                pass
        small = Seen(place)
        await small.fails("disk", "free some of the disk")
        (place / "ballast").unlink()
        (place / "more").unlink()
        await small.warns("disk", "1 GiB")  # it works, and is a small one
    finally:
        disk.unmount_below(place)


async def test_a_damaged_journal_is_told_and_a_restart_of_the_daemon_mends_it(
    lone: Lone,
) -> None:
    with closing(Journal(lone.files.journal, "d")):
        pass
    await lone.cured("journal")
    with lone.files.journal.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(8 * 4096))
        file.truncate()
    for end in ("-wal", "-shm"):
        lone.files.journal.with_name(f"journal.db{end}").unlink(missing_ok=True)
    await lone.fails("journal", "damaged", "restart the daemon")
    async with lone.daemon():
        await until(lambda: summed(lone.files.journal), "there is no new journal")
        await lone.cured("journal")


async def test_an_audit_that_cannot_be_written_or_was_changed_is_told_and_moved_away_it_is_well(
    lone: Lone,
) -> None:
    log = AuditFiles(lone.files.folder).log
    log.mkdir()
    await lone.fails("audit", "new calls are refused", "move")
    log.rename(lone.state / "what it was")
    with closing(Audit(lone.files.folder)) as audit:
        audit.write("first")
        audit.write("second")
    await lone.cured("audit")
    log.write_text(log.read_text().replace("first", "worst"))
    await lone.warns("audit", "line 1", "carpal hand audit verify")


async def test_another_programs_journal_is_told_and_moved_away_it_is_well(
    lone: Lone,
) -> None:
    with closing(sqlite3.connect(lone.files.journal)) as other:
        other.execute("CREATE TABLE recipes (name TEXT)")
    await lone.fails("journal", "another program", "move it away")
    lone.files.journal.rename(lone.state / "recipes.db")
    async with lone.daemon():
        await until(lambda: summed(lone.files.journal), "there is no new journal")
    await lone.cured("journal")


class _Entry:
    """An entry point of a type whose probe says what a file says."""

    def __init__(self, said: Path, name: str = "bench") -> None:
        self.name, self.value = name, f"hands.builtin.{name}:Type"
        self._said = said

    def load(self) -> Any:
        """The type."""
        said = self._said

        class Bench:
            def describe(self) -> Description:
                """Nothing that counts here."""
                return Description("bench", "a bench", (), {})

            async def probe(self) -> Health:
                """Broken until the file is there."""
                if not said.exists():
                    return Health(ready=False, broken=True, reason=f"make {said}")
                if text := said.read_text():
                    raise RuntimeError(text)
                return Health(ready=True)

        return Bench


async def test_a_type_whose_probe_is_broken_is_told_in_its_words_and_doing_so_cures_it(
    lone: Lone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "cable"
    monkeypatch.setattr(types, "entry_points", lambda group: [_Entry(said)])
    await lone.fails("type bench", f"make {said}")
    said.write_text("a bug of its author's")
    await lone.fails("type bench", "RuntimeError: a bug of its author's")
    said.write_text("")
    await lone.cured("type bench")
    row = (await lone.rows())["type bench"]
    assert row.detail == "ready, by this command's environment"


async def test_a_hand_server_that_is_not_there_is_told_and_started_it_is_well(
    lone: Lone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(types, "entry_points", lambda group: [])
    at = tmp_path / "hand.sock"
    settings = msgspec.structs.replace(lone.subject.settings, sockets={"echo": at})
    subject = replace(lone.subject, settings=settings)
    (row,) = await machine.hand_types(subject)
    assert (row.target, row.verdict) == ("type echo", Verdict.FAIL)
    assert "start its server" in row.text()
    async with serving(at, Least()):
        (row,) = await machine.hand_types(subject)
    assert row.verdict is Verdict.OK, row.text()


async def test_a_type_that_is_broken_beside_one_that_works_is_a_warning(
    lone: Lone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready"
    ready.touch()
    both = [_Entry(tmp_path / "no"), _Entry(ready, "other")]
    monkeypatch.setattr(types, "entry_points", lambda group: both)
    await lone.warns("type bench", "make")


async def test_a_policy_that_is_wrong_is_told_and_corrected_says_which_types_it_offers(
    lone: Lone, tmp_path: Path
) -> None:
    given = tmp_path / "policy.toml"
    given.write_text("typos = []\n")
    settings = msgspec.structs.replace(lone.subject.settings, policy=given)
    lone.subject = replace(lone.subject, settings=settings)
    await lone.fails("policy", "typos")
    given.write_text('types = ["container"]\n')
    row = await lone.cured("policy")
    assert "container" in row.detail
    assert (await lone.rows())["type process"].verdict is Verdict.SKIP


async def test_a_policy_that_names_a_tool_that_no_type_has_is_told_and_corrected_it_is_well(
    lone: Lone, tmp_path: Path
) -> None:
    given = tmp_path / "policy.toml"
    given.write_text('tools = ["process/bsh"]\n')
    settings = msgspec.structs.replace(lone.subject.settings, policy=given)
    lone.subject = replace(lone.subject, settings=settings)
    await lone.warns("policy names", "tools: process/bsh")
    given.write_text('tools = ["process/bash"]\n')
    assert "policy names" not in await lone.rows()


async def test_a_check_that_hangs_is_a_row(lone: Lone, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from hands.doctor import rows

    over = threading.Event()
    monkeypatch.setattr(rows.looked, "__defaults__", (0.2,))
    monkeypatch.setattr(machine, "disk", lambda _: over.wait())
    try:
        await lone.fails("disk", "nothing came of it within")
    finally:
        over.set()


def test_settings_that_are_wrong_are_told_with_the_key_and_corrected_they_are_well(
    tmp_path: Path,
) -> None:
    given = tmp_path / "hand.toml"
    given.write_text("hand_max = 3\n")
    _, row = read(tmp_path / "state", given)
    assert (row.verdict, "hands_max" in row.action) == (Verdict.FAIL, True), row.text()
    given.write_text('hands_max = 3\nproxy = "http://u:p@h:1"\n')
    given.chmod(0o644)
    settings, row = read(tmp_path / "state", given)
    assert (row.verdict, settings.hands_max) == (Verdict.WARN, 3)
    follow(row)
    assert read(tmp_path / "state", given)[1].verdict is Verdict.OK
    assert json.loads(json.dumps(row.json())) == row.json()


@pytest.mark.parametrize("line", ['"bad name" = "/x"', 'process = "/x"', 'x = "here"'])
def test_a_socket_that_keeps_a_daemon_from_its_start_is_a_failure(
    line: str, tmp_path: Path
) -> None:
    given = tmp_path / "hand.toml"
    given.write_text(f"[sockets]\n{line}\n")
    _, row = read(tmp_path / "state", given)
    assert row.verdict is Verdict.FAIL, row.text()
    assert row.detail.startswith("sockets.")


def summed(journal: Path) -> bool:
    """Whether there is one that is whole."""
    try:
        return bool(summary(journal).journal_id)
    except (OSError, sqlite3.Error):
        return False


def _state(folder: Path) -> dict[str, tuple[int, int, int]]:
    """All below a folder, as far as it can be told that it was changed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        found[str(path)] = (about.st_uid, about.st_mode, about.st_mtime_ns if path.is_file() else 0)
    return found


@needs_root
def test_a_daemon_that_may_make_no_groups_is_told_which_limits_it_cannot_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CARPAL_CGROUPS", "off")
    (row,) = machine.groups(None)
    assert row.verdict is Verdict.WARN
    assert row.detail.startswith("cpu, memory, pids of a hand cannot be limited")
    assert "Delegate=yes" in row.action
    assert "as root" not in row.action, "it is root"
    monkeypatch.delenv("CARPAL_CGROUPS")  # as root, by what may make them
    (row,) = machine.groups(None)
    assert row.verdict is Verdict.OK, row.text()
