"""Whoever writes the vault's database gains nothing: no other secret, no older one, no wider."""

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from carpal.errors import CarpalError, Exhausted
from carpal.status import Reason
from tests.vault.safes import KEK, safe_in, store_in
from vault.database import Database
from vault.files import VaultFiles
from vault.safe.anchor import Anchor
from vault.safe.safe import Safe
from vault.seal.envelope import Place, policy_hash
from vault.store.store import Store

A, B = (Place("credential", "default", "v", name, "token") for name in ("a", "b"))
POLICY = policy_hash(b"static_bearer", b'{"hosts":["api.example.com"]}')
SECRET_A, SECRET_B = b"canary-secret-of-a", b"canary-secret-of-b"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with safe_in(tmp_path) as safe, safe.transaction():
        safe.put(A, POLICY, SECRET_A)
        safe.put(B, POLICY, SECRET_B)
    return tmp_path


def edit(folder: Path, statement: str, *values: object) -> None:
    """As somebody with the file alone does it."""
    with closing(sqlite3.connect(folder / "vault" / "vault.db")) as db:
        db.execute(statement, values)
        db.commit()


def column(folder: Path, name: str, place: Place) -> object:
    with closing(sqlite3.connect(folder / "vault" / "vault.db")) as db:
        return db.execute(f"SELECT {name} FROM sealed WHERE id = ?", (place.id,)).fetchone()[0]


def refusal(folder: Path, place: Place = A, policy: bytes = POLICY) -> Reason:
    with pytest.raises(CarpalError) as raised, safe_in(folder) as safe:
        safe.get(place, policy)
    return raised.value.reason


def test_values_read_back_after_a_restart_and_are_in_no_file(folder: Path) -> None:
    with safe_in(folder) as safe:
        assert (safe.get(A, POLICY), safe.get(B, POLICY)) == (SECRET_A, SECRET_B)
        with safe.transaction():
            assert safe.put(A, POLICY, b"the next one") == 2
        assert safe.get(A, POLICY) == b"the next one"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"canary-secret" in path.read_bytes()]
    assert not [path for path in files if KEK in path.read_bytes()]


@pytest.mark.parametrize("name", ["wrapped", "blob"])
def test_v02_a_swap_of_two_rows_makes_both_corrupt_and_harms_no_other(
    folder: Path, name: str
) -> None:
    third = Place("credential", "default", "v", "c", "token")
    with safe_in(folder) as safe, safe.transaction():
        safe.put(third, POLICY, b"of the third")
    mine, theirs = column(folder, name, A), column(folder, name, B)
    edit(folder, f"UPDATE sealed SET {name} = ? WHERE id = 'a'", theirs)
    edit(folder, f"UPDATE sealed SET {name} = ? WHERE id = 'b'", mine)
    assert refusal(folder, A) is Reason.CREDENTIAL_CORRUPT
    assert refusal(folder, B) is Reason.CREDENTIAL_CORRUPT
    with safe_in(folder) as safe:
        assert safe.get(third, POLICY) == b"of the third"


def test_v03_an_older_row_or_a_missing_one_keeps_the_vault_shut(folder: Path) -> None:
    names = "generation, policy, wrapped, blob, mark"
    with closing(sqlite3.connect(folder / "vault" / "vault.db")) as db:
        old = db.execute(f"SELECT {names} FROM sealed WHERE id = 'a'").fetchone()
    with safe_in(folder) as safe, safe.transaction():
        safe.put(A, POLICY, b"the secret after a theft")
    with closing(sqlite3.connect(folder / "vault" / "vault.db")) as db:
        new_mark = db.execute("SELECT mark FROM sealed WHERE id = 'a'").fetchone()[0]
    edit(folder, f"UPDATE sealed SET ({names}) = (?,?,?,?,?) WHERE id = 'a'", *old)
    assert refusal(folder) is Reason.VAULT_ROLLED_BACK
    # With the newer mark beside it the sum fits; but then the mark is another's.
    edit(folder, f"UPDATE sealed SET ({names}) = (?,?,?,?,?) WHERE id = 'a'", *old[:4], new_mark)
    assert refusal(folder) is Reason.CREDENTIAL_CORRUPT
    edit(folder, "DELETE FROM sealed WHERE id = 'b'")
    assert refusal(folder) is Reason.VAULT_ROLLED_BACK


def test_v03_an_older_database_keeps_the_vault_shut_until_that_is_accepted(folder: Path) -> None:
    shutil.copytree(folder / "vault", folder / "copy")
    with safe_in(folder) as safe, safe.transaction():
        safe.put(A, POLICY, b"newer")
    shutil.rmtree(folder / "vault")
    (folder / "copy").rename(folder / "vault")
    assert refusal(folder) is Reason.VAULT_ROLLED_BACK
    with safe_in(folder, check=False) as safe:
        safe.accept(10)
        assert safe.mark.epoch == 11
    with safe_in(folder) as safe:
        assert safe.get(A, POLICY) == SECRET_A


