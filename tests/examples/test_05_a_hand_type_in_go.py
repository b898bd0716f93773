"""The example in Go is built with Debian's packages alone, and keeps the contract."""

import shutil
from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.builtin.socket import SocketType
from tests.command import ROOT
from tests.examples.foreign import passes, run, started
from tests.hands.place import open_place

HERE = ROOT / "examples" / "05_a_hand_type_in_go"
NEEDS = ("go", "protoc", "protoc-gen-go", "protoc-gen-go-grpc")
MISSING = [each for each in NEEDS if shutil.which(each) is None]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(bool(MISSING), reason=f"no {MISSING}: scripts/setup in CI has them")
async def test_the_example_is_built_keeps_the_contract_and_is_served_by_a_daemon(
    tmp_path: Path,
) -> None:
    built, socket = tmp_path / "programs", tmp_path / "hand.sock"
    await run(str(HERE / "build"), str(ROOT / "proto"), str(built), cwd=tmp_path)
    async with started(str(built), str(socket), "echo", "ls", "seq", "sleep") as server:
        await passes(HERE / "README.md", socket, tmp_path)
        more = {"programs": SocketType("programs", socket)}
        async with open_place(tmp_path / "state", more=more) as place:
            hand = await place.hand(type="programs")
            said = await place.run(hand, "run", program="seq", arguments=["2"])
            assert said.content == "1\n2\n[ended well]"
            failed = await place.run(hand, "run", program="ls", arguments=["/none"])
            assert failed.outcome == pb.OUTCOME_ERROR
            assert "/none" in failed.content
            request = place.request(hand, "run", program="sleep", arguments=["600"], limit=0.2)
            assert (await place.steps(request))[-1].result.outcome == pb.OUTCOME_TIMED_OUT
            running = place.begin(place.request(hand, "run", program="sleep", arguments=["600"]))
            server.kill()
            await server.wait()
            assert (await running.result()).outcome == pb.OUTCOME_LOST
