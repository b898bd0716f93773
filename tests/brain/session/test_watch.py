"""Watchers miss moments rather than hold up a runner."""

from brain.session.watch import _BEHIND, WatchHub
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb


def moment(name: str) -> pb.WatchResponse:
    return pb.WatchResponse(phase=pb.Phase(name=name))


def test_every_watcher_of_a_session_gets_its_moments_and_no_others() -> None:
    hub = WatchHub()
    with hub.watching("a") as one, hub.watching("a") as two, hub.watching("b") as other:
        hub.tell("a", moment("x"))
        assert one.get_nowait() == two.get_nowait() == moment("x")
        assert other.empty()


def test_a_watcher_that_falls_behind_misses_the_newest() -> None:
    hub = WatchHub()
    with hub.watching("a") as slow, hub.watching("a") as quick:
        for number in range(_BEHIND + 5):
            hub.tell("a", moment(str(number)))
            quick.get_nowait()
        assert slow.qsize() == _BEHIND
        assert slow.get_nowait() == moment("0")


def test_a_watcher_that_falls_behind_holds_few_bytes_however_large_the_moments_are() -> None:
    hub = WatchHub()
    chunk = hand_pb2.OutputChunk(data=bytes(192 * 1024))
    large = pb.WatchResponse(output=pb.ToolOutput(call_id="c", chunk=chunk))
    with hub.watching("a") as slow:
        for _ in range(100):
            hub.tell("a", large)
        assert slow.qsize() == 11
        while not slow.empty():
            assert slow.get_nowait() == large
        hub.tell("a", moment("x"))
        assert slow.get_nowait() == moment("x")


async def test_an_end_is_told_also_to_a_watcher_that_is_behind() -> None:
    hub = WatchHub()
    with hub.watching("a") as slow:
        for number in range(_BEHIND + 5):
            hub.tell("a", moment(str(number)))
        slow.end()
        assert len([each async for each in slow.each()]) == _BEHIND - 1


def test_who_left_is_told_nothing_and_nothing_is_left() -> None:
    hub = WatchHub()
    with hub.watching("a") as gone:
        pass
    hub.tell("a", moment("x"))
    assert gone.empty()
    assert not hub._watchers
