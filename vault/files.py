"""Where the vault keeps things, and the one process that may serve from there."""

import fcntl
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
from vault.ca import Authority


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
        """The CA. Raises CONFIG_INVALID naming the file that is missing or wrong."""
        if not self.has_authority():
            raise _bad(self.ca_key, "does not exist", "run `carpal vault init` first")
        if self.ca_key.stat().st_mode & 0o077:
            raise _bad(self.ca_key, "is open to others", f"run: chmod 600 {self.ca_key}")
        try:
            key = serialization.load_pem_private_key(self.ca_key.read_bytes(), password=None)
            certificate = x509.load_pem_x509_certificate(self.ca.read_bytes())
        except OSError as error:
            raise _bad(Path(str(error.filename)), f"cannot be read ({error.strerror})") from None
        except (ValueError, TypeError):
            raise _bad(self.folder, "holds a damaged CA", "restore ca.key and ca.pem") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or (
            certificate.public_key() != key.public_key()
        ):
            raise _bad(self.ca, f"is not the certificate of {self.ca_key}")
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


def _bad(path: Path, problem: str, action: str = "") -> CarpalError:
    fields = {"action": action} if action else {}
    return refuse(Reason.CONFIG_INVALID, f"{path} {problem}", path=str(path), **fields)
