"""The guard: role and dates are checked at every RPC, and a stream ends with its certificate."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from carpal.client import dial, rpc_errors
from carpal.errors import CarpalError, Unreachable, refuse
from carpal.identity import Role
from carpal.server import Context, Server, caller, not_built, serve
from carpal.status import Reason
from carpal.tls import IdentityFiles, server_credentials
from carpal.v1 import (
    enrollment_pb2,
    enrollment_pb2_grpc,
    orchestrator_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)
from carpal.v1 import orchestrator_pb2 as pb
from tests.pace import SCALE
from tests.pki import Pki

WAIT = 10.0 * SCALE


class Orchestrator(orchestrator_pb2_grpc.OrchestratorServicer):
    """Answers with who asked, and breaks in every way a handler can."""

    Connect = Attach = Enter = DrainDaemon = GetDaemon = QuarantineDaemon = not_built
    ReadBlob = WriteBlob = ListHands = not_built

    def __init__(self) -> None:
        self.raises: BaseException | None = None
        self.ended = asyncio.Event()

    async def Wake(self, request: pb.WakeRequest, context: Context) -> pb.WakeResponse:
        """The caller's name, as the event's id."""
        if self.raises is not None:
            raise self.raises
        answer = pb.WakeResponse()
        answer.event.id = caller(context).name
        return answer

    async def ListDaemons(
        self, request: pb.ListDaemonsRequest, context: Context
    ) -> pb.ListDaemonsResponse:
        """Nothing."""
        return pb.ListDaemonsResponse()

    async def Watch(
        self, request: pb.WatchRequest, context: Context
    ) -> AsyncIterator[pb.WatchResponse]:
        """One moment, and then for ever none."""
        try:
            yield pb.WatchResponse()
            await asyncio.Event().wait()
        finally:
            self.ended.set()


class Enrolling(enrollment_pb2_grpc.EnrollmentServicer):
    """What an enrolment port serves."""

    Enroll = Renew = Retire = not_built

    async def Diagnose(
        self, request: enrollment_pb2.DiagnoseRequest, context: Context
    ) -> enrollment_pb2.DiagnoseResponse:
        """Nothing."""
        return enrollment_pb2.DiagnoseResponse()


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path / "pki")


@pytest.fixture
def service() -> Orchestrator:
    return Orchestrator()


def register(server: grpc.aio.Server, service: Orchestrator) -> None:
    orchestrator_pb2_grpc.add_OrchestratorServicer_to_server(service, server)
    enrollment_pb2_grpc.add_EnrollmentServicer_to_server(Enrolling(), server)


@pytest.fixture
async def server(pki: Pki, service: Orchestrator) -> AsyncIterator[Server]:
    """A brain's port."""
    credentials = server_credentials(pki.issue(Role.BRAIN, "b"))
    async with serve("127.0.0.1:0", credentials, lambda to: register(to, service)) as serving:
        yield serving


async def wake(server: Server, files: IdentityFiles) -> str:
    """Ask as someone; the name the server saw."""
    async with dial(server.address, Role.BRAIN, files) as channel:
        stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
        with rpc_errors("the brain"):
            answer = await stub.Wake(pb.WakeRequest(session_id="s"), timeout=WAIT)
    return answer.event.id


async def refused(server: Server, files: IdentityFiles) -> CarpalError:
    """Why it may not."""
    with pytest.raises(CarpalError) as caught:
        await wake(server, files)
    return caught.value


async def test_a_caller_is_who_its_certificate_says(server: Server, pki: Pki) -> None:
    assert await wake(server, pki.issue(Role.OPERATOR, "ada")) == "ada"
    assert await wake(server, pki.issue(Role.BRAIN, "b2")) == "b2"


@pytest.mark.parametrize("role", [Role.DAEMON, Role.SESSIOND, Role.VAULT])
async def test_a_role_without_the_row_is_refused_by_name(
    server: Server, pki: Pki, role: Role
) -> None:
    error = await refused(server, pki.issue(role, "x"))
    assert error.reason is Reason.ROLE_NOT_ALLOWED
    assert f"role {role} may not call Orchestrator/Wake" in error.message


