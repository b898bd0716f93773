"""A hand server of someone's own, on a unix socket: the daemon's connection to it.

It is another program, in any language, and is trusted no further than a hand: what it says is
bounded and checked, and every answer waited for so long and no longer. When its process ends, every
hand of it is lost, since nobody knows what a new process still has.
"""

import asyncio
import logging
import os
import re
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from carpal.client import MESSAGE_BYTES, from_rpc
from carpal.errors import CarpalError
from carpal.loop_watch import the_one_loop
from carpal.v1 import hand_pb2 as pb
from carpal.v1.hand_pb2_grpc import HandStub

if TYPE_CHECKING:
    from carpal.v1.hand_pb2_grpc import HandAsyncStub  # known to the stubs alone

log = logging.getLogger(__name__)

ANSWER = 5.0
"""Seconds for a question that makes nothing."""
_CREDENTIALS = struct.Struct("3i")
_TOO_LARGE = re.compile(r"Received message larger than max \((\d+) vs")
_WHY_MAX = 500
"""Characters of a server's own words."""
_LOCAL_USER = "daemon"
"""The workspace that a server is told of: who drives is the daemon's to know."""


class Server:
    """One server, dialled when it is first asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._channel: grpc.aio.Channel | None = None
        self._stub: HandAsyncStub | None = None
        self._losing: set[Callable[[str], None]] = set()
        self._pid = 0
        self._life = -1
        """A descriptor that is readable once the process that listens has ended."""

    @property
    def stub(self) -> "HandAsyncStub":
        """What to ask it by."""
        if self._stub is None:
            the_one_loop()
            options = [
                ("grpc.max_receive_message_length", MESSAGE_BYTES),
                ("grpc.max_send_message_length", MESSAGE_BYTES),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 2000),
                ("grpc.enable_http_proxy", 0),
            ]
            self._channel = grpc.aio.insecure_channel(f"unix:{self.path}", options=options)
            self._stub = HandStub(self._channel)
        return self._stub

    def on_loss(self, lose: Callable[[str], None]) -> Callable[[], None]:
        """Have `lose` told why once its process ends; returns what takes that back."""
        self._losing.add(lose)
        self._look()
        return lambda: self._losing.discard(lose)

    async def dialled(self) -> None:
        """Until the connection is there, where somebody listens; else the next question says why.

        Of a server that was away, gRPC waits up to two seconds before it dials again.
        """
        if self._channel is None or _listener(self.path) is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER):
                await self._channel.channel_ready()

    async def close(self) -> None:
        """Hang up."""
        self._losing.clear()
        self._forget()
        if self._channel is not None:
            await self._channel.close()
            self._channel = self._stub = None

    def _look(self) -> None:
        """Watch the process that listens now, as far as the kernel says which that is."""
        pid = _listener(self.path) or 0
        if pid == self._pid:
            return
        if self._pid:
            self._ended()
        if pid:
            try:
                self._life = os.pidfd_open(pid)
            except ProcessLookupError:
                self._ended()
                return
            self._pid = pid
            asyncio.get_running_loop().add_reader(self._life, self._ended)

    def _ended(self) -> None:
        log.warning("hand server ended", extra={"socket": str(self.path)})
        self._forget()
        for lose in tuple(self._losing):
            lose("its server ended")

    def _forget(self) -> None:
        if self._life >= 0:
            asyncio.get_running_loop().remove_reader(self._life)
            os.close(self._life)
        self._life, self._pid = -1, 0

    @property
    def down(self) -> bool:
        """Whether nobody listens there, for certain."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.setblocking(False)
            try:
                asking.connect(str(self.path))
            except (FileNotFoundError, ConnectionRefusedError):
                return True
            except OSError:  # a full backlog, or a place that is not to be entered
                return False
        return False

    def why(self, error: grpc.RpcError) -> str:
        """Why an RPC failed, in few words; where nobody listens, what to do."""
        return f"{self.reason(error)}; {self.start}" if self.down else self.reason(error)

    @property
    def start(self) -> str:
        """What to do about one that is down."""
        return f"start the server at {self.path}"

    def reason(self, error: grpc.RpcError) -> str:
        """Why an RPC failed, in few words."""
        if isinstance(error, grpc.aio.AioRpcError) and (
            large := _TOO_LARGE.search(error.details() or "")
        ):
            return f"it answered with a message of {large[1]} bytes: a result is at most 4 MiB"
        return words(from_rpc(error, f"the hand server at {self.path}"))


def words(error: CarpalError) -> str:
    """A refusal in few words, whoever wrote it."""
    return error.message[:_WHY_MAX]


def driver(hand_id: str) -> pb.Driver:
    """Who drives, as a server is told: fencing sessions is the daemon's work."""
    return pb.Driver(session_id=hand_id, epoch=1, workspace=_LOCAL_USER)


def _listener(path: Path) -> int | None:
    """The process that listens there, as this machine counts; 0 for one that is not known here.

    None when nobody does.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(str(path))
            raw = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return None
    pid: int = _CREDENTIALS.unpack(raw)[0]
    return pid
