"""Tokens are spent once, secrets do not stay, and no file is open to others."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from carpal.errors import BadInput, Exhausted
from tests.vault.safes import store_in
from vault.database import Database
from vault.store.rows import CertificateRow, TokenRow
from vault.store.store import Store
from vault.store.tables import schema_of

CANARY = b"canary-of-thirty-two-bytes-long!"


def token(token_id: str = "t1", workspace: str = "default", expires: int = 100) -> TokenRow:
    return TokenRow(token_id, workspace, "build-1", "gpu", CANARY, b"digest", expires)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path


def test_a_token_reads_back_after_a_restart(path: Path) -> None:
    with store_in(path) as store:
        store.add_token(token())
    with store_in(path) as store:
        assert store.token("t1") == token()
        assert store.token("t2") is None


def test_a_full_disk_is_said_and_undone(path: Path) -> None:
    with store_in(path) as store:
        pages = store._db.pragma("page_count")
        store._db.pragma("max_page_count", pages)
        big = replace(token(), content_digest=bytes(100_000))
        with pytest.raises(Exhausted, match="nothing changed"), store.transaction():
            store.add_token(big)
        store._db.pragma("max_page_count", pages + 100)
        with store.transaction():
            store.add_token(token())
        assert store.token("t1") == token()


def test_a_token_is_spent_once_and_only_in_time(path: Path) -> None:
    with store_in(path) as store:
        store.add_token(token(expires=100))
        assert not store.spend_token("t1", now=100)
        assert store.spend_token("t1", now=99)
        assert not store.spend_token("t1", now=99)
        spent = store.token("t1")
        assert spent is not None
        assert (spent.used, spent.secret) == (99, b"")


def test_a_revoked_token_cannot_be_spent(path: Path) -> None:
    with store_in(path) as store:
        store.add_token(token())
        store.revoke_token("t1", "another", 5)
        assert store.token("t1") == token()
        store.revoke_token("t1", "default", 5)
        store.revoke_token("t1", "default", 6)
        assert not store.spend_token("t1", 7)
        revoked = store.token("t1")
        assert revoked is not None
        assert (revoked.revoked, revoked.secret) == (5, b"")


def test_an_erased_secret_is_not_left_in_the_file(path: Path) -> None:
    with store_in(path) as store:
        store.add_token(token("t1"))
        store.add_token(token("t2"))
        store.add_token(token("t3", expires=10))
        store.spend_token("t1", 1)
        store.revoke_token("t2", "default", 1)
        store.erase_expired_secrets(10)
    assert CANARY not in b"".join(file.read_bytes() for file in (path / "vault").iterdir())


def test_a_failed_transaction_leaves_nothing(path: Path) -> None:
    with store_in(path) as store:
        store.add_token(token())
        with pytest.raises(apsw.ConstraintError):
            spend_then_fail(store)
        assert store.token("t1") == token()


def spend_then_fail(store: Store) -> None:
    with store.transaction():
        assert store.spend_token("t1", 1)
        store.add_token(token())


def test_an_answer_is_found_by_what_was_asked(path: Path) -> None:
    row = CertificateRow(
        "1f", "spiffe://x/daemon/d", "w", "token:t", b"r", b"p", b"f", 1, 2, b"pem"
    )
    with store_in(path) as store:
        store.add_certificate(row)
        assert store.certificate_for("token:t", b"r") == row
        assert store.certificate_for("token:t", b"other") is None
        assert store.workspace_of("spiffe://x/daemon/d") == "w"
        assert store.workspace_of("spiffe://x/daemon/e") is None
        with pytest.raises(apsw.ConstraintError):
            store.add_certificate(row)


def test_the_database_is_for_the_owner_alone(path: Path) -> None:
    with store_in(path) as store:
        store.add_token(token())
        modes = {file.name: file.stat().st_mode & 0o777 for file in (path / "vault").iterdir()}
    assert set(modes) >= {"vault.db", "vault.db-wal"}
    assert set(modes.values()) == {0o600}
    assert (path / "vault").stat().st_mode & 0o777 == 0o700


def test_a_newer_database_is_left_alone(path: Path) -> None:
    with store_in(path):
        pass
    with closing(Database(path / "vault" / "vault.db")) as db:
        db.pragma("user_version", 99)
        with pytest.raises(BadInput, match="newer vault"):
            schema_of(db)
        assert db.pragma("user_version") == 99
