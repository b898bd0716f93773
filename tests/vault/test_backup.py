"""A backup is whole, holds no key, and never comes back unseen."""

import json
import os
import signal
import subprocess
import tarfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from carpal.errors import BadInput, CarpalError
from carpal.identity import Identity, Role
from carpal.process import interpreter
from carpal.status import Reason
from tests.faults import Points
from tests.vault.audit.desk import lines
from vault import setup
from vault.authority.ca import Claims
from vault.backup import backup, restore
from vault.commands import rollover
from vault.credentials.desk import CredentialDesk
from vault.credentials.rows import Rows
from vault.files import VaultFiles
from vault.oauth.states import States
from vault.opened import authority_of, opened
from vault.store.rows import TokenRow


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def files(tmp_path: Path) -> VaultFiles:
    made = VaultFiles(tmp_path / "state")
    setup.init(made, "x.example", [Claims(Role.VAULT, "vault")], now)
    with opened(made) as it:
        it.store.add_token(TokenRow("t1", "w", "d", "", bytes(range(32)), b"", 2**40))
    return made


def test_a_backup_taken_now_comes_back_without_a_word(files: VaultFiles, tmp_path: Path) -> None:
    out = tmp_path / "backups" / "today.tar"
    with opened(files):
        backup(files, out)  # while it runs
    assert out.stat().st_mode & 0o777 == 0o600
    data = out.read_bytes()
    assert files.seal_key.read_bytes() not in data
    assert b"PRIVATE KEY" not in data
    with tarfile.open(out) as tar:
        assert sorted(tar.getnames()) == ["ca.pem", "vault.db"]
    with pytest.raises(BadInput, match="there already"):
        backup(files, out)
    for path in files.folder.glob("vault.db*"):
        path.write_bytes(b"damaged")
    before = files.ca.read_bytes()
    restore(files, out, accept=False)
    assert authority_of(files).pem == before
    with opened(files, thorough=True) as it:
        token = it.store.token("t1")
        assert token is not None
        assert token.secret == bytes(range(32))


@dataclass(frozen=True, slots=True)
class Between(VaultFiles):
    """Those of a vault whose CA is replaced once its database was copied."""

    @property
    def cross(self) -> Path:
        if not self.rollover.exists():
            rollover.prepare(VaultFiles(self.state), now)
        return self.folder / "ca-cross.pem"


def test_a_backup_that_is_taken_while_the_ca_is_replaced_has_the_keys_of_its_certificates(
    files: VaultFiles, tmp_path: Path
) -> None:
    out = tmp_path / "today.tar"
    backup(Between(files.state), out)
    restore(files, out, accept=False)
    rollover.switch(files)
    assert authority_of(files).pem == files.next_ca.read_bytes()


def test_v03_an_older_backup_is_refused_unless_it_is_accepted(
    files: VaultFiles, tmp_path: Path
) -> None:
    out = tmp_path / "old.tar"
    backup(files, out)
    setup.issue(files, Claims(Role.BRAIN, "b"), files.identity(Role.BRAIN, "b"), now)
    setup.revoke(files, Role.BRAIN, "b", "stolen", now)
    with pytest.raises(CarpalError) as raised:
        restore(files, out, accept=False)
    assert raised.value.reason is Reason.VAULT_ROLLED_BACK
    with opened(files) as it:
        assert it.store.revocation("spiffe://x.example/brain/b"), "nothing was changed"
    said = "\n".join(restore(files, out, accept=True))
    assert "spiffe://x.example/brain/b was revoked since" in said
    assert "1 enrolment tokens are of no use" in said
    with opened(files) as it:
        token = it.store.token("t1")
        assert token is not None
        assert token.secret == b""
    (line,) = [
        each for each in lines(files.audit)
        if each["what"] == "intent" and each["action"] == "restore.accept"
    ]  # fmt: skip
    assert line["since"] < line["through"]


