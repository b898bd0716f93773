"""A vault from before there was a seal is sealed whole, or is as it was, whatever kills it."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from carpal.errors import BadInput
from carpal.tls import key_pem, new_key, write_file
from tests.command import ROOT
from tests.faults import Points
from vault.authority import ca
from vault.commands import rollover
from vault.files import VaultFiles
from vault.migrate import migrate
from vault.opened import authorities_of, opened
from vault.store.tables import _SINCE_2, _TABLES

WAIT = 30.0
SECRET = b"canary-of-thirty-two-bytes-long!"
POINTS = [
    "vault.migrate.seal_made",
    "vault.making.before_anchored",
    "vault.making.anchored",
    "vault.making.committed",
    "vault.audit.before_written",
    "vault.audit.written",
    "vault.migrate.before_removed",
    "vault.migrate.removed",
]


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def old(tmp_path: Path) -> VaultFiles:
    """As a vault of schema 2 left it: two CAs, a token, a revocation."""
    files = VaultFiles(tmp_path / "state")
    authority = ca.new_authority(new_key(), "x.example", now())
    following = ca.new_authority(new_key(), "x.example", now())
    write_file(files.ca, authority.pem)
    write_file(files.ca_key, key_pem(authority.key))
    write_file(files.next_ca, following.pem)
    write_file(files.next_key, key_pem(following.key))
    write_file(files.cross, ca.pem(ca.cross_sign(authority, following.certificate, now())))
    write_file(files.rollover, b'{"phase": "switched"}')
    with closing(sqlite3.connect(files.store)) as db:
        db.executescript(_TABLES + _SINCE_2)
        db.execute(
            "INSERT INTO tokens VALUES ('t1', 'default', 'd', '', ?, x'00', 9e9, NULL, NULL)",
            (SECRET,),
        )
        db.execute("INSERT INTO tokens VALUES ('t2', 'default', 'e', '', NULL, x'00', 5, 4, NULL)")
        db.execute("INSERT INTO revocations VALUES ('spiffe://x/daemon/f', 5, '', 'me', 7)")
        db.execute("PRAGMA user_version = 2")
        db.commit()
    return files


def check_sealed(files: VaultFiles) -> None:
    assert not files.plain_keys
    assert authorities_of(files).phase == "switched"
    with opened(files, thorough=True) as it:
        token = it.store.token("t1")
        assert token is not None
        assert (token.secret, token.expires) == (SECRET, 9_000_000_000)
        used = it.store.token("t2")
        assert used is not None
        assert (used.secret, used.used) == (b"", 4)
        assert it.store.revocation("spiffe://x/daemon/f") is not None
        assert it.store.spend_token("t1", 5)
    left = b"".join(path.read_bytes() for path in files.state.rglob("*") if path.is_file())
    assert SECRET not in left
    assert b"PRIVATE KEY" not in left


def test_all_of_it_is_sealed_and_works_on(old: VaultFiles) -> None:
    before = old.ca.read_bytes()
    assert migrate(old)
    assert not migrate(old), "again it does nothing"
    assert old.ca.read_bytes() == before
    assert rollover.retire(old, now).phase == "settled"


def test_until_then_every_command_says_what_to_do(old: VaultFiles) -> None:
    with pytest.raises(BadInput, match="carpal vault migrate"), opened(old):
        pass


@pytest.mark.parametrize("name", POINTS)
def test_whatever_kills_it_run_again_it_goes_on(old: VaultFiles, name: str) -> None:
    points = Points(old.state.parent / "points")
    points.arm(name, "kill")
    code = (
        "from pathlib import Path; from vault.files import VaultFiles; "
        f"from vault.migrate import migrate; migrate(VaultFiles(Path({str(old.state)!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **points.environ},
        timeout=WAIT,
        check=False,
    )
    assert done.returncode == -9, "the point was not reached"
    if old.plain_keys:
        with pytest.raises(BadInput, match="carpal vault migrate"), opened(old):
            pass
    migrate(old)
    check_sealed(old)


def test_a_key_that_is_not_its_authoritys_changes_nothing(old: VaultFiles) -> None:
    write_file(old.ca_key, key_pem(new_key()))
    before = {path: path.read_bytes() for path in old.folder.glob("*.*") if path.is_file()}
    with pytest.raises(BadInput, match="has no key for the CA"):
        migrate(old)
    after = {path: path.read_bytes() for path in before if path.suffix in (".key", ".pem")}
    assert after == {path: data for path, data in before.items() if path in after}
    with closing(sqlite3.connect(old.store)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)


def test_it_waits_for_no_vault_that_runs(old: VaultFiles) -> None:
    with old.only_process(), pytest.raises(BadInput, match="in use by another vault"):
        migrate(old)
