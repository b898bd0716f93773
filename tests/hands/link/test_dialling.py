"""Where a daemon dials: those that exist, in any order, and the one it just left last."""

from collections import Counter

from hands.link.dialling import Dialling


def test_every_brain_is_dialled_once_before_any_is_dialled_again() -> None:
    dialling = Dialling(lambda: ["a", "b", "c"])
    rounds = [[dialling.next() for _ in range(3)] for _ in range(4)]
    assert [sorted(one) for one in rounds] == [["a", "b", "c"]] * 4


def test_the_brain_just_left_comes_last_and_alone_it_is_dialled_again() -> None:
    for _ in range(20):
        dialling = Dialling(lambda: ["a", "b", "c"])
        dialling.left("b")
        assert [dialling.next() for _ in range(3)][2] == "b"
    alone = Dialling(lambda: ["a"])
    alone.left("a")
    assert [alone.next(), alone.next()] == ["a", "a"]


def test_brains_that_exist_come_before_those_only_remembered() -> None:
    for _ in range(20):
        dialling = Dialling(lambda: ["old-1", "now-1", "old-2", "now-2"])
        dialling.told(["now-1", "now-2"])
        dialling.left("now-1")
        order = [dialling.next() for _ in range(4)]
        assert order[0] == "now-2"
        assert order[3] == "now-1"


def test_a_brain_that_is_gone_or_new_is_known_within_the_round() -> None:
    brains = ["a", "b", "c"]
    dialling = Dialling(lambda: brains, shuffle=lambda order: None)
    assert dialling.next() == "a"
    brains.remove("b")
    assert dialling.next() == "c"
    brains.append("d")
    assert [dialling.next() for _ in range(3)] == ["a", "c", "d"]


def test_the_daemons_of_a_dead_brain_spread_over_the_others_l03() -> None:
    first = Counter[str]()
    for _ in range(600):
        dialling = Dialling(lambda: ["dead", "x", "y", "z"])
        dialling.left("dead")
        first[dialling.next()] += 1
    assert set(first) == {"x", "y", "z"}
    assert max(first.values()) < 2 * min(first.values())