def test_v03_two_histories_with_as_many_changes_are_told_apart(folder: Path) -> None:
    shutil.copytree(folder / "vault", folder / "copy")
    anchor = (folder / "seal" / "anchor").read_bytes()
    with safe_in(folder) as safe, safe.transaction():
        safe.put(A, POLICY, b"one history")
    after = (folder / "seal" / "anchor").read_bytes()
    shutil.rmtree(folder / "vault")
    (folder / "copy").rename(folder / "vault")
    (folder / "seal" / "anchor").write_bytes(anchor)
    with safe_in(folder) as safe, safe.transaction():
        safe.put(A, POLICY, b"another history")
    (folder / "seal" / "anchor").write_bytes(after)
    assert refusal(folder) is Reason.VAULT_ROLLED_BACK


def test_v03_without_its_anchor_the_vault_stays_shut(folder: Path) -> None:
    (folder / "seal" / "anchor").unlink()
    assert refusal(folder) is Reason.VAULT_ROLLED_BACK
    (folder / "seal" / "anchor").write_text("{}")
    assert refusal(folder) is Reason.VAULT_CORRUPT


@pytest.mark.parametrize("value", [SECRET_B, b"AVC0" + bytes(60), b""])
def test_v05_plaintext_or_an_older_format_in_a_row_is_rejected(folder: Path, value: bytes) -> None:
    for name in ("wrapped", "blob"):
        kept = column(folder, name, A)
        edit(folder, f"UPDATE sealed SET {name} = ? WHERE id = 'a'", value)
        assert refusal(folder) is Reason.CREDENTIAL_CORRUPT
        edit(folder, f"UPDATE sealed SET {name} = ? WHERE id = 'a'", kept)


def test_v06_a_policy_that_was_widened_opens_nothing(folder: Path) -> None:
    wider = policy_hash(b"static_bearer", b'{"hosts":["api.example.com","evil.example"]}')
    assert refusal(folder, A, wider) is Reason.CREDENTIAL_CORRUPT
    edit(folder, "UPDATE sealed SET policy = ? WHERE id = 'a'", wider)
    assert refusal(folder, A, wider) is Reason.CREDENTIAL_CORRUPT


def test_v08_a_write_that_finds_no_room_changes_nothing(folder: Path) -> None:
    with safe_in(folder) as safe:
        before, anchor = safe.mark, safe.anchor.read()
        safe.database.pragma("max_page_count", safe.database.pragma("page_count"))
        with pytest.raises(Exhausted, match="nothing changed"), safe.transaction():
            safe.put(A, POLICY, bytes(200_000))
        assert (safe.get(A, POLICY), safe.mark, safe.anchor.read()) == (SECRET_A, before, anchor)
        safe.database.pragma("max_page_count", 10_000)
        with safe.transaction():
            safe.put(A, POLICY, b"with room")
        assert safe.get(A, POLICY) == b"with room"
    with safe_in(folder) as safe:
        assert safe.get(A, POLICY) == b"with room"


def test_v08_a_folder_that_cannot_be_written_is_said(folder: Path) -> None:
    with safe_in(folder) as safe:
        safe.database.pragma("query_only", True)
        with pytest.raises(Exhausted), safe.transaction():
            safe.put(A, POLICY, b"x")
        assert safe.get(A, POLICY) == SECRET_A


@pytest.mark.parametrize("seed", range(200))
def test_v04_no_cut_and_no_flip_gives_another_secret_or_anything_untyped(
    folder: Path, seed: int
) -> None:
    chance = random.Random(seed)
    path = folder / "vault" / "vault.db"
    with closing(Database(path)) as database:
        database.forget()
    whole = path.read_bytes()
    for _ in range(5):
        for wal in folder.glob("vault/vault.db-*"):
            wal.unlink()
        broken = bytearray(whole)
        if chance.random() < 0.5:
            del broken[chance.randrange(len(broken)) :]
        else:
            broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        for place, secret in ((A, SECRET_A), (B, SECRET_B)):
            with suppress(CarpalError), safe_in_strict(folder) as safe:
                assert safe.get(place, POLICY) in (secret, None)
    path.write_bytes(whole)


@pytest.mark.parametrize("word", ["parameters", "manifest", "generation"])
def test_v04_a_flip_in_the_name_of_a_column_is_damage_like_any_other(
    folder: Path, word: str
) -> None:
    path = folder / "vault" / "vault.db"
    with closing(Database(path)) as database:
        database.forget()
    whole = path.read_bytes()
    assert whole.count(word.encode())
    path.write_bytes(whole.replace(word.encode(), word.upper().replace("E", "A").encode()))
    with pytest.raises(CarpalError) as caught, safe_in_strict(folder) as safe:
        safe.get(A, POLICY)
    assert caught.value.reason is Reason.VAULT_CORRUPT


