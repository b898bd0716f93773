"""What a lease ticket says, once it is known that sessiond signed it, for whoever shows it."""

from dataclasses import dataclass
from datetime import datetime

from google.protobuf.message import DecodeError

from carpal.errors import CarpalError, refuse
from carpal.identity import Identity, Role
from carpal.revocations import Revocations
from carpal.signed import verify
from carpal.status import Reason
from carpal.v1 import types_pb2

_KIND = "session/"


@dataclass(frozen=True, slots=True)
class Driver:
    """Who drives which session, as of when."""

    session: str
    workspace: str
    epoch: int
    uri: str
    fresh: bool
    """Whether the ticket is within its time. One that is not proves nothing of now."""
    agent: str = ""
    """The session's; empty when no operator named one."""
    user: str = ""
    """The end user that an operator made the session for."""


def driver(
    ticket: types_pb2.SignedBytes,
    who: Identity,
    ca: bytes,
    revocations: Revocations,
    now: datetime,
) -> Driver:
    """Of a ticket shown by `who`. TICKET_REFUSED."""
    try:
        revocations.check(verify(ticket, ca, Role.SESSIOND, now))
        told = types_pb2.LeaseTicket.FromString(ticket.payload)
    except (CarpalError, DecodeError):
        raise refused("it is not signed by sessiond") from None
    if told.holder != who.uri:
        raise refused("it is another's")
    session = told.resource.removeprefix(_KIND)
    if not told.resource.startswith(_KIND) or not session or not told.workspace:
        raise refused("it is of no session")
    fresh = told.expires.ToDatetime(now.tzinfo) > now
    return Driver(session, told.workspace, told.epoch, who.uri, fresh, told.agent, told.user)


def refused(why: str) -> CarpalError:
    """Why the ticket is not taken."""
    return refuse(Reason.TICKET_REFUSED, f"the lease ticket is refused: {why}")
