"""What sessiond signs: tickets and heads.

A ticket proves to the vault and to hands that a lease was granted; a head
proves to anyone what a log was.
"""

import logging

from google.protobuf.message import Message

from carpal.errors import CarpalError
from carpal.signed import sign
from carpal.tls import IdentityFiles
from carpal.v1 import types_pb2
from sessiond import wire
from sessiond.rows import LeaseRow

_log = logging.getLogger(__name__)


class Tickets:
    """Signs with the identity this process serves under, as it is on disk now."""

    def __init__(self, files: IdentityFiles) -> None:
        self._files = files
        self._identity = files.load_valid()
        self._seen = self._stamp()

    def sign(self, lease: LeaseRow, wall: int) -> types_pb2.SignedBytes:
        """A serialized LeaseTicket that is good for the lease's first term, from `wall` on.

        Renewing a lease does not renew its ticket: whoever takes tickets
        exchanges one at once for something of its own.
        """
        self._follow()
        ticket = types_pb2.LeaseTicket(
            resource=lease.resource,
            epoch=lease.epoch,
            holder=lease.holder,
            workspace=lease.workspace,
            expires=wire.timestamp(wall + lease.term),
        )
        return self._sign(ticket)

    def sign_head(self, session: types_pb2.SessionInfo, wall: int) -> types_pb2.SignedBytes:
        """A serialized SignedHead: the log of `session` up to its head, as it is at `wall`."""
        self._follow()
        head = types_pb2.SignedHead(
            session_id=session.session_id,
            head=session.head,
            time=wire.timestamp(wall),
            chain_id=session.chain_id or session.session_id,
        )
        return self._sign(head)

    def _sign(self, message: Message) -> types_pb2.SignedBytes:
        payload = message.SerializeToString(deterministic=True)
        return sign(self._identity.key, self._identity.chain, payload)

    def _follow(self) -> None:
        """Take up a renewed identity; the certificate is the last of its files to be replaced."""
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        if stamp is None:
            path = str(self._files.certificate)
            _log.warning("certificate is gone; signing with the one loaded", extra={"path": path})
            return
        try:
            self._identity = self._files.load_valid()
        except CarpalError as error:
            _log.warning("identity not reloaded", extra={"problem": error.message})

    def _stamp(self) -> tuple[int, int] | None:
        """Of the certificate's file; None when it cannot be looked at."""
        try:
            stat = self._files.certificate.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns
