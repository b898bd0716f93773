"""Where the vault keeps things, and the one process that may serve from there."""

import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from carpal.errors import CarpalError, refuse
from carpal.identity import Role
from carpal.status import Reason
from carpal.tls import IdentityFiles, key_pem, private_folder, write_file
from vault.authorities import Authorities, Phase, settled
from vault.ca import Authority

_log = logging.getLogger(__name__)

RETIRING = "retiring"
"""The step of a replacement after its last phase: the next CA is put in the place of the one
before."""


@dataclass(frozen=True, slots=True)
class VaultFiles:
    """The vault's folder below a state folder."""

    state: Path

    @property
    def folder(self) -> Path:
        """`S/vault`."""
        return self.state / "vault"

    @property
    def ca_key(self) -> Path:
        """The CA's private key: whoever reads it is everyone."""
        return self.folder / "ca.key"

    @property
    def ca(self) -> Path:
        """The CA's certificate."""
        return self.folder / "ca.pem"

    @property
    def next_key(self) -> Path:
        """The next CA's private key, while one replaces the other."""
        return self.folder / "ca-next.key"

    @property
    def next_ca(self) -> Path:
        """The next CA's certificate."""
        return self.folder / "ca-next.pem"

    @property
    def cross(self) -> Path:
        """The next CA's name and key, signed by the CA before."""
        return self.folder / "ca-cross.pem"

    @property
    def rollover(self) -> Path:
        """How far the replacement is; not there when there is none."""
        return self.folder / "rollover.json"

    @property
    def store(self) -> Path:
        """Tokens and issued certificates."""
        return self.folder / "vault.db"

    def identity(self, role: Role, name: str) -> IdentityFiles:
        """Where a process of this machine looks for its identity."""
        folders = {
            Role.BRAIN: Path("brain") / name,
            Role.DAEMON: Path("hand"),
        }
        return IdentityFiles(self.state / folders.get(role, Path(role)) / "identity")

    def has_authority(self) -> bool:
        """Whether a CA was made here; its key is written last."""
        return self.ca_key.exists()

    def save_authority(self, authority: Authority) -> None:
        """Write a new CA; never over one that is there."""
        if self.has_authority():
            raise FileExistsError(self.ca_key)
        write_file(self.ca, authority.pem)
        write_file(self.ca_key, key_pem(authority.key))

    def load_authority(self) -> Authority:
        """The CA that signs now. Raises as `load_authorities`."""
        return self.load_authorities().signing

    def load_authorities(self) -> Authorities:
        """The CAs. Raises CONFIG_INVALID naming the file that is missing or wrong."""
        if not self.has_authority():
            raise _bad(self.ca_key, "does not exist", "run `carpal vault init` first")
        step = self.rollover_step()
        if step == RETIRING and self.next_key.exists():
            return settled(self._load(self.next_key, self.next_ca))
        before = self._load(self.ca_key, self.ca)
        if step not in (Phase.PREPARED, Phase.SWITCHED):
            return settled(before)
        following = self._load(self.next_key, self.next_ca)
        try:
            cross = x509.load_pem_x509_certificate(self.cross.read_bytes())
        except (OSError, ValueError):
            raise _bad(self.cross, "is missing or damaged", "restore it") from None
        if step == Phase.PREPARED:
            return Authorities(Phase.PREPARED, before, following.certificate, cross)
        return Authorities(Phase.SWITCHED, following, before.certificate, cross, before)

    def rollover_step(self) -> str:
        """What `rollover.json` says; empty when it is not there."""
        try:
            return str(json.loads(self.rollover.read_bytes())["phase"])
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, KeyError, TypeError):
            raise _bad(self.rollover, "cannot be read", "restore it") from None

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """Changes whenever the CAs do."""
        found = []
        for path in (self.rollover, self.ca_key, self.ca):
            with contextlib.suppress(OSError):
                stat = path.stat()
                found.append((stat.st_ino, stat.st_mtime_ns))
        return tuple(found)

    def _load(self, key_file: Path, certificate_file: Path) -> Authority:
        if key_file.exists() and key_file.stat().st_mode & 0o077:
            raise _bad(key_file, "is open to others", f"run: chmod 600 {key_file}")
        try:
            key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
            certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        except OSError as error:
            raise _bad(Path(str(error.filename)), f"cannot be read ({error.strerror})") from None
        except (ValueError, TypeError):
            raise _bad(self.folder, "holds a damaged CA", "restore ca.key and ca.pem") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or (
            certificate.public_key() != key.public_key()
        ):
            raise _bad(certificate_file, f"is not the certificate of {key_file}")
        return Authority(key, certificate)

    @contextmanager
    def only_process(self) -> Iterator[None]:
        """Hold the folder; CONFIG_INVALID while another process does."""
        private_folder(self.folder)
        path = self.folder / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _bad(self.folder, "is in use by another vault", "stop that one") from None
            yield
        finally:
            os.close(descriptor)


class Following:
    """The CAs as they are on disk now, for a vault that serves while a command replaces one."""

    def __init__(self, files: VaultFiles) -> None:
        """Raises as `load_authorities`."""
        self._files = files
        self._seen = files.stamp()
        self._loaded = files.load_authorities()

    def __call__(self) -> Authorities:
        """Those of now; what cannot be read leaves those of before."""
        stamp = self._files.stamp()
        if stamp != self._seen:
            try:
                self._loaded = self._files.load_authorities()
                self._seen = stamp
                _log.info("the CAs changed", extra={"phase": str(self._loaded.phase)})
            except CarpalError as error:
                _log.warning("the CAs are not reloaded", extra={"why": str(error)})
        return self._loaded


def _bad(path: Path, problem: str, action: str = "") -> CarpalError:
    fields = {"action": action} if action else {}
    return refuse(Reason.CONFIG_INVALID, f"{path} {problem}", path=str(path), **fields)