async def test_another_domains_certificate_gets_no_connection(
    server: Server, tmp_path: Path
) -> None:
    stranger = Pki(tmp_path / "other").issue(Role.OPERATOR, "eve")
    assert (await refused(server, stranger)).reason is Reason.UNREACHABLE


async def test_a_service_that_is_not_served_here_is_unimplemented(server: Server, pki: Pki) -> None:
    async with dial(server.address, Role.BRAIN, pki.issue(Role.OPERATOR, "ada")) as channel:
        stub = session_pb2_grpc.SessionStub(channel)
        with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
            await stub.GetSession(session_pb2.GetSessionRequest(), timeout=WAIT)
    assert caught.value.reason is Reason.NOT_BUILT


async def test_a_stream_ends_when_its_certificate_does_and_its_handler_is_cleaned_up(
    server: Server, pki: Pki, service: Orchestrator
) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=2 * SCALE)
    files = pki.issue(Role.OPERATOR, "ada", not_after=soon)
    async with dial(server.address, Role.BRAIN, files) as channel:
        stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
        stream = stub.Watch(pb.WatchRequest(session_id="s"), timeout=WAIT)
        assert isinstance(await stream.read(), pb.WatchResponse)
        with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
            await stream.read()
        assert caught.value.reason is Reason.CERTIFICATE_EXPIRED
        assert service.ended.is_set()
        assert datetime.now(UTC) >= soon.replace(microsecond=0)
        # The connection stands, and what is asked on it is refused all the same.
        with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
            await stub.Wake(pb.WakeRequest(session_id="s"), timeout=WAIT)
        assert caught.value.reason is Reason.CERTIFICATE_EXPIRED


async def test_a_stream_is_ended_a_little_before_its_certificate_as_one_to_open_again(
    server: Server, pki: Pki
) -> None:
    """By then its caller has renewed: it goes on over another connection, and nothing is lost."""
    soon = datetime.now(UTC) + timedelta(seconds=16 + 2 * SCALE)  # a twentieth of its life, and 1 s
    files = pki.issue(Role.OPERATOR, "ada", not_after=soon)
    async with dial(server.address, Role.BRAIN, files) as channel:
        stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
        stream = stub.Watch(pb.WatchRequest(session_id="s"), timeout=WAIT)
        assert isinstance(await stream.read(), pb.WatchResponse)
        with pytest.raises(Unreachable) as caught, rpc_errors("the brain"):
            await stream.read()
        assert caught.value.reason is Reason.CERTIFICATE_ENDING
        assert datetime.now(UTC) < soon
        again = stub.Watch(pb.WatchRequest(session_id="s"), timeout=WAIT)
        assert isinstance(await again.read(), pb.WatchResponse)
        again.cancel()


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (refuse(Reason.SESSION_NOT_FOUND, "no session 's'"), Reason.SESSION_NOT_FOUND),
        (NotImplementedError(), Reason.NOT_BUILT),
        (ExceptionGroup("g", [refuse(Reason.STALE_EPOCH, "one")]), Reason.STALE_EPOCH),
        (ValueError("secret"), Reason.INTERNAL),
        (TimeoutError(), Reason.INTERNAL),
    ],
)
async def test_what_a_handler_raises_is_a_status_and_a_bug_tells_nothing_of_itself(
    server: Server, pki: Pki, service: Orchestrator, raised: Exception, reason: Reason
) -> None:
    service.raises = raised
    error = await refused(server, pki.issue(Role.OPERATOR, "ada"))
    assert error.reason is reason
    assert "secret" not in str(error)


async def test_the_enrolment_port_serves_enrolment_to_anyone_and_nothing_else(
    pki: Pki, service: Orchestrator
) -> None:
    credentials = server_credentials(pki.issue(Role.BRAIN, "b"), require_client=False)
    port = serve("127.0.0.1:0", credentials, lambda to: register(to, service), authorize=False)
    trusting = grpc.ssl_channel_credentials(pki.ca_pem)
    options = [("grpc.ssl_target_name_override", f"brain.{pki.trust_domain}")]
    async with (
        port as server,
        grpc.aio.secure_channel(server.address, trusting, options=options) as channel,
    ):
        enrolling = enrollment_pb2_grpc.EnrollmentStub(channel)
        await enrolling.Diagnose(enrollment_pb2.DiagnoseRequest(), timeout=WAIT)
        stub: Any = orchestrator_pb2_grpc.OrchestratorStub(channel)
        for ask in (stub.Wake(pb.WakeRequest()), stub.ListDaemons(pb.ListDaemonsRequest())):
            with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
                await ask
            assert caught.value.reason is Reason.ROLE_NOT_ALLOWED
        with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
            await stub.Watch(pb.WatchRequest()).read()
        assert caught.value.reason is Reason.ROLE_NOT_ALLOWED


