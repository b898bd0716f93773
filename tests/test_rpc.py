"""A refusal's messages are there with Google's package and without, and are the same."""

import subprocess
import sys

from google.rpc import error_details_pb2 as googles

from carpal import rpc
from tests.pace import SCALE

WITHOUT = """
import sys
sys.modules["google.rpc"] = None  # as where nothing brought it
from carpal import rpc
from carpal.errors import from_status, refuse, to_status
from carpal.status import Reason
from carpal.v1 import types_pb2
assert rpc.status_pb2.__name__ == "carpal.rpc.status_pb2"
sent = to_status(refuse(Reason.UNAVAILABLE, "not now", action="wait")).SerializeToString()
refusal = types_pb2.AppendAck(status=rpc.status_pb2.Status.FromString(sent)).status
print(from_status(refusal).reason, sent.hex())
"""


def test_where_something_brings_googles_own_those_are_taken() -> None:
    assert rpc.error_details_pb2 is googles


def test_without_it_they_are_ours_and_the_same_on_the_wire() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        check=True, capture_output=True, text=True, timeout=60 * SCALE,
    )  # fmt: skip
    reason, sent = done.stdout.split()
    assert reason == "UNAVAILABLE"
    status = rpc.status_pb2.Status.FromString(bytes.fromhex(sent))
    names = [detail.type_url.rpartition(".")[2] for detail in status.details]
    assert names == ["ErrorInfo", "RetryInfo"]
