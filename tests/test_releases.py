"""Twelve months from a release, and which contract versions that asks a brain to speak."""

from datetime import date

import pytest

from carpal import releases
from carpal.link import PROTOCOL_MAX, PROTOCOL_MIN
from carpal.releases import PROTOCOLS, RELEASED, must_speak, read, supported_until


@pytest.mark.parametrize(
    ("released", "until"),
    [
        (date(2026, 11, 30), date(2027, 11, 30)),
        (date(2028, 2, 29), date(2029, 2, 28)),
        (date(2026, 1, 1), date(2027, 1, 1)),
    ],
)
def test_a_release_is_served_until_the_same_day_a_year_later(released: date, until: date) -> None:
    assert supported_until(released) == until


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "1999-01-01", "9999-01-01", "\0"])
def test_what_is_no_day_is_none(text: str) -> None:
    assert read(text) is None


def test_a_day_is_read_as_a_daemon_says_it() -> None:
    assert read(RELEASED.isoformat()) == RELEASED


def test_this_build_speaks_what_it_says_and_all_that_a_year_of_daemons_may_speak() -> None:
    """Raise PROTOCOL_MIN only a year after the version above it was first released."""
    assert max(PROTOCOLS) == PROTOCOL_MAX, "a new contract version is noted with its first release"
    assert must_speak(RELEASED) >= PROTOCOL_MIN


def test_a_contract_version_is_dropped_no_sooner_than_a_year_after_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = {1: date(2026, 1, 1), 2: date(2027, 3, 1), 3: date(2027, 9, 1)}
    monkeypatch.setattr(releases, "PROTOCOLS", versions)
    assert must_speak(date(2027, 2, 1)) == 1
    assert must_speak(date(2028, 3, 1)) == 1, "a daemon of the day before speaks 1 alone"
    assert must_speak(date(2028, 3, 2)) == 2
    assert must_speak(date(2028, 9, 2)) == 3
