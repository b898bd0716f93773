"""Waits grow to a cap, are spread from the first on, and start over."""

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
