"""A seal's key comes from where it should and is the right one, or the vault stays shut."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from vault.seal import passphrase
from vault.seal.kek import canary, check_canary, key_id, new_kek
from vault.seal.seals import Given, KeyNotGiven, SealKind, SealRow, make, open_seal

KEY = bytes(range(32))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    folder.mkdir()
    return folder


def file_seal(path: Path) -> SealRow:
    return SealRow(SealKind.FILE, {"path": str(path)}, key_id(KEY), canary(KEY))


def refused(row: SealRow, database: Path, given: Given | None = None) -> CarpalError:
    with pytest.raises(CarpalError) as raised:
        open_seal(row, given or Given(), database)
    return raised.value


def test_a_key_file_is_made_once_for_its_owner_alone(tmp_path: Path, database: Path) -> None:
    path = tmp_path / "seal" / "vault.key"
    row, kek = make(SealKind.FILE, {"path": path}, Given(), database)
    assert (path.stat().st_mode & 0o777, path.read_bytes()) == (0o400, kek)
    assert open_seal(row, Given(), database) == kek
    assert make(SealKind.FILE, {"path": path}, Given(), database)[1] == kek


@pytest.mark.parametrize("mode", [0o644, 0o440, 0o604, 0o660, 0o500])
def test_v07_a_key_file_that_is_open_to_others_is_refused(
    tmp_path: Path, database: Path, mode: int
) -> None:
    path = tmp_path / "key"
    path.write_bytes(KEY)
    path.chmod(mode)
    error = refused(file_seal(path), database)
    assert (error.reason, "chmod 400" in error.message) == (Reason.CONFIG_INVALID, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_v07_a_key_file_of_another_user_is_refused(tmp_path: Path, database: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(KEY)
    path.chmod(0o400)
    os.chown(path, 12345, 0)
    assert "owned by user 12345" in refused(file_seal(path), database).message


def test_v07_a_key_file_beside_the_database_or_behind_a_link_is_refused(
    tmp_path: Path, database: Path
) -> None:
    beside = database / "more" / "key"
    beside.parent.mkdir()
    beside.write_bytes(KEY)
    beside.chmod(0o400)
    assert "in the folder of the database" in refused(file_seal(beside), database).message
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(KEY)
    real.chmod(0o400)
    link.symlink_to(real)
    assert refused(file_seal(link), database).reason is Reason.CONFIG_INVALID
    (tmp_path / "folder").mkdir()
    assert refused(file_seal(tmp_path / "folder"), database).reason is Reason.CONFIG_INVALID
    os.mkfifo(tmp_path / "pipe", 0o400)
    assert "no file" in refused(file_seal(tmp_path / "pipe"), database).message


@pytest.mark.parametrize("key", [b"", KEY[:31], KEY + b"x", bytes(32), b"\xff" * 32, b"ab" * 16])
def test_a_missing_short_long_or_uniform_key_is_refused_and_none_is_made(
    tmp_path: Path, database: Path, key: bytes
) -> None:
    path = tmp_path / "key"
    assert refused(file_seal(path), database).reason is Reason.CONFIG_INVALID
    assert not path.exists(), "a key over a sealed vault would be another vault's"
    path.write_bytes(key)
    path.chmod(0o400)
    assert refused(file_seal(path), database).reason is Reason.CONFIG_INVALID
    row = SealRow(SealKind.DESCRIPTOR, {}, key_id(KEY), canary(KEY))
    assert refused(row, database, Given(secret=key)).reason is Reason.CONFIG_INVALID


def test_v01_a_wrong_key_is_told_from_a_damaged_one(tmp_path: Path, database: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(new_kek())
    path.chmod(0o400)
    error = refused(file_seal(path), database)
    assert (error.reason, "wrong seal key" in error.message) == (Reason.SEAL_KEY_WRONG, True)
    with pytest.raises(CarpalError) as raised:
        check_canary(KEY, key_id(KEY), canary(KEY)[:-1] + b"x")
    assert raised.value.reason is Reason.VAULT_CORRUPT


def test_a_key_that_is_handed_in_is_read_once(tmp_path: Path, database: Path) -> None:
    def pipe() -> int:
        reader, writer = os.pipe()
        os.write(writer, KEY)
        os.close(writer)
        return reader

    row, kek = make(SealKind.DESCRIPTOR, {}, Given(descriptor=pipe()), database)
    assert kek == KEY
    number = pipe()
    assert open_seal(row, Given(descriptor=number), database) == KEY
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(number)
    with pytest.raises(KeyNotGiven):
        open_seal(row, Given(), database)


def test_a_key_that_systemd_hands_in_is_found(
    tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd lets the service in by an ACL: its mask shows as the group's right to read."""
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    path = tmp_path / "carpal-seal"
    path.write_bytes(KEY)
    path.chmod(0o440)
    row, kek = make(SealKind.DESCRIPTOR, {}, Given(), database)
    assert kek == KEY == open_seal(row, Given(), database)


