"""The board: which sessions are offered, to whom, and when."""

import pytest

from sessiond.board import Board, Offers
from sessiond.clock import SECOND
from sessiond.rows import SessionRow
from tests.sessiond.clocks import FakeClock
from tests.sessiond.rules.test_runnable import session


def row(id: str, **fields: object) -> SessionRow:
    return session(session_id=id, **fields)


def offered(offers: Offers) -> list[tuple[str, int]]:
    return [(id, row.wake) for id, row in offers.take_now(100)]


def test_a_watch_begins_with_what_is_runnable_and_goes_on_with_what_becomes_so(
    clock: FakeClock,
) -> None:
    board = Board(clock)
    board.update([row("a", wake=1), row("b"), row("c", wake=1, driven=True)])
    with board.watch(frozenset()) as offers:
        assert offered(offers) == [("a", 1)]
        board.update([row("b", wake=1), row("a", wake=1, driven=True)])
        assert offered(offers) == [("b", 1)]
        board.update([row("c", wake=2)])
        assert offered(offers) == [("c", 2)]


def test_what_was_taken_before_it_was_read_is_not_offered(clock: FakeClock) -> None:
    board = Board(clock)
    with board.watch(frozenset()) as offers:
        board.update([row("a", wake=1), row("b", wake=1)])
        board.update([row("a", wake=1, driven=True)])
        assert offered(offers) == [("b", 1)]


def test_a_watcher_that_falls_behind_gets_merged_offers_and_loses_none(clock: FakeClock) -> None:
    board = Board(clock)
    with board.watch(frozenset()) as offers:
        for wake in range(1, 100):
            board.update([row("a", wake=wake), row("b", wake=wake)])
        assert offered(offers) == [("a", 99), ("b", 99)]


def test_a_watch_of_some_workspaces_hears_of_no_other(clock: FakeClock) -> None:
    board = Board(clock)
    board.update([row("a", wake=1, workspace="w1"), row("b", wake=1, workspace="w2")])
    with board.watch(frozenset({"w2"})) as offers:
        assert offered(offers) == [("b", 1)]
        board.update([row("c", wake=1, workspace="w1"), row("d", wake=1, workspace="w2")])
        assert offered(offers) == [("d", 1)]


def test_what_becomes_runnable_by_time_is_offered_when_its_time_comes(clock: FakeClock) -> None:
    board = Board(clock)
    with board.watch(frozenset()) as offers:
        board.update(
            [
                row("sleeper", wake_at=clock.wall() + 30 * SECOND),
                row("failed", wake=1, not_before=clock.steady() + 10 * SECOND),
            ]
        )
        assert board.next_due() == clock.steady() + 10 * SECOND
        clock.advance(10)
        board.advance()
        assert offered(offers) == [("failed", 1)]
        clock.advance(19)
        board.advance()
        assert offered(offers) == []
        clock.advance(1)
        board.advance()
        assert offered(offers) == [("sleeper", 0)]
        assert board.next_due() is None


@pytest.mark.parametrize(("step", "left"), [(-20, 50), (20, 10), (300, 0)])
def test_setting_the_wall_clock_moves_the_time_to_wake(
    clock: FakeClock, step: float, left: float
) -> None:
    board = Board(clock)
    with board.watch(frozenset()) as offers:
        board.update([row("sleeper", wake_at=clock.wall() + 30 * SECOND)])
        clock.step_wall(step)
        board.advance()
        clock.advance(left - 0.1)
        board.advance()
        assert offered(offers) == ([] if left else [("sleeper", 0)])
        clock.advance(0.1)
        board.advance()
        assert offered(offers) == ([("sleeper", 0)] if left else [])


def test_a_sleeper_that_is_woken_early_is_offered_once(clock: FakeClock) -> None:
    board = Board(clock)
    with board.watch(frozenset()) as offers:
        board.update([row("a", wake_at=clock.wall() + 5 * SECOND)])
        board.update([row("a", wake=1, wake_at=clock.wall() + 5 * SECOND)])
        assert offered(offers) == [("a", 1)]
        clock.advance(5)
        board.advance()
        assert offered(offers) == []


def test_a_sleeper_that_is_changed_again_and_again_costs_no_memory(clock: FakeClock) -> None:
    board = Board(clock)
    first = clock.wall() + 1_000 * SECOND
    with board.watch(frozenset()) as offers:
        board.update([row("a", wake_at=first), row("b", wake_at=first)])
        for n in range(1, 5_000):
            board.update([row("a", wake_at=first + n * SECOND)])
        assert len(board._heap) < 100
        clock.advance(1_000)
        board.advance()
        assert offered(offers) == [("b", 0)]
        clock.advance(4_999)
        board.advance()
        assert offered(offers) == [("a", 0)]
