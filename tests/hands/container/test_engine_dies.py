"""The engine or the daemon goes away: hands and their calls go on, and nothing runs twice."""

import json
from pathlib import Path

from carpal.v1 import hand_pb2 as pb
from hands.builtin.container import ContainerType
from hands.inside import tree
from tests import images
from tests.engine import Engine
from tests.hands.container.conftest import box
from tests.hands.place import Place, let_go, open_place
from tests.hands.test_restart import DRIVER, child

WAITS = "mkfifo go; echo up; read x < go; echo ran >> log; cat log"


async def test_a_call_survives_the_engine_and_is_never_run_again_h19(
    boxes: Place, engine: Engine, state: Path
) -> None:
    hand = await box(boxes)
    request = boxes.request(hand, command=WAITS)
    call = boxes.begin(request)
    assert await call.output() == b"up\n"
    engine.kill()
    await let_go(state / "hands" / hand / "workspace/go")
    assert (await call.result()).content == "up\nran\n"
    again = (await boxes.steps(request))[-1].result
    assert again.content == "up\nran\n"
    engine.start()
    assert (await boxes.sh(hand, "cat log")).content == "ran\n"
    assert len(engine.containers()) == 1, "it went on through the engine's restart"


async def test_whoever_leaves_a_call_finds_it_again_by_its_id_h05(
    boxes: Place, state: Path
) -> None:
    hand = await box(boxes)
    request = boxes.request(hand, command=WAITS)
    first = boxes.begin(request)
    assert await first.output() == b"up\n"
    await first.leave()
    second = boxes.begin(request)
    await let_go(state / "hands" / hand / "workspace/go")
    assert (await second.result()).content == "up\nran\n"


async def test_a_hand_released_while_the_engine_is_away_is_dead_and_gone_once_it_is_back(
    boxes: Place, engine: Engine, state: Path
) -> None:
    hand = await box(boxes)
    pid = boxes.supervisor(hand)
    start = tree.start_time(pid)
    await boxes.sh(hand, "env -i setsid sleep 1000 &")
    engine.kill()
    assert await boxes.release(hand)
    assert not tree.alive(pid, start)
    assert not (state / "hands" / hand).exists()
    engine.start()
    assert len(engine.containers()) == 1, "dead, and with nobody to remove it yet"
    fresh = await box(boxes)
    assert len(engine.containers()) == 1, "whoever makes a hand removes what nobody owns"
    await boxes.release(fresh)


async def test_a_killed_daemon_finds_its_containers_with_their_calls_and_leaves_others_h12_h44(
    engine: Engine, kind: ContainerType, state: Path
) -> None:
    """A hand it knows is adopted, one whose folder is gone is removed, another's is untouched."""
    kinds = {"container": kind}
    bash = json.dumps({"command": WAITS}).encode()
    request = pb.ExecuteRequest(driver=DRIVER, hand_id="h", call_id="c", name="bash", input=bash)
    config = json.dumps({"image": images.SHELL}).encode()
    async with child(state, {"CARPAL_TEST_ENGINE": engine.url}) as daemon:
        for hand_id in ("h", "gone"):
            daemon.ask(
                provision=pb.ProvisionRequest(
                    driver=DRIVER, hand_id=hand_id, type="container", config=config
                )
            )
            while not (await daemon.reply()).last:
                pass
        daemon.ask(execute=request)
        assert (await daemon.reply()).execute.output.data == b"up\n"
        await daemon.kill()
    async with open_place(state.parent / "other", more=kinds) as other:
        others = await box(other)
        (state / "hands/gone").rename(state.parent / "elsewhere")
        async with open_place(state, more=kinds) as place:
            call = place.begin(request)
            await let_go(state / "hands/h/workspace/go")
            assert (await call.result()).content == "up\nran\n"
            fresh = await box(place)  # a daemon that makes a hand looks for what nobody owns
            assert len(engine.containers()) == 3
            assert (await other.sh(others, "echo mine")).content == "mine\n"
            for hand in ("h", fresh):
                await place.release(hand)
        await other.release(others)
    assert not engine.containers()


async def test_a_hand_whose_container_was_removed_behind_our_back_is_lost_in_two_seconds_h46(
    boxes: Place, engine: Engine
) -> None:
    hand = await box(boxes)
    call = boxes.begin(boxes.request(hand, command="echo up; sleep 1000"))
    assert await call.output() == b"up\n"
    (container,) = engine.client.containers.list()
    container.remove(force=True)
    result = await call.result()
    assert result.outcome == pb.OUTCOME_LOST
