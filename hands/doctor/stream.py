"""A stream that is held: what cuts connections for being silent is found by being silent.

Two at once, each on a connection of its own: on one nothing is said at all, on the other as much
as heartbeats say on a link. So it is told apart what ends links, and what they are kept from by
their heartbeats.
"""

import asyncio
import time
from dataclasses import dataclass

import grpc

from carpal.client import KEEPALIVE, open_channel
from carpal.errors import CarpalError
from carpal.identity import Role, server_name
from carpal.rpc import health_pb2, health_pb2_grpc
from carpal.tls import Held, Loaded, channel_credentials
from hands.doctor.rows import Row, fail, ok, skip, warn
from hands.doctor.subject import BEAT, LONGEST_BEAT, Subject

MOST = 3600.0
"""Seconds that one may be held."""
_ANSWER = 10.0
_AT_ONCE = 30.0
"""Seconds for it to begin, whatever else it waits for."""
_SWALLOWED = "nothing comes through any more"


@dataclass(frozen=True)
class _Held:
    """What became of one."""

    lasted: float
    """Seconds."""
    cut: str = ""
    """Why it ended; empty when it did not."""


def not_held() -> Row:
    """The row of who did not ask for it."""
    return skip("stream", "not held", "to find what cuts connections, run it with --hold 75s")


async def held(subject: Subject, loaded: Loaded, address: str) -> Row:
    """What becomes of a stream to `host:port` in `subject.hold` seconds."""
    target, hold = f"stream {address}", subject.hold
    beat, longest = BEAT * subject.scale, LONGEST_BEAT * subject.scale
    silent, beating = await asyncio.gather(
        _hold(subject, loaded, address, 0.0), _hold(subject, loaded, address, beat)
    )
    if beating.cut:
        detail = f"was cut after {beating.lasted:.0f} s though it was not silent: {beating.cut}"
        action = (
            "find what ends connections on the way (a firewall's or proxy's longest time for one, "
            f"a balancer that is not L4), and have it let those to {address} live"
        )
        return fail(target, detail, action)
    if not silent.cut:
        return ok(target, f"held for {hold:g} s, silent and with heartbeats")
    detail = f"what is silent is cut after {silent.lasted:.0f} s: {silent.cut}"
    action = (
        f"have the proxy or firewall on the way let connections to {address} be silent for longer"
    )
    if silent.lasted <= longest:
        return fail(target, f"{detail}; heartbeats may be {longest:g} s apart", action)
    return warn(target, f"{detail}; heartbeats keep links up all the same", action)


def limit(subject: Subject) -> float:
    """Seconds that it may take in all."""
    return subject.hold + _AT_ONCE


async def _hold(subject: Subject, loaded: Loaded, address: str, beat: float) -> _Held:
    options: list[tuple[str, object]] = [
        ("grpc.ssl_target_name_override", server_name(Role.BRAIN, loaded.identity.trust_domain)),
        ("grpc.enable_retries", 0),
    ]
    if beat:
        options += KEEPALIVE
    else:
        # Not one byte of ours. The brain's own pings come every 30 s, which is what links have.
        options.append(("grpc.keepalive_time_ms", 2**31 - 1))
    credentials = channel_credentials(Held(loaded))
    proxy = subject.way.to(address)
    began = time.monotonic()
    async with open_channel(address, credentials, options, proxy) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        reading = asyncio.create_task(watch.read())
        beats = asyncio.create_task(_beat(stub, beat)) if beat else None
        try:
            done, _ = await asyncio.wait({reading}, timeout=_ANSWER)
            if not done:
                return _Held(time.monotonic() - began, _SWALLOWED)
            if reading.exception():
                return _cut(began, reading)
            began = time.monotonic()
            reading = asyncio.create_task(watch.read())
            waits = {reading} | ({beats} if beats else set())
            done, _ = await asyncio.wait(
                waits, timeout=subject.hold, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                return _cut(began, task)
            try:  # one that swallows all says nothing of it
                await stub.Check(health_pb2.HealthCheckRequest(), timeout=_ANSWER)
            except grpc.aio.AioRpcError as error:
                return _Held(time.monotonic() - began, _said(error))
            return _cut(began, reading) if reading.done() else _Held(subject.hold)
        finally:
            watch.cancel()
            for one in (reading, beats):
                if one is not None:
                    one.cancel()
            await asyncio.gather(*filter(None, (reading, beats)), return_exceptions=True)


async def _beat(stub: "health_pb2_grpc.HealthAsyncStub", seconds: float) -> None:
    """Ask on the same connection, again and again; ends with the first that is not answered."""
    while True:
        await asyncio.sleep(seconds)
        await stub.Check(health_pb2.HealthCheckRequest(), timeout=_ANSWER)


def _cut(began: float, ended: "asyncio.Task[object]") -> _Held:
    error = ended.exception()
    why = "the other end ended it" if error is None else _said(error)
    return _Held(time.monotonic() - began, why)


def _said(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return _SWALLOWED
        return (error.details() or error.code().name).rsplit(": ", 1)[-1][:160]
    return str(error) if isinstance(error, CarpalError) else type(error).__name__