def test_refresh_tokens_of_a_restored_past_are_doubted(files: VaultFiles, tmp_path: Path) -> None:
    out = tmp_path / "old.tar"
    refresh = {"client_id": "c", "token_endpoint": "https://login.a.com/token"}
    with opened(files) as it:
        desk = CredentialDesk(Rows(it.safe), now)
        for name, policy, more in (
            ("rotates", {"refresh": refresh}, {"refresh_token": b"rt-0123456789ab"}),
            ("ends", {}, {}),
        ):
            desk.create(
                Identity("x.example", Role.OPERATOR, "o", "w", "", now(), now(), 1),
                credential_id=name,
                workspace="w",
                vault_id="",
                display_name="",
                kind="mcp_oauth",
                policy=json.dumps({"mcp_server_url": f"https://{name}.a.com", **policy}).encode(),
                secrets={"access_token": b"at-0123456789ab", **more},
            )
    backup(files, out)
    setup.issue(files, Claims(Role.BRAIN, "b"), files.identity(Role.BRAIN, "b"), now)
    said = "\n".join(restore(files, out, accept=True))
    assert "1 credentials with a refresh token are to be validated" in said
    with opened(files) as it:
        rows, states = Rows(it.safe), States(Rows(it.safe))
        shown = {row.key.id: states.shown(row) for row in rows.all("w")}
    assert shown == {"rotates": "refresh_unknown", "ends": "active"}


def test_a_restore_that_is_killed_once_it_is_accepted_left_nothing_that_may_be_used_twice(
    files: VaultFiles, tmp_path: Path
) -> None:
    out = tmp_path / "old.tar"
    backup(files, out)
    setup.issue(files, Claims(Role.BRAIN, "b"), files.identity(Role.BRAIN, "b"), now)
    points = Points(tmp_path / "points")
    points.arm("vault.safe.accepted", "kill")
    done = subprocess.run(
        [*interpreter(), "vault", "restore", str(out), "--accept-restore"],
        env={**os.environ, **points.environ, "CARPAL_STATE": str(files.state)},
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    with opened(files) as it:
        token = it.store.token("t1")
        assert token is not None
        assert token.secret == b"", "of no use any more"


def test_v03_a_copied_folder_is_noticed_by_the_audit_even_without_the_anchor(
    files: VaultFiles, tmp_path: Path
) -> None:
    store, anchor = files.store.read_bytes(), files.anchor.read_bytes()
    wal = files.store.with_name("vault.db-wal")
    held = wal.read_bytes() if wal.exists() else None
    with opened(files) as it, it.store.transaction():
        it.store.revoke_token("t1", "w", 5)
    files.store.write_bytes(store)
    for path in files.folder.glob("vault.db-*"):
        path.unlink()
    if held is not None:
        wal.write_bytes(held)
    files.anchor.write_bytes(anchor)
    with pytest.raises(CarpalError, match="the audit knows change") as raised, opened(files):
        pass
    assert raised.value.reason is Reason.VAULT_ROLLED_BACK
    assert restore(files, None, accept=True)
    with opened(files):
        pass


def test_a_backup_on_a_new_machine_needs_the_seals_key_and_a_word(
    files: VaultFiles, tmp_path: Path
) -> None:
    out = tmp_path / "old.tar"
    backup(files, out)
    key = files.seal_key.read_bytes()
    before = authority_of(files).pem
    files.state.rename(tmp_path / "lost")
    files.state.mkdir()
    with pytest.raises(BadInput, match=r"vault\.key"):
        restore(files, out, accept=True)
    files.seal_key.parent.mkdir()
    files.seal_key.write_bytes(key)
    files.seal_key.chmod(0o400)
    restore(files, out, accept=True)
    assert authority_of(files).pem == before


def test_a_state_folder_that_moves_takes_its_key_along(files: VaultFiles, tmp_path: Path) -> None:
    before = authority_of(files).pem
    files.state.rename(tmp_path / "elsewhere")
    assert authority_of(VaultFiles(tmp_path / "elsewhere")).pem == before


@pytest.mark.parametrize("content", [b"", b"junk" * 1000])
def test_what_is_no_backup_changes_nothing(
    files: VaultFiles, tmp_path: Path, content: bytes
) -> None:
    out = tmp_path / "junk"
    out.write_bytes(content)
    with pytest.raises(BadInput, match="nothing changed"):
        restore(files, out, accept=True)
    with tarfile.open(out, "w") as tar:
        tar.add(files.ca, arcname="../ca.pem")
    with pytest.raises(BadInput, match="no backup"):
        restore(files, out, accept=True)
    with opened(files):
        pass
