"""A channel that follows its identity: an RPC goes over a connection made with the newest one.

gRPC cannot change the certificate of a connection. So when the files change, a
new connection is made for the RPCs that begin from then on; those that go on
keep the old one until they end.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import grpc

from carpal.errors import CarpalError
from carpal.tls import IdentityFiles, Stamp, stamp

_log = logging.getLogger(__name__)

LOOK = 1.0
"""Seconds between looks at the files, when there are RPCs at all."""


class _Line:
    """One connection, and how many RPCs are on it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.rpcs = 0
        self.methods: dict[_Method, Any] = {}


class FollowingChannel(grpc.aio.Channel):
    """Dials anew, by `open_channel`, once the identity in `files` was replaced.

    One that cannot be dialled with, half-written or not valid, is left alone:
    the connection there is goes on.
    """

    def __init__(
        self,
        files: IdentityFiles,
        open_channel: Callable[[], grpc.aio.Channel],
        look: float | None = None,
    ) -> None:
        self._files = files
        self._open_channel = open_channel
        self._look = LOOK if look is None else look
        self._seen = stamp(files)
        self._next_look = time.monotonic() + self._look
        self._line = _Line(open_channel())
        self._older: set[_Line] = set()

    def line(self) -> _Line:
        """The connection for an RPC that begins now."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + self._look
            if (seen := stamp(self._files)) != self._seen:
                self._follow(seen)
        return self._line

    def ended(self, line: _Line) -> None:
        """An RPC on it did."""
        line.rpcs -= 1
        if not line.rpcs:
            # Not closed but dropped, which closes it: closing cancels whoever still looks at
            # what an RPC gave.
            self._older.discard(line)

    def _follow(self, seen: Stamp) -> None:
        try:
            line = _Line(self._open_channel())
        except CarpalError as error:
            _log.warning("not dialled anew", extra={"why": str(error)})
            return
        self._seen = seen
        if self._line.rpcs:
            self._older.add(self._line)
        self._line = line
        _log.info("dialled anew, as the identity was renewed")

    # What a channel does.

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        """See grpc.aio.Channel."""
        return _Method(self, "unary_unary", args, kwargs)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        """See grpc.aio.Channel."""
        return _Method(self, "unary_stream", args, kwargs)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        """See grpc.aio.Channel."""
        return _Method(self, "stream_unary", args, kwargs)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        """See grpc.aio.Channel."""
        return _Method(self, "stream_stream", args, kwargs)

    async def close(self, grace: float | None = None) -> None:
        """See grpc.aio.Channel."""
        lines = [self._line, *self._older]
        self._older.clear()
        await asyncio.gather(*(line.channel.close(grace) for line in lines))

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """See grpc.aio.Channel."""
        return self._line.channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """See grpc.aio.Channel."""
        await self._line.channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """See grpc.aio.Channel."""
        await self._line.channel.channel_ready()

    async def __aenter__(self) -> "FollowingChannel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Method:
    """A method on whichever connection there is when it is called."""

    def __init__(
        self, channel: FollowingChannel, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._channel = channel
        self._kind = kind
        self._args = args
        self._kwargs = kwargs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        line = self._channel.line()
        method = line.methods.get(self)
        if method is None:
            method = getattr(line.channel, self._kind)(*self._args, **self._kwargs)
            line.methods[self] = method
        call = method(*args, **kwargs)
        line.rpcs += 1
        call.add_done_callback(lambda _: self._channel.ended(line))
        return call
