"""What happens on a link, as its shells are told. Pure."""

from dataclasses import dataclass

from carpal.errors import CarpalError
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import types_pb2


@dataclass(frozen=True)
class Greeted:
    """The brain got a valid hello and must answer with `welcome`."""

    hello: pb.Hello
    protocol: int


@dataclass(frozen=True)
class Welcomed:
    """The daemon is linked."""

    welcome: pb.Welcome


@dataclass(frozen=True)
class Requested:
    """The daemon was asked for something."""

    request: pb.Request


@dataclass(frozen=True)
class Replied:
    """The brain got one message of an answer; with `attached`, the rest comes on an Attach."""

    reply: pb.Reply


@dataclass(frozen=True)
class Abandoned:
    """The brain no longer reads this request's answer, wherever it travels."""

    request_id: int


@dataclass(frozen=True)
class Contact:
    """The brain's end lives; its own lease has this many seconds left."""

    lease_left: float


@dataclass(frozen=True)
class CapacityChanged:
    """The daemon's room for hands changed."""

    capacity: pb.Capacity


@dataclass(frozen=True)
class BrainsChanged:
    """The addresses a daemon may dial, from now on."""

    addresses: tuple[str, ...]


@dataclass(frozen=True)
class RevocationsTold:
    """The servers that are revoked, as the brain says: to be believed if the vault signed it."""

    revocations: tuple[types_pb2.Revocation, ...]


@dataclass(frozen=True)
class PeerDraining:
    """The other end goes away soon."""

    drain: pb.Drain


@dataclass(frozen=True)
class Closed:
    """The link ended: by goodbye or with its stream (no error), or by a fault."""

    error: CarpalError | None
    reason: str
    request_id: int = 0
    """The request whose answer was the fault; 0 when none was."""


Event = (
    Greeted
    | Welcomed
    | Requested
    | Replied
    | Abandoned
    | Contact
    | CapacityChanged
    | BrainsChanged
    | RevocationsTold
    | PeerDraining
    | Closed
)
