"""What sessiond signs: tickets and heads.

A ticket proves to the vault and to hands that a lease was granted; a head
proves to anyone what a log was.
"""

from google.protobuf.message import Message

from carpal.own_identity import Newest
from carpal.signed import sign
from carpal.tls import IdentityFiles
from carpal.v1 import types_pb2
from sessiond import wire
from sessiond.founding import Founding
from sessiond.rows import LeaseRow

NOBODYS = Founding()


class Tickets:
    """Signs with the identity this process serves under, as it is on disk now."""

    def __init__(self, files: IdentityFiles) -> None:
        self._own = Newest(files)

    def sign(self, lease: LeaseRow, wall: int, made: Founding = NOBODYS) -> types_pb2.SignedBytes:
        """A serialized LeaseTicket that is good for the lease's first term, from `wall` on.

        Renewing a lease does not renew its ticket: whoever takes tickets
        exchanges one at once for something of its own.
        """
        ticket = types_pb2.LeaseTicket(
            resource=lease.resource,
            epoch=lease.epoch,
            holder=lease.holder,
            workspace=lease.workspace,
            expires=wire.timestamp(wall + lease.term),
            agent=made.agent,
            user=made.user,
        )
        return self._sign(ticket)

    def sign_head(self, session: types_pb2.SessionInfo, wall: int) -> types_pb2.SignedBytes:
        """A serialized SignedHead: the log of `session` up to its head, as it is at `wall`."""
        head = types_pb2.SignedHead(
            session_id=session.session_id,
            head=session.head,
            time=wire.timestamp(wall),
            chain_id=session.chain_id or session.session_id,
        )
        return self._sign(head)

    def _sign(self, message: Message) -> types_pb2.SignedBytes:
        own = self._own.loaded()
        return sign(own.key, own.chain, message.SerializeToString(deterministic=True))
