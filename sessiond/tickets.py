"""Tickets: proof, for the vault and for hands, that sessiond granted a lease."""

from carpal.signed import sign
from carpal.tls import Loaded
from carpal.v1 import types_pb2
from sessiond import wire
from sessiond.rows import LeaseRow


class Tickets:
    """Signs with the identity this process serves under."""

    def __init__(self, identity: Loaded) -> None:
        self._identity = identity

    def sign(self, lease: LeaseRow, wall: int) -> types_pb2.SignedBytes:
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
        )
        payload = ticket.SerializeToString(deterministic=True)
        return sign(self._identity.key, self._identity.chain, payload)
