"""A server's TLS context that follows its identity's files: each handshake has what is on disk."""

import logging
import ssl
from typing import Any

from carpal.errors import CarpalError
from carpal.tls import IdentityFiles, Loaded, stamp

_log = logging.getLogger(__name__)


def following_context(files: IdentityFiles) -> ssl.SSLContext:
    """Mutual TLS 1.3 by an identity that may be replaced. Raises as `IdentityFiles.load_valid`."""
    context = _Following(ssl.PROTOCOL_TLS_SERVER)
    context.follow(files)
    return context


class _Following(ssl.SSLContext):
    """Stands for the context of now: asyncio asks it for each connection's channel."""

    def follow(self, files: IdentityFiles) -> None:
        self._files = files
        self._seen = stamp(files)
        self._now = _context(files, files.load_valid())

    def wrap_bio(self, *args: Any, **named: Any) -> ssl.SSLObject:
        if (seen := stamp(self._files)) != self._seen:
            try:
                # Not `load`: an unfinished promotion is its writer's to finish.
                self._now = _context(self._files, self._files.look())
                self._seen = seen
            except (CarpalError, ssl.SSLError, OSError) as error:
                _log.warning("identity not reloaded", extra={"kind": type(error).__name__})
        return self._now.wrap_bio(*args, **named)


def _context(files: IdentityFiles, loaded: Loaded) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # whoever calls is ours
    context.verify_mode = ssl.CERT_REQUIRED
    # Between two files of a promotion they do not belong together, and OpenSSL says so.
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(cadata=loaded.ca.decode("ascii"))
    context.num_tickets = 0  # a session resumed would not show its certificate anew
    return context
