"""What a brain says: what time it is, what it thinks of this machine, which versions it serves."""

import time
from datetime import UTC, timedelta

import grpc

from carpal import __version__
from carpal.client import dial, from_rpc, rpc_errors
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.link import PROTOCOL_MAX, PROTOCOL_MIN
from carpal.rpc import health_pb2, health_pb2_grpc
from carpal.status import Reason
from carpal.tls import Held, Loaded
from carpal.v1 import enrollment_pb2 as pb
from hands.doctor import unclocked
from hands.doctor.network import Way
from hands.doctor.rows import Row, fail, ok, skip, warn
from hands.doctor.subject import Subject
from hands.leaving import Diagnosis, diagnosis, who_asks

_ANSWER = 10.0
"""Seconds for one."""
_TRUE = timedelta(seconds=30)
"""By which a clock may be wrong without a word."""
_WRONG = timedelta(minutes=5)
"""By which certificates are dated back: a clock that is further behind finds new ones not valid."""


async def asked(subject: Subject, loaded: Loaded, there: Way) -> list[Row]:
    """The rows `clock`, `standing` and `version`, by the one known enrolment port."""
    address = subject.enrollment()
    began, before = subject.now(), time.monotonic()
    try:
        proxy = subject.way.to(address)
        asking = unclocked.asking(address, there.domain, there.ca, proxy)
        async with asking as stub:
            began, before = subject.now(), time.monotonic()
            with rpc_errors(f"the brain at {address}"):
                request = pb.DiagnoseRequest(**who_asks(loaded))
                answer = await stub.Diagnose(request, timeout=_ANSWER)
            took = timedelta(seconds=time.monotonic() - before)
    except (CarpalError, OSError) as error:
        why = error.message if isinstance(error, CarpalError) else f"{address}: {error}"
        action = error.action if isinstance(error, CarpalError) else "see the rows of that address"
        return [
            skip("clock", f"no brain tells the time: {why}"),
            fail("standing", f"no brain says how this machine stands: {why}", action),
            skip("version", "no brain says which versions it serves"),
        ]
    found = diagnosis(answer)
    offset = found.server_time.replace(tzinfo=UTC) - (began + took / 2)
    return [clock(offset, took / 2), standing(subject, found), version(found)]


def clock(offset: timedelta, unsure: timedelta) -> Row:
    """How far this machine's is from the brain's: `offset` is how much it is behind."""
    how = f"{abs(offset).total_seconds():.1f} s {'behind' if offset > timedelta() else 'ahead'}"
    detail = f"{how}, by the brain's clock (to {unsure.total_seconds():.2f} s)"
    action = (
        "set this machine's clock, and have it kept right: timedatectl set-ntp true. If other "
        "machines are told the same, it is the brain's that is wrong"
    )
    least = abs(offset) - unsure
    if least > _WRONG:
        return fail("clock", detail, action)
    return warn("clock", detail, action) if least > _TRUE else ok("clock", detail)


def standing(subject: Subject, found: Diagnosis) -> Row:
    """Whether this machine's certificate is let in."""
    if found.verdict == "ok" and not found.action:
        return ok("standing", found.detail)
    action = found.action
    if found.verdict == Reason.IDENTITY_REVOKED:
        action = (
            "this identity is over. If the machine is to come back, make a new token with `carpal "
            "fleet token`, and run: carpal hand enroll --token-file FILE --state-dir "
            f"{subject.settings.state_dir}"
        )
    reason = "" if found.verdict == "ok" else f"{found.verdict}: "
    return fail("standing", f"{reason}{found.detail}", action)


def version(found: Diagnosis) -> Row:
    """Whether this daemon and the brain have a version of the contract in common."""
    first, last = found.protocols
    if not last:
        return skip("version", "the brain is too old to say which versions it serves")
    ours = f"this daemon ({__version__}) speaks contract {_span(PROTOCOL_MIN, PROTOCOL_MAX)}"
    detail = f"{ours}, the brain ({found.version}) {_span(first, last)}"
    if first > PROTOCOL_MAX:
        return fail("version", detail, f"install carpal {found.version} on this machine")
    if last < PROTOCOL_MIN:
        action = f"upgrade the brain, or install carpal {found.version} on this machine"
        return fail("version", detail, action)
    return ok("version", detail)


async def call(subject: Subject, loaded: Loaded, address: str) -> Row:
    """One call over mutual TLS, as links are made."""
    target, before = f"mtls {address}", time.monotonic()
    proxy = subject.way.to(address)
    try:
        dialled = dial(address, Role.BRAIN, Held(loaded), retry=False, proxy=proxy, follow=False)
        async with dialled as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=_ANSWER)
    except grpc.aio.AioRpcError as raised:
        error = from_rpc(raised, f"the brain at {address}")
        return fail(target, error.message, f"see the row `standing`; {error.action}")
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        return warn(target, "the brain answers, and stops", "wait: the daemon dials another one")
    return ok(target, f"the brain answered in {(time.monotonic() - before) * 1000:.0f} ms")


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"
