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


def test_success_starts_it_over() -> None:
    backoff = Backoff(1.0, 60.0, uniform=lambda low, high: high)
    backoff.next()
    backoff.next()
    assert backoff.ceiling == 4.0
    backoff.reset()
    assert backoff.next() == 1.0


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


def test_after_an_hour_connected_the_first_wait_counts_from_the_error_l04() -> None:
    backoff = Backoff(1.0, 60.0, uniform=lambda low, high: high)
    for _ in range(5):
        backoff.ended(0.0)
        backoff.next()
    backoff.ended(7200.0)
    assert backoff.next() == 1.0


def test_what_fails_soon_after_it_connected_is_dialled_ever_less_often() -> None:
    backoff = Backoff(1.0, 60.0, uniform=lambda low, high: high)
    waits = []
    for _ in range(8):
        backoff.ended(1.9)
        waits.append(backoff.next())
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


@pytest.mark.parametrize(("lasted", "most"), [(2.0, 1.0), (9.0, 4.0), (59.0, 16.0), (60.0, 1.0)])
def test_no_wait_is_longer_than_half_of_what_the_connection_lasted(
    lasted: float, most: float
) -> None:
    backoff = Backoff(1.0, 60.0, uniform=lambda low, high: high)
    for _ in range(8):
        backoff.next()
    for _ in range(5):
        backoff.ended(lasted)
        assert backoff.next() == most
        assert backoff.next() == 2 * most, "a failure to connect counts as before"


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