def safe_in_strict(folder: Path):  # type: ignore[no-untyped-def]
    from contextlib import contextmanager

    from carpal.errors import refuse
    from vault.files import VaultFiles
    from vault.safe.anchor import Anchor
    from vault.safe.safe import Safe
    from vault.safe.seal import seal_of

    @contextmanager
    def opening():  # type: ignore[no-untyped-def]
        files = VaultFiles(folder)
        with closing(Database(files.store)) as database:
            database.check()
            if seal_of(database) is None:
                raise refuse(Reason.CONFIG_INVALID, "never made anew over what is there")
            safe = Safe(database, KEK, Anchor(files.anchor))
            safe.check()
            yield safe

    return opening()


def test_what_was_shredded_is_gone_and_its_place_stays(folder: Path) -> None:
    wrapped = column(folder, "wrapped", A)
    assert isinstance(wrapped, bytes)
    with safe_in(folder) as safe:
        with safe.transaction():
            safe.shred(A)
        assert (safe.get(A, POLICY), safe.generation(A), safe.holds(A)) == (None, 1, False)
        safe.database.forget()
    left = b"".join(path.read_bytes() for path in (folder / "vault").glob("vault.db*"))
    assert wrapped[-32:] not in left, "its key is nowhere"


def test_a_rotation_wraps_all_keys_anew_and_destroys_the_term(folder: Path) -> None:
    with safe_in(folder) as beside, safe_in(folder) as safe:
        assert safe.age()[1] == 4  # two for the audit
        assert safe.rotate_terms(1_000) == 0
        assert (safe.term, safe.age()[0]) == (2, 1_000)
        assert safe.database.execute("SELECT term FROM keyring") == [(2,)]
        assert beside.get(A, POLICY) == SECRET_A, "a vault that serves meanwhile follows"
        with beside.transaction():
            beside.put(B, POLICY, b"later")
        assert safe.get(B, POLICY) == b"later"
    with safe_in(folder) as safe:
        assert safe.get(A, POLICY) == SECRET_A


def test_a_rotation_leaves_what_is_damaged_and_the_term_that_it_needs(folder: Path) -> None:
    edit(folder, "UPDATE sealed SET blob = ? WHERE id = 'b'", b"AVC1\x01" + bytes(60))
    with safe_in(folder) as safe:
        assert safe.rotate_terms(1) == 1
        assert safe.get(A, POLICY) == SECRET_A
    assert refusal(folder, B) is Reason.CREDENTIAL_CORRUPT


class Between(Database):
    """One that another process writes to, right before a statement that begins so."""

    before = ""
    other: Callable[[], object] = staticmethod(lambda: None)

    def execute(self, statement: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if self.before and statement.startswith(self.before):
            self.before = ""
            self.other()
        return super().execute(statement, bindings)


@contextmanager
def safe_between(folder: Path) -> Iterator[tuple[Safe, Between]]:
    files = VaultFiles(folder)
    with closing(Between(files.store)) as database:
        yield Safe(database, KEK, Anchor(files.anchor)), database


def changed(folder: Path) -> None:
    with safe_in(folder) as safe, safe.transaction():
        safe.put(B, POLICY, b"written meanwhile")


def rotated(folder: Path) -> None:
    with safe_in(folder) as safe:
        safe.rotate_terms(1)


@pytest.mark.parametrize("writes", [changed, rotated])
@pytest.mark.parametrize("at", ["SELECT epoch", "SELECT mark FROM sealed"])
def test_what_is_written_while_the_safe_is_checked_is_no_sign_of_other_hands(
    folder: Path, writes: Callable[[Path], None], at: str
) -> None:
    with safe_between(folder) as (safe, database):
        database.before, database.other = at, lambda: writes(folder)
        safe.check()
        assert not database.before, "it was written"
        safe.check()


def test_a_value_that_is_read_while_a_command_rotates_the_terms_is_no_damaged_one(
    folder: Path,
) -> None:
    with safe_between(folder) as (safe, database):
        database.before, database.other = "SELECT generation, policy", lambda: rotated(folder)
        assert safe.get(A, POLICY) == SECRET_A
        assert not database.before, "it was rotated"
        assert safe.get(A, POLICY) == SECRET_A


def test_a_revocation_that_comes_while_their_witnesses_are_checked_was_not_added_by_others(
    tmp_path: Path,
) -> None:
    def revoked() -> None:
        with store_in(tmp_path) as store:
            store.revoke("spiffe://x/daemon/d", 5, 5_000, "stolen", "command")

    with store_in(tmp_path):
        pass
    with safe_between(tmp_path) as (safe, database):
        database.before, database.other = "SELECT * FROM revocations", revoked
        Store(safe).check_witnesses()
        assert not database.before, "it was revoked"
        Store(safe).check_witnesses()


def test_a_revocation_that_was_removed_or_changed_keeps_the_vault_shut(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.revoke("spiffe://x/daemon/d", 5, 5_000, "stolen", "operator")
        store.check_witnesses()
    for statement in ("UPDATE revocations SET before = 0", "DELETE FROM revocations"):
        edit(tmp_path, statement)
        with pytest.raises(CarpalError) as raised, store_in(tmp_path) as store:
            store.check_witnesses()
        assert raised.value.reason is Reason.VAULT_ROLLED_BACK
