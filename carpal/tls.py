"""Keys and certificates on disk, and gRPC credentials that follow their rotation.

An identity is a folder of three PEM files: `key.pem`, `cert.pem` (leaf first,
then the CA, so that a peer can be shown the CA it pinned) and `ca.pem` (every
CA to trust). A new one is put in `candidate/` whole, tried, and then promoted;
a crash at any point leaves either the old identity or the new one.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, cast

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from carpal.errors import CarpalError, refuse
from carpal.fault_points import point
from carpal.identity import Identity, Role, identity_of
from carpal.status import Reason

_log = logging.getLogger(__name__)

_SCRATCH = ".candidate-"
_NO_IDENTITY = "issue the identity first, with `carpal vault issue`; or give its --state-dir"
_TURN = 10.0
"""Seconds that one writer of an identity waits for another: a renewal asks the vault meanwhile."""
_TURN_LOOK = 0.02
"""Between looks whether the other is done."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """An identity read from disk, whose parts belong together."""

    key: ec.EllipticCurvePrivateKey = field(repr=False, compare=False)
    key_pem: bytes = field(repr=False)
    chain: bytes
    ca: bytes
    identity: Identity


class Shown(Protocol):
    """An identity to dial with: a folder of files, or one that is held in memory."""

    def identity(self) -> Identity:
        """Its claims, valid now or not."""
        ...

    def load_valid(self, now: datetime | None = None) -> Loaded:
        """All of it; CERTIFICATE_EXPIRED or CONFIG_INVALID when it is not valid now."""
        ...


@dataclass(frozen=True, slots=True)
class Held:
    """An identity in memory: what could not be saved is shown all the same."""

    loaded: Loaded

    def identity(self) -> Identity:
        """See Shown."""
        return self.loaded.identity

    def load_valid(self, now: datetime | None = None) -> Loaded:
        """See Shown."""
        check_dates(self.loaded.identity, Path("in memory"), now or datetime.now(UTC))
        return self.loaded


@dataclass(frozen=True, slots=True)
class IdentityFiles:
    """The folder of one identity."""

    directory: Path

    @property
    def key(self) -> Path:
        """The private key, PEM, mode 0600."""
        return self.directory / "key.pem"

    @property
    def certificate(self) -> Path:
        """The chain, PEM: the leaf, then the CA that signed it."""
        return self.directory / "cert.pem"

    @property
    def ca(self) -> Path:
        """Every CA to trust, PEM."""
        return self.directory / "ca.pem"

    @property
    def candidate(self) -> "IdentityFiles":
        """Where the next identity waits until it is promoted."""
        return IdentityFiles(self.directory / "candidate")

    def exists(self) -> bool:
        """Whether all three files are there; `load` says whether they are any good."""
        return all(path.is_file() for path in (self.key, self.certificate, self.ca))

    def identity(self) -> Identity:
        """The claims of the certificate, valid now or not. Raises CONFIG_INVALID."""
        return _claims(self.certificate)

    def load(self) -> Loaded:
        """All parts, checked against each other but not against the clock.

        Raises CONFIG_INVALID naming the file that is missing, unreadable,
        readable by others, or not of the same identity.
        """
        loaded = self._load() if self.exists() or not self.candidate.exists() else None
        if loaded is None and self.candidate.exists():
            loaded = self._finish()
        if loaded is None:
            raise _bad(self.certificate, f"is not the certificate of {self.key}")
        return loaded

    def look(self) -> Loaded:
        """As `load`, for who only looks: nothing is changed, also by a promotion cut short."""
        loaded = self._load() if self.exists() or not self.candidate.exists() else None
        if loaded is None and self.candidate.exists():
            loaded = self.candidate._load()
        if loaded is None:
            raise _bad(self.certificate, f"is not the certificate of {self.key}")
        return loaded

    def _finish(self) -> Loaded | None:
        """A promotion was cut short between two files, or is under way: what it leads to."""
        try:
            with self.writing():
                if self.candidate.exists():
                    self.promote()
        except (OSError, CarpalError) as error:
            # No room, or someone else is at it: the candidate is whole until all is in place.
            _log.warning("identity not in place yet", extra={"problem": str(error)})
            with contextlib.suppress(CarpalError):
                return self.candidate._load()
        return self._load()

    def load_valid(self, now: datetime | None = None) -> Loaded:
        """`load`, and CERTIFICATE_EXPIRED or CONFIG_INVALID when it is not valid now."""
        loaded = self.load()
        check_dates(loaded.identity, self.certificate, now or datetime.now(UTC))
        return loaded

    @contextlib.contextmanager
    def writing(self, wait: float = 0.0) -> Iterator[None]:
        """Be the only one that changes the identity; CONFIG_INVALID while another does.

        Blocks for up to `wait` seconds until the other is done.
        """
        patience = time.monotonic() + wait
        with contextlib.ExitStack() as turn:
            while not self._entered(turn, last=time.monotonic() >= patience):
                time.sleep(_TURN_LOOK)
            yield

    @contextlib.asynccontextmanager
    async def writing_in_turn(self, wait: float | None = None) -> AsyncIterator[None]:
        """`writing`, which does not block the event loop while it waits.

        One process has several that write: what renews, and what follows the authorities.
        """
        patience = time.monotonic() + (_TURN if wait is None else wait)
        with contextlib.ExitStack() as turn:
            while not self._entered(turn, last=time.monotonic() >= patience):  # noqa: ASYNC110
                await asyncio.sleep(_TURN_LOOK)
            yield

    def _entered(self, turn: contextlib.ExitStack, *, last: bool) -> bool:
        """Whether it is this one's turn, until `turn` ends. Raises when that was the `last` try."""
        private_folder(self.directory)
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise
            if not last:
                return False
            raise _bad(
                self.directory, "is being renewed by another process", "try again in a moment"
            ) from None
        turn.callback(os.close, descriptor)
        return True

    def install(self, key: bytes, chain: bytes, ca: bytes) -> None:
        """Put a whole identity in place: stage, then promote. Blocks until it is its turn."""
        with self.writing(_TURN):
            self.stage(key, chain, ca)
            self.promote()

    def stage(self, key: bytes, chain: bytes, ca: bytes) -> "IdentityFiles":
        """Write a candidate beside the identity, all or nothing, and return it."""
        private_folder(self.directory)
        for left in self.directory.glob(f"{_SCRATCH}*"):  # by one that was killed
            shutil.rmtree(left, ignore_errors=True)
        scratch = IdentityFiles(self.directory / f"{_SCRATCH}{secrets.token_hex(4)}")
        try:
            write_file(scratch.key, key)
            point("identity.candidate.key")
            write_file(scratch.certificate, chain)
            write_file(scratch.ca, ca)
            point("identity.candidate.written")
            shutil.rmtree(self.candidate.directory, ignore_errors=True)
            scratch.directory.rename(self.candidate.directory)
        except OSError:
            shutil.rmtree(scratch.directory, ignore_errors=True)
            raise
        _sync_folder(self.directory)
        return self.candidate

    def promote(self) -> None:
        """Make the candidate the identity. Again after a crash has the same end."""
        candidate = self.candidate
        for source, target in (
            (candidate.ca, self.ca),
            (candidate.key, self.key),
            (candidate.certificate, self.certificate),
        ):
            write_file(target, _read(source))
            point(f"identity.promotion.{target.stem}")
        shutil.rmtree(candidate.directory, ignore_errors=True)

    def _load(self) -> Loaded | None:
        """All parts, or None when key and certificate do not belong together."""
        key_pem = _read_private(self.key)
        try:
            key = serialization.load_pem_private_key(key_pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise _bad(self.key, "is not a PEM private key") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise _bad(self.key, "is not an elliptic curve key")
        chain, ca = _read(self.certificate), _read(self.ca)
        try:
            leaf = x509.load_pem_x509_certificate(chain)
        except ValueError:
            raise _bad(self.certificate, "is not a PEM certificate") from None
        try:
            x509.load_pem_x509_certificates(ca)
        except ValueError:
            raise _bad(self.ca, "holds no PEM certificate") from None
        if leaf.public_key() != key.public_key():
            return None
        return Loaded(key, key_pem, chain, ca, _claims(self.certificate))


def new_key() -> ec.EllipticCurvePrivateKey:
    """A fresh P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key as PKCS #8 PEM, not encrypted: the file's mode guards it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def certificate_request(key: ec.EllipticCurvePrivateKey) -> bytes:
    """PKCS #10 DER for `key`. It names nobody: the vault takes only the key from it."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def private_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, for the owner's eyes only."""
    if not path.parent.exists():
        private_folder(path.parent)  # `parents=True` would leave these open to others
    path.mkdir(mode=0o700, exist_ok=True)


def write_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file whole: after a crash it is the old one or the new one, and durable."""
    private_folder(path.parent)
    scratch = path.parent / f".{path.name}-{secrets.token_hex(4)}"
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask says
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def check_dates(identity: Identity, path: Path, now: datetime) -> None:
    """CERTIFICATE_EXPIRED, or CONFIG_INVALID when its time has not begun."""
    if identity.expired(now):
        raise refuse(
            Reason.CERTIFICATE_EXPIRED,
            f"the certificate {path} of {identity.uri} expired at {identity.not_after:%F %T} UTC, "
            f"and it is {now:%F %T} here",
            path=str(path),
            action=_anew(identity),
        )
    if identity.not_yet_valid(now):
        raise _bad(
            path,
            f"is valid only from {identity.not_before:%F %T} UTC, and it is {now:%F %T} here",
            "set this machine's clock",
        )


def _anew(identity: Identity) -> str:
    if identity.role is Role.DAEMON:
        return "it renews itself as soon as a brain answers; check this machine's clock too"
    command = f"carpal vault issue {identity.role} {identity.name}"
    return f"run `{command}` on the vault's machine; check this machine's clock too"


def server_credentials(files: IdentityFiles, require_client: bool = True) -> grpc.ServerCredentials:
    """Credentials that read the files anew at a handshake after they changed.

    With `require_client` a peer must show a certificate of a trusted CA; without
    it none is asked for (Python gRPC knows nothing between the two).

    Raises as `IdentityFiles.load_valid`.
    """
    return grpc.dynamic_ssl_server_credentials(
        _configuration(files.load_valid(), require_client),
        # The stubs do not know that None is an answer: nothing changed.
        cast("Callable[[], grpc.ServerCertificateConfiguration]", _Fetcher(files, require_client)),
        require_client_authentication=require_client,
    )


def channel_credentials(shown: Shown) -> grpc.ChannelCredentials:
    """Credentials for one channel; after a rotation, dial anew. Raises as `load_valid`."""
    loaded = shown.load_valid()
    return grpc.ssl_channel_credentials(loaded.ca, loaded.key_pem, loaded.chain)


class _Fetcher:
    """Called by gRPC at each handshake; None means: what you have is current."""

    def __init__(self, files: IdentityFiles, require_client: bool) -> None:
        self._files = files
        self._require_client = require_client
        self._seen = stamp(files)

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        now = stamp(self._files)
        if now == self._seen:
            return None
        try:
            # Not `load`: an unfinished promotion is its writer's to finish.
            loaded = self._files._load()
        except CarpalError as error:
            _log.warning("identity not reloaded", extra={"problem": error.message})
            return None
        if loaded is None:  # between two files of a promotion
            return None
        self._seen = now
        _log.info("identity reloaded", extra={"expires": loaded.identity.not_after.isoformat()})
        return _configuration(loaded, self._require_client)


def _configuration(loaded: Loaded, require_client: bool) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(loaded.key_pem, loaded.chain)], root_certificates=loaded.ca if require_client else None
    )


Stamp = tuple[tuple[int, int], ...]


def stamp(files: IdentityFiles) -> Stamp:
    """Changes whenever a file is replaced."""
    stamps = []
    for path in (files.key, files.certificate, files.ca):
        with contextlib.suppress(OSError):
            stat = path.stat()
            stamps.append((stat.st_ino, stat.st_mtime_ns))
    return tuple(stamps)


def _claims(path: Path) -> Identity:
    try:
        return identity_of(_read(path))
    except CarpalError as error:
        if error.reason is not Reason.IDENTITY_INVALID:
            raise
        raise _bad(path, f"is no Carpal certificate ({error.message})") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise _bad(path, "does not exist", _NO_IDENTITY) from None
    except OSError as error:
        raise _bad(path, f"cannot be read ({error.strerror})") from None


def _read_private(path: Path) -> bytes:
    data = _read(path)
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise _bad(path, f"is open to others (mode {mode:04o})", f"run: chmod 600 {path}")
    return data


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _bad(path: Path, problem: str, action: str = "") -> CarpalError:
    fields = {"action": action} if action else {}
    return refuse(Reason.CONFIG_INVALID, f"{path} {problem}", path=str(path), **fields)
