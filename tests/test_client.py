"""A failed RPC in words: what may be tried again is told from what may not."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from carpal.client import SENT_IN_STREAMS, dial, from_rpc, rpc_errors
from carpal.errors import Broken, Unreachable, refuse
from carpal.identity import Role
from carpal.server import Context, serve
from carpal.status import Reason
from carpal.tls import IdentityFiles, server_credentials
from carpal.v1 import enrollment_pb2, hand_pb2, orchestrator_pb2, session_pb2, vault_pb2
from carpal.v1.session_pb2_grpc import SessionServicer, SessionStub, add_SessionServicer_to_server
from tests.pki import Pki


def failed(code: grpc.StatusCode, details: str) -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata(), details=details)


def test_a_stream_that_broke_under_a_write_may_be_opened_again() -> None:
    error = from_rpc(failed(grpc.StatusCode.INTERNAL, "Internal error from Core"), "sessiond")
    assert isinstance(error, Unreachable)
    assert error.message == "sessiond does not answer (the connection broke)"


def test_a_stream_on_a_connection_that_lost_bytes_may_be_opened_again() -> None:
    """As TLS notices it, after a path swallowed some and came back."""
    details = "Stream removed (Unwrap failed (TSI_DATA_CORRUPTED))"
    error = from_rpc(failed(grpc.StatusCode.UNKNOWN, details), "b1")
    assert isinstance(error, Unreachable)


def test_a_server_that_failed_is_not_taken_for_one_that_is_gone() -> None:
    assert isinstance(from_rpc(failed(grpc.StatusCode.INTERNAL, "it failed"), "b1"), Broken)


@pytest.mark.parametrize(
    ("details", "said"),
    [
        (
            "CERTIFICATE_VERIFY_FAILED: self signed certificate in certificate chain: OK",
            "sessiond shows a certificate that is not by the authority (ca.pem) of the identity "
            "used here",
        ),
        (
            "CERTIFICATE_VERIFY_FAILED: certificate has expired: OK",
            "sessiond shows a certificate that has expired",
        ),
        (
            "UNAUTHENTICATED: Hostname Verification Check failed.",
            "sessiond shows a certificate of another role or trust domain",
        ),
        (
            "WRONG_VERSION_NUMBER: Invalid certificate verification context: OK",
            "sessiond does not speak TLS",
        ),
        (
            "Failed to connect to remote host: Connection refused",
            "sessiond does not answer (Connection refused)",
        ),
    ],
)
def test_a_connection_that_fails_says_why_in_words(details: str, said: str) -> None:
    details = f"failed to connect to all addresses; last error: UNKNOWN: ipv4:1.2.3.4:5: {details}"
    error = from_rpc(failed(grpc.StatusCode.UNAVAILABLE, details), "sessiond")
    assert isinstance(error, Unreachable)
    assert error.message == said


async def test_a_server_of_another_authority_or_role_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours, theirs = Pki(tmp_path / "ours"), Pki(tmp_path / "theirs")

    async def ask(address: str, role: Role, files: IdentityFiles) -> str:
        async with dial(address, role, files, retry=False) as channel:
            stub, request = SessionStub(channel), session_pb2.ListSessionsRequest()
            with pytest.raises(Unreachable) as refused, rpc_errors("sessiond"):
                await stub.ListSessions(request, timeout=10)
        return refused.value.message

    files = server_credentials(ours.issue(Role.SESSIOND, "sessiond"))
    async with serve("127.0.0.1:0", files, lambda server: None) as server:
        stranger = theirs.issue(Role.OPERATOR, "ann")
        assert "not by the authority" in await ask(server.address, Role.SESSIOND, stranger)
        ann = ours.issue(Role.OPERATOR, "ann")
        assert "of another role" in await ask(server.address, Role.VAULT, ann)


def test_no_answer_in_time_is_said_so() -> None:
    error = from_rpc(failed(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"), "sessiond")
    assert error.message == "sessiond does not answer (no answer in time)"


async def test_one_request_is_asked_again_by_itself_and_a_stream_of_them_never(
    tmp_path: Path,
) -> None:
    """Repeated by gRPC, a stream of appends arrived without one of its groups."""
    pki = Pki(tmp_path)
    asked = {"EmitEvent": 0, "Append": 0}

    class Sessions(SessionServicer):  # the rest is not asked for
        async def EmitEvent(
            self, request: object, context: Context
        ) -> session_pb2.EmitEventResponse:
            asked["EmitEvent"] += 1
            raise refuse(Reason.UNAVAILABLE, "not now")

        async def Append(self, request_iterator: Any, context: Context) -> None:  # type: ignore[override]
            asked["Append"] += 1
            await anext(request_iterator)
            raise refuse(Reason.UNAVAILABLE, "not now")

    files = pki.issue(Role.BRAIN, "b")
    credentials = server_credentials(pki.issue(Role.SESSIOND, "s"))

    def register(server: grpc.aio.Server) -> None:
        add_SessionServicer_to_server(Sessions(), server)  # type: ignore[abstract]

    async with (
        serve("127.0.0.1:0", credentials, register) as server,
        dial(server.address, Role.SESSIOND, files) as channel,
    ):
        stub = SessionStub(channel)
        with pytest.raises(Unreachable), rpc_errors("sessiond"):
            await stub.EmitEvent(session_pb2.EmitEventRequest())
        call = stub.Append()
        await call.write(session_pb2.AppendRequest())
        with pytest.raises(Unreachable), rpc_errors("sessiond"):
            await call.read()
    assert asked == {"EmitEvent": 3, "Append": 1}


def test_every_rpc_that_is_sent_a_stream_is_known_as_such() -> None:
    found: dict[str, tuple[str, ...]] = {}
    for file in (session_pb2, orchestrator_pb2, hand_pb2, enrollment_pb2, vault_pb2):
        for service in file.DESCRIPTOR.services_by_name.values():
            methods = tuple(method.name for method in service.methods if method.client_streaming)
            if methods:
                found[service.full_name] = methods
    assert found == SENT_IN_STREAMS
