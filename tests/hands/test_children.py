"""Children start whole while gRPC streams are live: it must not be told of forks."""

import asyncio
import os
import pwd
import sys
from pathlib import Path

import pytest

from carpal.identity import Role
from carpal.v1 import hand_pb2
from tests.hands.fake_brain import brain
from tests.hands.place import Place
from tests.hands.test_relink import Linking
from tests.pki import Pki

CHILDREN = 300
AT_ONCE = 20


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_300_children_spawned_as_a_user_while_streams_are_live_are_all_good_l32(
    place: Place, tmp_path: Path
) -> None:
    """L32: with fork support of gRPC, a third of them died before their exec, without a word."""
    assert os.environ["GRPC_ENABLE_FORK_SUPPORT"] == "0", "set before grpc is imported"
    other = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else os.getuid()
    room = asyncio.Semaphore(AT_ONCE)

    async def child(number: int) -> bool:
        async with room:
            process = await asyncio.create_subprocess_exec(
                "/bin/echo", str(number), stdout=asyncio.subprocess.PIPE, user=other
            )
            out, _ = await process.communicate()
        return (process.returncode, out) == (0, f"{number}\n".encode())

    pki = Pki(tmp_path / "pki")
    async with (
        brain(pki, "brain-1") as one,
        Linking(place, pki.issue(Role.DAEMON, "d"), one).running(),
    ):
        asked = await one.link()
        over = asyncio.Event()

        async def busy() -> int:
            answers = 0
            while not over.is_set():
                await asked.ask(list_hands=hand_pb2.ListHandsRequest())
                answers += 1
            return answers

        streams = [asyncio.create_task(busy()) for _ in range(4)]
        good = await asyncio.gather(*(child(number) for number in range(CHILDREN)))
        over.set()
        answers = await asyncio.gather(*streams)
    assert good.count(True) == CHILDREN
    assert all(answers), "no stream was live meanwhile"


async def test_grpc_is_told_before_anything_of_ours_imports_it() -> None:
    """Whatever is imported first: the package itself says it."""
    program = "import os, carpal.client, grpc; print(os.environ['GRPC_ENABLE_FORK_SUPPORT'])"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out == b"0\n"
