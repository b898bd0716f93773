"""The example in Node.js keeps the contract, and its calls outlive the daemon."""

import asyncio
import shutil
from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.builtin.socket import SocketType
from tests.command import ROOT
from tests.examples.foreign import passes, run, started
from tests.hands.place import PATIENCE, open_place
from tests.hands.test_restart import child

HERE = ROOT / "examples" / "04_a_hand_type_in_node"
DRIVER = pb.Driver(session_id="s", epoch=1, workspace="default")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(shutil.which("npm") is None, reason="no npm: scripts/setup in CI has it"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example is copied to."""
    made = tmp_path_factory.mktemp("node") / "ledger"
    shutil.copytree(HERE, made, ignore=shutil.ignore_patterns("node_modules"))
    return made


async def command(folder: Path, socket: Path) -> tuple[str, ...]:
    """What starts its server, with what it needs installed."""
    if not (folder / "node_modules").exists():
        await run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    return "node", str(folder / "ledger.js"), str(socket), str(ROOT / "proto")


async def test_the_example_keeps_the_contract(folder: Path, tmp_path: Path) -> None:
    socket = tmp_path / "hand.sock"
    async with started(*await command(folder, socket)):
        await passes(HERE / "README.md", socket, tmp_path)


async def test_a_call_goes_on_through_the_death_of_the_daemon(folder: Path, tmp_path: Path) -> None:
    socket = tmp_path / "hand.sock"
    request = pb.ExecuteRequest(
        driver=DRIVER, hand_id="h", call_id="c", name="lines", input=b'{"pause": 1.5}'
    )
    made = pb.ProvisionRequest(driver=DRIVER, hand_id="h", type="ledger", config=b'{"title": "A"}')
    async with started(*await command(folder, socket)):
        environ = {"CARPAL_TEST_SOCKET": f"ledger={socket}"}
        async with child(tmp_path / "state", environ) as daemon:
            daemon.ask(provision=made)
            while not (await daemon.reply()).last:
                pass
            add = pb.ExecuteRequest(
                driver=DRIVER, hand_id="h", call_id="b", name="add", input=b'{"line": "B"}'
            )
            daemon.ask(execute=add)
            while not (await daemon.reply()).last:
                pass
            daemon.ask(execute=request)
            assert (await daemon.reply()).execute.output.data == b"A\n"
            await daemon.kill()
        more = {"ledger": SocketType("ledger", socket)}
        async with open_place(tmp_path / "state", more=more) as place:
            steps = await place.steps(request)
            assert b"".join(each.output.data for each in steps) == b"A\nB\n"
            assert (steps[-1].result.outcome, steps[-1].result.content) == (
                pb.OUTCOME_OK,
                "A\nB\n",
            )


async def test_a_killed_server_is_a_lost_hand_and_the_next_one_is_made(
    folder: Path, tmp_path: Path
) -> None:
    socket = tmp_path / "hand.sock"
    line = await command(folder, socket)
    more = {"ledger": SocketType("ledger", socket)}
    async with started(*line) as server, open_place(tmp_path / "state", more=more) as place:
        hand = await place.hand(type="ledger", title="A")
        reading = place.begin(place.request(hand, "lines", pause=600))
        server.kill()
        await server.wait()
        assert (await reading.result()).outcome == pb.OUTCOME_LOST
        async with started(*line):
            about = pb.ProbeRequest(type="ledger")
            async with asyncio.timeout(PATIENCE):  # the daemon dials again within 2 s
                while (await place.service.probe(about)).state != pb.PROBE_STATE_READY:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            other = await place.hand(type="ledger")
            assert (await place.run(other, "add", line="x")).content.startswith("added")
