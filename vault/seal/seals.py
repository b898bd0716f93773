"""Which seal a vault has, and where its key comes from."""

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from vault.seal import kms, passphrase
from vault.seal.descriptor import credential_path, read_handed_in
from vault.seal.envelope import bound
from vault.seal.file import make_key_file, read_key_file
from vault.seal.kek import canary, check_canary, check_kek, key_id, new_kek

_WRAPPED = bound(b"carpal/v1/vault/kek")


class SealKind(StrEnum):
    """How the key comes in."""

    FILE = "file"
    DESCRIPTOR = "descriptor"
    PASSPHRASE = "passphrase"  # noqa: S105 - the name of a kind
    KMS = "kms"


@dataclass(frozen=True, slots=True)
class Given:
    """What whoever starts a vault, or unseals it, hands in."""

    descriptor: int | None = None
    secret: bytes | None = field(default=None, repr=False)
    """A passphrase; or, for a vault whose key is handed in, the key."""


@dataclass(frozen=True, slots=True)
class SealRow:
    """The seal as the database has it: nothing of it is secret."""

    kind: SealKind
    parameters: Mapping[str, Any]
    key_id: str
    canary: bytes


class KeyNotGiven(Exception):
    """The key is one that somebody must hand in, and nobody did yet: the vault stays sealed."""


def make(
    kind: SealKind, settings: Mapping[str, Any], given: Given, database_folder: Path
) -> tuple[SealRow, bytes]:
    """A seal for a vault that has none, or is to have another, and its key."""
    parameters = dict(settings)
    match kind:
        case SealKind.FILE:
            path = Path(settings["path"]).absolute()
            parameters = {"path": _noted(path, database_folder)}
            kek = make_key_file(path, database_folder)
        case SealKind.DESCRIPTOR:
            parameters = {}
            kek = _handed_in(given, database_folder)
        case SealKind.PASSPHRASE:
            parameters = passphrase.new_parameters()
            kek = passphrase.derive(passphrase.check_new(given.secret or b""), parameters)
        case SealKind.KMS:
            kek = new_kek()
            parameters |= _wrapped(parameters, kek)
    return SealRow(kind, parameters, key_id(kek), canary(kek)), kek


def open_seal(row: SealRow, given: Given, database_folder: Path) -> bytes:
    """The key of a seal.

    Raises KeyNotGiven, SEAL_KEY_WRONG, CONFIG_INVALID for one that cannot be used, VAULT_SEALED
    when a key service does not answer, VAULT_CORRUPT.
    """
    match row.kind:
        case SealKind.FILE:
            # From the database's folder on, where it is noted so.
            path = Path(database_folder, str(row.parameters.get("path")))
            kek = read_key_file(path, database_folder)
        case SealKind.DESCRIPTOR:
            nothing = given.secret is None and given.descriptor is None
            if nothing and credential_path() is None:
                raise KeyNotGiven
            kek = _handed_in(given, database_folder)
        case SealKind.PASSPHRASE:
            if given.secret is None:
                raise KeyNotGiven
            kek = passphrase.derive(given.secret, row.parameters)
        case SealKind.KMS:
            kek = _unwrapped(row.parameters)
    check_canary(kek, row.key_id, row.canary)
    return kek


def _noted(path: Path, database_folder: Path) -> str:
    """In the same state folder it moves along with that."""
    state = database_folder.absolute().parent
    return str(Path("..", path.relative_to(state)) if path.is_relative_to(state) else path)


def _handed_in(given: Given, database_folder: Path) -> bytes:
    if given.secret is not None:
        return check_kek(given.secret, "the key that was sent in")
    return read_handed_in(given.descriptor, database_folder)


def _wrapped(parameters: Mapping[str, Any], kek: bytes) -> dict[str, Any]:
    service = kms.load(str(parameters.get("plugin")), parameters)
    with _asked():
        blob, name = service.wrap(kek, _WRAPPED)
        if service.unwrap(blob, name, _WRAPPED) != kek:
            raise kms.KmsFailed("it does not unwrap what it wrapped")
    return {"blob": base64.b64encode(blob).decode(), "service_key": name}


def _unwrapped(parameters: Mapping[str, Any]) -> bytes:
    try:
        blob = base64.b64decode(str(parameters.get("blob")), validate=True)
    except ValueError:
        raise refuse(Reason.VAULT_CORRUPT, "the seal's wrapped key is damaged") from None
    service = kms.load(str(parameters.get("plugin")), parameters)
    with _asked():
        kek = service.unwrap(blob, str(parameters.get("service_key")), _WRAPPED)
    return check_kek(kek, "what the key service answered")


@contextmanager
def _asked() -> Iterator[None]:
    """Around what a plug-in does, which is somebody else's code."""
    try:
        yield
    except kms.KmsFailed as error:
        raise _down(str(error)) from None
    except Exception as error:  # noqa: BLE001 - whatever it is: its words may be the key
        raise _down(f"its plug-in failed by {type(error).__name__}") from None


def _down(why: str) -> CarpalError:
    return refuse(
        Reason.VAULT_SEALED,
        f"the key service does not open the seal: {why}",
        action="mend that; the vault asks again by itself, or at `carpal vault unseal`",
    )
