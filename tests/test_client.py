"""A failed RPC in words: what may be tried again is told from what may not."""

import grpc
from grpc.aio import AioRpcError, Metadata

from carpal.client import from_rpc
from carpal.errors import Broken, Unreachable


def failed(code: grpc.StatusCode, details: str) -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata(), details=details)


def test_a_stream_that_broke_under_a_write_may_be_opened_again() -> None:
    error = from_rpc(failed(grpc.StatusCode.INTERNAL, "Internal error from Core"), "sessiond")
    assert isinstance(error, Unreachable)
    assert error.message == "sessiond does not answer (the connection broke)"


def test_a_server_that_failed_is_not_taken_for_one_that_is_gone() -> None:
    assert isinstance(from_rpc(failed(grpc.StatusCode.INTERNAL, "it failed"), "b1"), Broken)
