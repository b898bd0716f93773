"""Watchers miss moments rather than hold up a runner."""

from brain.watch import _BEHIND, WatchHub
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


def test_who_left_is_told_nothing_and_nothing_is_left() -> None:
    hub = WatchHub()
    with hub.watching("a") as gone:
        pass
    hub.tell("a", moment("x"))
    assert gone.empty()
    assert not hub._watchers
