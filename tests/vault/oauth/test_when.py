"""When a token is replaced, and for how long what failed is left alone."""

import pytest

from vault.oauth.pace import MOST, Pace
from vault.oauth.ports import Tokens
from vault.oauth.when import due, expiry, moved, usable
from vault.secret import Secret

NOW = 1_800_000_000.0


def tokens(left: float | None, lifetime: float | None = 3600.0) -> Tokens:
    return Tokens(Secret("at-0123456789"), None, None if left is None else NOW + left, lifetime)


@pytest.mark.parametrize(
    ("left", "lifetime", "expected"),
    [
        (331, 3600, False),
        (269, 3600, True),
        (331, 86_400, False),  # five minutes at most, however long it lives
        (269, 86_400, True),
        (67, 600, False),  # a tenth of what it lives, if that is less
        (53, 600, True),
        (-1, 3600, True),
        (None, 3600, False),
        (None, None, False),
    ],
)
def test_a_token_is_due_a_tenth_of_its_life_or_five_minutes_before_its_end(
    left: float | None, lifetime: float | None, expected: bool
) -> None:
    assert all(due(tokens(left, lifetime), NOW, str(each)) is expected for each in range(50))


def test_tokens_that_end_together_are_not_due_together() -> None:
    held = tokens(300)
    answers = [due(held, NOW, str(each)) for each in range(100)]
    assert 20 < sum(answers) < 80
    assert answers == [due(held, NOW, str(each)) for each in range(100)]


def test_a_token_serves_until_its_end_and_one_without_end_is_tried() -> None:
    assert usable(tokens(1), NOW)
    assert not usable(tokens(0), NOW)
    assert usable(tokens(None), NOW)


def test_an_end_counts_from_the_asking_and_a_silent_server_is_held_to_its_last_word() -> None:
    assert expiry(60.0, 3600.0, NOW) == (NOW + 60, 60.0)
    assert expiry(None, 3600.0, NOW) == (NOW + 3600, 3600.0)
    assert expiry(None, None, NOW) == (None, None)


def test_a_clock_was_set_when_it_and_a_steady_one_disagree_by_a_minute() -> None:
    assert not moved(NOW + 100, 100.0, NOW, 0.0)
    assert not moved(NOW + 159, 100.0, NOW, 0.0)
    assert moved(NOW + 161, 100.0, NOW, 0.0)
    assert moved(NOW - 1, 100.0, NOW, 0.0)


def test_waits_grow_to_five_minutes_with_chance_and_no_less_than_the_server_asks() -> None:
    pace = Pace()
    waits = []
    for _ in range(12):
        pace.failed(0.0, 1.0)
        waits.append(pace.wait(0.0))
    assert waits[:4] == [1.0, 2.0, 4.0, 8.0]
    assert waits[-1] == MOST
    pace.failed(0.0, 0.0, asked=1000.0)
    assert pace.wait(0.0) == 1000.0
    pace.answered()
    assert pace.wait(0.0) == 0.0


def test_an_endpoint_is_patient_at_first() -> None:
    pace = Pace(patience=3)
    for _ in range(2):
        pace.failed(0.0, 1.0)
        assert pace.wait(0.0) == 0.0
    pace.failed(0.0, 0.0)
    assert pace.wait(0.0) == 0.5
