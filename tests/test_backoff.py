"""Waits grow to a cap, are spread from the first on, and start over."""

import random
from collections import Counter

import pytest

from carpal.backoff import Backoff


def test_the_ceiling_doubles_up_to_the_cap() -> None:
    backoff = Backoff(0.5, 3.0, uniform=lambda low, high: high)
    assert [backoff.next() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_every_wait_is_spread_from_zero_also_the_first() -> None:
    bounds: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        bounds.append((low, high))
        return low

    backoff = Backoff(0.5, 60.0, uniform=uniform)
    assert [backoff.next(), backoff.next()] == [0.0, 0.0]
    assert bounds == [(0.0, 0.5), (0.0, 1.0)]


def test_a_thousand_failures_are_no_overflow() -> None:
    backoff = Backoff(0.1, 30.0, uniform=lambda low, high: high)
    for _ in range(2_000):
        last = backoff.next()
    assert last == 30.0


@pytest.mark.parametrize("first", [0.05, 0.5, 5.0])
def test_chance_stays_within_the_ceiling(first: float) -> None:
    backoff = Backoff(first, 10.0)
    for _ in range(50):
        ceiling = backoff.ceiling
        assert 0.0 <= backoff.next() <= ceiling


class Worked:
    """Waits that are as long as they may be, of what works for a while and fails."""

    def __init__(self) -> None:
        self._now = 0.0
        self._backoff = Backoff(1.0, 60.0, uniform=lambda low, high: high, clock=lambda: self._now)

    def failed(self, times: int = 1) -> float:
        """The last wait, of so many failures to get it to work."""
        return [self._backoff.next() for _ in range(times)][-1]

    def worked(self, seconds: float) -> float:
        """The wait after it worked for so long, and was said to all the time."""
        for _ in range(10):
            self._backoff.works()
            self._now += seconds / 10
        return self._backoff.next()


def test_after_an_hour_connected_the_first_wait_counts_from_the_error_l04() -> None:
    it = Worked()
    it.failed(times=5)
    assert it.worked(7200.0) == 1.0


def test_what_failed_to_connect_since_is_not_taken_for_what_worked_before() -> None:
    it = Worked()
    it.worked(7200.0)
    assert [it.failed() for _ in range(3)] == [2.0, 4.0, 8.0]


def test_what_fails_soon_after_it_connected_is_dialled_ever_less_often() -> None:
    it = Worked()
    assert [it.worked(1.9) for _ in range(8)] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


@pytest.mark.parametrize(("lasted", "most"), [(2.1, 1.0), (9.0, 4.0), (59.0, 16.0), (61.0, 1.0)])
def test_no_wait_is_longer_than_half_of_what_the_connection_lasted(
    lasted: float, most: float
) -> None:
    it = Worked()
    it.failed(times=8)
    for _ in range(5):
        assert it.worked(lasted) == most
        assert it.failed() == 2 * most, "a failure to connect counts as before"


@pytest.mark.parametrize("attempt", range(4))
def test_each_attempt_of_five_hundred_that_lost_one_brain_is_spread_also_the_first_l03(
    attempt: int,
) -> None:
    chance = random.Random(7)
    storm = [Backoff(1.0, 60.0, uniform=chance.uniform) for _ in range(500)]
    for _ in range(attempt):
        for backoff in storm:
            backoff.next()
    span = storm[0].ceiling
    per_100_ms = Counter(int(backoff.next() * 10) for backoff in storm)
    assert max(per_100_ms.values()) / (500 / (span * 10)) < 3
