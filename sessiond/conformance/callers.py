"""Who the checks call as: identities from folders, each with a connection of its own."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from carpal.client import dial, from_rpc
from carpal.errors import Unreachable, refuse
from carpal.identity import Identity, Role
from carpal.ids import new_id
from carpal.status import Reason
from carpal.tls import IdentityFiles
from carpal.v1 import session_pb2 as pb
from carpal.v1.session_pb2_grpc import SessionStub

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub  # known to the stubs alone

PROBE_SECONDS = 10.0
SEATS = {
    "brain": Role.BRAIN,
    "brain-2": Role.BRAIN,
    "operator": Role.OPERATOR,
    "other-operator": Role.OPERATOR,
    "vault": Role.VAULT,
    "daemon": Role.DAEMON,
}
"""The folders below `--identities`, and the role of the identity in each."""


@dataclass(frozen=True)
class Caller:
    """Someone who calls."""

    identity: Identity
    ca: bytes
    """What this caller trusts, PEM."""
    stub: "SessionAsyncStub"
    endpoint: str
    """Where the service listens, `host:port`."""


def find(directory: Path) -> dict[str, IdentityFiles]:
    """The identities in the folders of `directory`, by seat; CONFIG_INVALID when unfit."""
    found = {seat: IdentityFiles(directory / seat) for seat in SEATS if (directory / seat).is_dir()}
    if not found:
        raise _unfit(f"{directory} has none of the folders {', '.join(SEATS)}")
    identities = {seat: files.load_valid().identity for seat, files in found.items()}
    for seat, identity in identities.items():
        if identity.role is not SEATS[seat]:
            raise _unfit(f"{directory / seat} holds {identity.uri}, which is no {SEATS[seat]}")
    _differ(directory, identities, "brain", "brain-2", "uri")
    _differ(directory, identities, "operator", "other-operator", "workspace")
    return found


@asynccontextmanager
async def connected(
    found: Mapping[str, IdentityFiles], *endpoints: str
) -> AsyncIterator[dict[str, Caller]]:
    """Callers of the service, spread over its endpoints; UNREACHABLE when one does not answer."""
    async with AsyncExitStack() as stack:
        callers = {}
        for seat, endpoint in zip(found, cycle(endpoints)):
            files = found[seat]
            loaded = files.load_valid()
            channel = await stack.enter_async_context(dial(endpoint, Role.SESSIOND, files))
            callers[seat] = Caller(loaded.identity, loaded.ca, SessionStub(channel), endpoint)
        await reach(callers)
        yield callers


async def reach(callers: Mapping[str, Caller]) -> None:
    """UNREACHABLE unless every endpoint answers: it is asked for what does not exist."""
    for caller in {caller.endpoint: caller for caller in callers.values()}.values():
        request = pb.GetSessionRequest(session_id=new_id("none"))
        try:
            await caller.stub.GetSession(request, timeout=PROBE_SECONDS)
        except grpc.RpcError as error:
            refusal = from_rpc(error, f"the service at {caller.endpoint}")
            if isinstance(refusal, Unreachable):
                raise refusal from None


def _differ(
    directory: Path, identities: Mapping[str, Identity], one: str, other: str, claim: str
) -> None:
    if one in identities and other in identities:
        value = getattr(identities[one], claim)
        if value == getattr(identities[other], claim):
            raise _unfit(f"{directory / one} and {directory / other} are both of {value}")


def _unfit(problem: str) -> Exception:
    return refuse(
        Reason.CONFIG_INVALID,
        problem,
        action="issue each with `carpal vault issue ROLE NAME --out DIR/FOLDER`",
    )
