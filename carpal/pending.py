"""A key and its certificate request, on disk before the request is first sent.

After a lost answer or a crash the same request is sent again, and whoever
signs gives the same certificate: one machine never looks like two.
"""

import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from carpal.tls import certificate_request, key_pem, new_key, write_file


@dataclass(frozen=True, slots=True)
class Pending:
    """What waits for its certificate, or was asked for without an answer."""

    folder: Path | None
    """None when it is in memory alone."""
    key: ec.EllipticCurvePrivateKey
    request: bytes
    """PKCS #10, DER."""

    @classmethod
    def of(cls, identity_dir: Path, name: str, max_age: float | None = None) -> "Pending":
        """What was made under this name before, in the last `max_age` seconds, or a new one.

        Raises OSError when that cannot be saved.
        """
        folder = identity_dir / "pending" / name
        key_file, request_file = folder / "key.pem", folder / "request.der"
        try:  # the request is written last
            made = time.time() - request_file.stat().st_mtime
            if max_age is None or 0 <= made <= max_age:
                key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
                if isinstance(key, ec.EllipticCurvePrivateKey):
                    return cls(folder, key, request_file.read_bytes())
        except (FileNotFoundError, ValueError, TypeError, UnsupportedAlgorithm):
            pass  # none, or half of one
        made_now = cls.in_memory()
        write_file(key_file, key_pem(made_now.key))
        write_file(request_file, made_now.request)
        return cls(folder, made_now.key, made_now.request)

    @classmethod
    def in_memory(cls) -> "Pending":
        """A new one that is not saved."""
        key = new_key()
        return cls(None, key, certificate_request(key))

    def withdraw(self) -> None:
        """It was refused for good; what else is pending stays."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            with suppress(OSError):  # others are pending
                self.folder.parent.rmdir()

    def forget(self) -> None:
        """The identity is in place: what is pending, under any name, is of no more use."""
        if self.folder is not None:
            shutil.rmtree(self.folder.parent, ignore_errors=True)