async def test_a_port_that_is_taken_is_said(server: Server, pki: Pki) -> None:
    credentials = server_credentials(pki.issue(Role.BRAIN, "b"))
    with pytest.raises(CarpalError) as caught:
        async with serve(server.address, credentials, lambda to: None):
            pass
    assert caught.value.reason is Reason.ADDRESS_IN_USE
    assert server.address in caught.value.message


async def test_streams_that_are_open_when_a_server_stops_end_in_time_as_ones_to_open_again(
    pki: Pki, service: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none begins meanwhile: it would end without a word."""
    monkeypatch.setattr("carpal.server._GRACE", 1.0 * SCALE)
    files, drained, goes_on = pki.issue(Role.OPERATOR, "ada"), asyncio.Event(), asyncio.Event()

    async def drain() -> None:
        drained.set()

    async def run() -> None:
        credentials = server_credentials(pki.issue(Role.BRAIN, "b"))
        async with serve(
            "127.0.0.1:0", credentials, lambda to: register(to, service), drain=drain
        ) as server:
            serving.set_result(server.address)
            await goes_on.wait()

    serving: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(run())
    async with dial(await serving, Role.BRAIN, files, retry=False) as channel:
        stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
        stream = stub.Watch(pb.WatchRequest(), timeout=WAIT)
        assert isinstance(await stream.read(), pb.WatchResponse)
        goes_on.set()
        await drained.wait()
        late = stub.Watch(pb.WatchRequest(), timeout=WAIT)
        async with asyncio.timeout(WAIT):
            for each in (late, stream):
                with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
                    await each.read()
                assert caught.value.reason is Reason.UNAVAILABLE
                assert "stops" in str(caught.value)
            await running
    assert service.ended.is_set()


class Reading(Orchestrator):
    """Reads what comes on its streams."""

    async def _read(self, frames: AsyncIterator[Any], context: Context) -> None:
        async for _ in frames:
            pass

    Connect = Attach = _read


async def send(channel: Any, method: str, data: bytes) -> None:
    """One message's bytes, as they are."""
    name = f"/carpal.v1.Orchestrator/{method}"
    with rpc_errors("the brain"):
        if method in ("Connect", "Attach"):
            stream = channel.stream_stream(name)(timeout=WAIT)
            await stream.write(data)
            await stream.read()
        elif method == "Watch":
            await channel.unary_stream(name)(data, timeout=WAIT).read()
        else:
            await channel.unary_unary(name)(data, timeout=WAIT)


@pytest.mark.parametrize(
    ("method", "junk"),
    [
        ("Connect", b"\xff" * 100),
        ("Connect", b"\x0a\x06\x0a\x04\x0a\x02\xff\xfe"),  # a hello whose name is no UTF-8
        ("Attach", b"\xff" * 100),
        ("Wake", b"\xff" * 100),
        ("Watch", b"\x0a\x02\xff\xfe"),
    ],
)
async def test_bytes_that_are_no_message_are_their_senders_fault_and_no_incident(
    pki: Pki, caplog: pytest.LogCaptureFixture, method: str, junk: bytes
) -> None:
    link = method in ("Connect", "Attach")
    files = pki.issue(Role.DAEMON if link else Role.OPERATOR, "d1")
    credentials = server_credentials(pki.issue(Role.BRAIN, "b"))
    async with (
        serve("127.0.0.1:0", credentials, lambda to: register(to, Reading())) as serving,
        dial(serving.address, Role.BRAIN, files, retry=False) as channel,
    ):
        with pytest.raises(CarpalError) as caught:
            await send(channel, method, junk)
    assert caught.value.reason is (Reason.LINK_VIOLATION if link else Reason.INVALID_FIELD)
    assert not [each for each in caplog.records if each.exc_info]
