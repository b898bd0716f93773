"""A point does nothing until it is armed, and then acts once."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carpal.fault_points import FOLDER, kind_of
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from tests.faults import Points, stopped
from tests.pace import SCALE

SECONDS = 20.0 * SCALE
MODULES = ["carpal.fault_points", "hands.inside.fault_points"]
LOOP = """
import sys
from {} import point
for line in sys.stdin:
    point("a.b.c")
    print("on", flush=True)
"""


@asynccontextmanager
async def looping(module: str, points: Points | None) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that passes the point `a.b.c` at each line it reads."""
    environ = {name: value for name, value in os.environ.items() if name != FOLDER}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LOOP.format(module)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environ | (points.environ if points else {}),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def passes(process: asyncio.subprocess.Process) -> bytes:
    """What it says when it went past the point; nothing when it did not."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    async with asyncio.timeout(SECONDS):
        return await process.stdout.readline()


@pytest.fixture
def points(tmp_path: Path) -> Points:
    return Points(tmp_path / "faults")


@pytest.mark.parametrize("module", MODULES)
async def test_an_armed_point_kills_once_across_restarts(points: Points, module: str) -> None:
    async with looping(module, points) as process:
        assert await passes(process)
        points.arm("a.b.c", "kill")
        assert not await passes(process)
        assert await process.wait() == -signal.SIGKILL
        assert await points.reached("a.b.c", SECONDS) == process.pid
    async with looping(module, points) as process:
        assert await passes(process)


@pytest.mark.parametrize("module", MODULES)
async def test_a_process_stopped_at_a_point_goes_on_when_it_is_continued(
    points: Points, module: str
) -> None:
    async with looping(module, points) as process:
        points.arm("a.b.c", "stop")
        passing = asyncio.create_task(passes(process))
        assert await points.reached("a.b.c", SECONDS) == process.pid
        await stopped(process.pid, SECONDS)
        assert not passing.done()
        process.send_signal(signal.SIGCONT)
        assert await passing


@pytest.mark.parametrize("module", MODULES)
async def test_without_the_variable_a_file_arms_nothing(points: Points, module: str) -> None:
    points.arm("a.b.c", "kill")
    async with looping(module, None) as process:
        assert await passes(process)
    assert points.disarm("a.b.c")


def test_the_kind_of_a_message_names_what_is_asked_and_answered() -> None:
    execute = pb.Request(execute=hand_pb2.ExecuteRequest())
    answered = pb.Reply(execute=hand_pb2.ExecuteResponse())
    assert kind_of(pb.BrainMessage(request=execute)) == "request_execute"
    assert kind_of(pb.DaemonMessage(reply=answered)) == "reply_execute"
    assert kind_of(pb.DaemonMessage(heartbeat=pb.Heartbeat())) == "heartbeat"


def test_the_kind_of_a_message_on_an_attach_stream_names_what_it_carries() -> None:
    output = hand_pb2.ExecuteResponse(output=hand_pb2.OutputChunk(data=b"x"))
    result = hand_pb2.ExecuteResponse(result=hand_pb2.Result(content="x"))
    assert kind_of(pb.AttachRequest(open=pb.AttachOpen(request_id=1))) == "attach_open"
    assert kind_of(pb.AttachRequest(execute=output)) == "attach_output"
    assert kind_of(pb.AttachRequest(execute=result)) == "attach_result"
    assert kind_of(pb.AttachResponse(acknowledged_offset=0)) == "attach_acknowledged"
