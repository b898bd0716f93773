"""Where the vault keeps things, and the one process that may serve from there."""

import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509

from carpal.errors import CarpalError, refuse
from carpal.identity import Role
from carpal.status import Reason
from carpal.tls import IdentityFiles, private_folder
from vault.authority.authorities import Authorities, Phase, settled
from vault.authority.ca import Authority, trust_domain_of
from vault.seal.seals import Given

_log = logging.getLogger(__name__)

KeyOf = Callable[[x509.Certificate], Authority]
"""Finds a CA's key."""
RETIRING = "retiring"
"""The step of a replacement after its last phase: the next CA is put in the place of the one
before."""


@dataclass(frozen=True, slots=True)
class VaultFiles:
    """The vault's folder below a state folder."""

    state: Path
    given: Given = field(default_factory=Given)
    """What whoever runs this hands in to open the seal."""

    @property
    def folder(self) -> Path:
        """`S/vault`."""
        return self.state / "vault"

    @property
    def ca_key(self) -> Path:
        """The CA's private key, unsealed, from before there was a seal."""
        return self.folder / "ca.key"

    @property
    def ca(self) -> Path:
        """The CA's certificate."""
        return self.folder / "ca.pem"

    @property
    def next_key(self) -> Path:
        """The next CA's private key, unsealed, from before there was a seal."""
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
        """The safe, tokens, credentials and issued certificates."""
        return self.folder / "vault.db"

    def identity(self, role: Role, name: str) -> IdentityFiles:
        """Where a process of this machine looks for its identity."""
        folders = {
            Role.BRAIN: Path("brain") / name,
            Role.DAEMON: Path("hand"),
        }
        return IdentityFiles(self.state / folders.get(role, Path(role)) / "identity")

    @property
    def audit(self) -> Path:
        """What the vault did; stays when a backup of the rest is put back."""
        return self.folder / "audit"

    @property
    def seal_key(self) -> Path:
        """The seal's key, where `init` puts it: never in the folder of what it seals."""
        return self.state / "seal" / "vault.key"

    @property
    def anchor(self) -> Path:
        """How new the database must at least be."""
        return self.state / "seal" / "anchor"

    @property
    def plain_keys(self) -> list[Path]:
        """Keys of CAs that lie here unsealed, from before there was a seal."""
        return [path for path in (self.ca_key, self.next_key) if path.exists()]

    def has_authority(self) -> bool:
        """Whether a CA was made here: its certificate is written first, and its key sealed then."""
        return self.ca.exists() and self.store.exists()

    def trust_domain(self) -> str:
        """Whose CA it is; also while the vault is sealed."""
        return trust_domain_of(read_certificate(self.ca))

    def check_made(self) -> None:
        """CONFIG_INVALID when there is no CA; makes nothing in a folder that may be mistyped."""
        if not self.has_authority():
            raise _bad(self.store, "does not exist", "run `carpal vault init` first")

    def load_authorities(self, key_of: KeyOf) -> Authorities:
        """The CAs, by whose keys. Raises CONFIG_INVALID naming the file that is missing or wrong.

        And what `key_of` raises.
        """
        self.check_made()
        step = self.rollover_step()
        if step == RETIRING and self.next_ca.exists():
            return settled(key_of(read_certificate(self.next_ca)))
        if step not in (Phase.PREPARED, Phase.SWITCHED):
            return settled(key_of(read_certificate(self.ca)))
        before, following = read_certificate(self.ca), read_certificate(self.next_ca)
        cross = read_certificate(self.cross)
        if step == Phase.PREPARED:
            return Authorities(Phase.PREPARED, key_of(before), following, cross)
        was = key_of(before)
        return Authorities(Phase.SWITCHED, key_of(following), before, cross, was)

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
        for path in (self.rollover, self.next_ca, self.ca):
            with contextlib.suppress(OSError):
                stat = path.stat()
                found.append((stat.st_ino, stat.st_mtime_ns))
        return tuple(found)

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

    def __init__(self, files: VaultFiles, key_of: KeyOf) -> None:
        """Raises as `load_authorities`."""
        self._files = files
        self._key_of = key_of
        self._seen = files.stamp()
        self._loaded = files.load_authorities(key_of)

    def __call__(self) -> Authorities:
        """Those of now; what cannot be read leaves those of before."""
        stamp = self._files.stamp()
        if stamp != self._seen:
            try:
                self._loaded = self._files.load_authorities(self._key_of)
                self._seen = stamp
                _log.info("the CAs changed", extra={"phase": str(self._loaded.phase)})
            except CarpalError as error:
                _log.warning("the CAs are not reloaded", extra={"why": str(error)})
        return self._loaded


def read_certificate(path: Path) -> x509.Certificate:
    """A CA's certificate. CONFIG_INVALID."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise _bad(path, f"cannot be read ({error.strerror})", "restore it") from None
    except ValueError:
        raise _bad(path, "is damaged", "restore it") from None


def _bad(path: Path, problem: str, action: str = "") -> CarpalError:
    fields = {"action": action} if action else {}
    return refuse(Reason.CONFIG_INVALID, f"{path} {problem}", path=str(path), **fields)
