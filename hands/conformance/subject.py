"""What is checked: one hand type, behind a server of the Hand service on a unix socket."""

import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from carpal.client import MESSAGE_BYTES, rpc_errors
from carpal.errors import CarpalError, NotBuilt, invalid
from carpal.loop_watch import the_one_loop
from carpal.v1 import hand_pb2 as pb
from carpal.v1.hand_pb2_grpc import HandStub
from hands.conformance.own import OwnServer

if TYPE_CHECKING:
    from carpal.v1.hand_pb2_grpc import HandAsyncStub  # known to the stubs alone

WORKSPACE = "check"
"""Of the sessions that drive the hands of the checks."""
_LONGEST = 107
"""Bytes that a unix socket's address holds."""
_ANSWER = 10.0
"""Seconds for a server to describe itself."""
_LIMIT = 120.0
"""Seconds that a call may take where nobody says otherwise."""
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class Subject:
    """One hand type, and how to reach its server."""

    socket: Path
    type: pb.HandTypeInfo
    """With the tools of its hands, once the first of them listed its own."""
    health: pb.ProbeResponse | None
    """None when the server offers no Probe."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Of every hand that is provisioned."""
    own: OwnServer | None = None
    """The server, when it is ours to kill."""
    plain: tuple[str, dict[str, Any]] | None = None
    """A tool and an input that do no harm, where the checks know none."""
    long: tuple[str, dict[str, Any]] | None = None
    """A tool and an input that last, where the checks know none."""
    says: tuple[str, dict[str, Any]] | None = None
    """A tool and an input that have the hand say something unasked."""
    lacks: frozenset[str] = frozenset()
    """Commands that its hands have not, of those that checks use."""
    described: int = 0
    """Tools that its Describe has."""

    @property
    def capabilities(self) -> frozenset[str]:
        """What the type says it can do."""
        return frozenset(self.type.capabilities)

    @property
    def has_units(self) -> bool:
        """Whether each of its hands has a unit."""
        return "units" in self.capabilities

    @property
    def units(self) -> list[str]:
        """Its units that a hand may get; how they are, a daemon alone says."""
        says = "claim" in self.capabilities
        named = [each.unit_id for each in self.type.units if each.healthy or not says]
        return list(dict.fromkeys(named))

    def limit(self, tool: str) -> float:
        """Seconds that a daemon gives a call of a server of its own; 0 leaves it to the server."""
        if "claim" in self.capabilities:
            return 0.0
        for each in self.type.tools:
            if each.name == tool and each.HasField("time_limit"):
                return each.time_limit.ToNanoseconds() / 1e9
        return _LIMIT

    @property
    def config_fields(self) -> Mapping[str, Any]:
        """Its config's fields, by name."""
        properties = json.loads(self.type.config_schema or b"{}").get("properties")
        return properties if isinstance(properties, dict) else {}

    def enforces(self, limit: str) -> bool:
        """Whether the type says, by not saying otherwise, that it enforces a limit here."""
        return self.health is not None and limit not in self.health.not_enforceable

    @property
    def server_pid(self) -> int:
        """The process that listens; 0 when that is not known, as across pid namespaces."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(_ANSWER)
            asking.connect(str(self.socket))
            size = _CREDENTIALS.size
            raw = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        pid: int = _CREDENTIALS.unpack(raw)[0]
        return pid


def socket_of(endpoint: str) -> Path:
    """The path in `unix:///PATH`; INVALID_FIELD when it is none, or too long."""
    _, scheme, path = endpoint.rpartition("unix:")
    if not scheme or not path.startswith("/"):
        raise invalid(
            "--endpoint", f"{endpoint!r} is not unix:///PATH, as in unix:///run/hand.sock"
        )
    found = Path("/" + path.lstrip("/"))
    if len(str(found).encode()) > _LONGEST:
        raise invalid("--endpoint", f"a socket's path has at most {_LONGEST} bytes")
    return found


@asynccontextmanager
async def dialled(path: Path) -> AsyncIterator["HandAsyncStub"]:
    """A connection of its own to the server that listens there."""
    the_one_loop()
    options = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_send_message_length", MESSAGE_BYTES),
        ("grpc.use_local_subchannel_pool", 1),  # else connections to one address are shared
        ("grpc.initial_reconnect_backoff_ms", 100),
    ]
    async with grpc.aio.insecure_channel(f"unix:{path}", options=options) as channel:
        yield HandStub(channel)


async def subject_at(
    path: Path,
    type_name: str | None,
    config: Mapping[str, Any],
    own: OwnServer | None = None,
    plain: tuple[str, dict[str, Any]] | None = None,
    *,
    long: tuple[str, dict[str, Any]] | None = None,
    says: tuple[str, dict[str, Any]] | None = None,
) -> Subject:
    """The type of that name, or the only one there. UNREACHABLE when nobody answers."""
    peer = f"the hand server at {path}"
    async with dialled(path) as stub:
        with rpc_errors(peer):
            described = await stub.Describe(pb.DescribeRequest(), timeout=_ANSWER)
        chosen = _chosen(described.types, type_name)
        health: pb.ProbeResponse | None
        try:
            with rpc_errors(peer):
                health = await stub.Probe(pb.ProbeRequest(type=chosen.type), timeout=_ANSWER)
        except NotBuilt:
            health = None
    made = Subject(path, chosen, health, config, own, plain, long, says)
    return replace(made, described=len(chosen.tools))


def _chosen(types: Sequence[pb.HandTypeInfo], name: str | None) -> pb.HandTypeInfo:
    names = ", ".join(one.type for one in types) or "none"
    if name is None and len(types) == 1:
        return types[0]
    for one in types:
        if one.type == name:
            return one
    if name is None:
        raise invalid("--type", f"say which: the server has {names}")
    raise invalid("--type", f"the server has no {name!r}; it has {names}")


async def reach(subject: Subject) -> CarpalError | None:
    """Why the server does not answer any more; None when it does."""
    try:
        async with dialled(subject.socket) as stub:
            with rpc_errors(f"the hand server at {subject.socket}"):
                await stub.Describe(pb.DescribeRequest(), timeout=_ANSWER)
    except CarpalError as error:
        return error
    return None