def test_a_passphrase_opens_and_another_does_not(database: Path) -> None:
    given = Given(secret=b"four words at random")
    row, kek = make(SealKind.PASSPHRASE, {}, given, database)
    assert open_seal(row, given, database) == kek
    assert refused(row, database, Given(secret=b"four words at hazard")).reason is (
        Reason.SEAL_KEY_WRONG
    )
    with pytest.raises(KeyNotGiven):
        open_seal(row, Given(), database)
    with pytest.raises(CarpalError, match="12 characters"):
        make(SealKind.PASSPHRASE, {}, Given(secret=b"short"), database)


@pytest.mark.parametrize(
    "change",
    [{"n": 2**30}, {"n": 2**17 + 1}, {"n": 1}, {"r": 1000}, {"p": 64}, {"salt": ""}, {"n": "2"},
     {"salt": "zz" * 16}, {"r": None}],
)  # fmt: skip
def test_parameters_beyond_the_bounds_cost_nothing(change: dict[str, Any]) -> None:
    with pytest.raises(CarpalError) as raised:
        passphrase.derive(b"four words at random", {**passphrase.new_parameters(), **change})
    assert raised.value.reason is Reason.VAULT_CORRUPT


SERVICE = """
import base64, json, sys
asked = json.load(sys.stdin)
def flip(text):
    return base64.b64encode(bytes(b ^ 0x5A for b in base64.b64decode(text))).decode()
if "--down" in sys.argv:
    sys.exit("no route to the key service")
if "--junk" in sys.argv:
    print("junk")
elif asked["do"] == "wrap":
    print(json.dumps({"blob": flip(asked["plaintext"]), "key_id": "k1"}))
else:
    assert asked["key_id"] == "k1"
    print(json.dumps({"plaintext": flip(asked["blob"])}))
"""


def test_a_key_service_wraps_the_key_by_a_command(tmp_path: Path, database: Path) -> None:
    script = tmp_path / "service.py"
    script.write_text(SERVICE)
    argv = [sys.executable, str(script)]
    row, kek = make(SealKind.KMS, {"plugin": "command", "argv": argv}, Given(), database)
    assert open_seal(row, Given(), database) == kek
    assert kek.hex() not in json.dumps(dict(row.parameters))
    for flag, words in (("--down", "no route to the key service"), ("--junk", "one JSON object")):
        away = SealRow(row.kind, {**row.parameters, "argv": [*argv, flag]}, row.key_id, row.canary)
        error = refused(away, database)
        assert (error.reason, words in error.message) == (Reason.VAULT_SEALED, True)
    missing = SealRow(row.kind, {**row.parameters, "plugin": "none"}, row.key_id, row.canary)
    assert "no seal plug-in 'none'" in refused(missing, database).message


BROKEN = """
class Seal:
    def __init__(self, settings):
        pass
    def wrap(self, plaintext, aad):
        return plaintext[::-1], "k1"
    def unwrap(self, blob, key_id, aad):
        if "down" in __file__:
            raise LookupError(blob.hex())
        return blob[::-1]
"""


def test_a_key_services_plug_in_that_breaks_leaves_the_vault_sealed_and_its_words_are_nobodys(
    tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("works", "down"):
        info = tmp_path / f"{name}-0.dist-info"
        info.mkdir()
        (info / "entry_points.txt").write_text(f"[carpal.seals]\n{name} = seal_that_{name}:Seal\n")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
        (tmp_path / f"seal_that_{name}.py").write_text(BROKEN.replace("__file__", repr(name)))
    monkeypatch.syspath_prepend(tmp_path)
    row, kek = make(SealKind.KMS, {"plugin": "works"}, Given(), database)
    assert open_seal(row, Given(), database) == kek
    broken = SealRow(row.kind, {**row.parameters, "plugin": "down"}, row.key_id, row.canary)
    error = refused(broken, database)
    assert error.reason is Reason.VAULT_SEALED
    assert "its plug-in failed by LookupError" in error.message
    assert kek[::-1].hex() not in str(error)
