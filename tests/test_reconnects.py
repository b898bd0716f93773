"""Five hundred daemons that lose one brain: simulated by the machine and the waits alone."""

import random
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

import hands.daemon
from carpal.backoff import STABLE, Backoff
from carpal.link import Link, Side, State
from hands.app import HandConfig
from tests.link_ends import closed, deliver, hello, linked, sent, welcome

PROMISES = Path(__file__).parents[1] / "docs" / "link-promises.md"
DAEMONS = 500
LINKED = 2 * STABLE
"""Seconds that all were linked before."""


class Simulated:
    """One daemon on a fake clock, linked long before zero."""

    def __init__(self, chance: random.Random) -> None:
        self._now = -LINKED - chance.uniform(0.0, 5.0)
        self._brain, self._link = linked(self._now)
        self._backoff = Backoff(
            hands.daemon._FIRST_WAIT,
            HandConfig().reconnect_max,
            uniform=chance.uniform,
            clock=lambda: self._now,
        )
        self._backoff.works()

    def lives_until(self, end: float) -> None:
        """Both ends beat."""
        ends = (self._brain, self._link)
        while (now := min(end.next_tick() for end in ends)) < end:
            self._now = now
            for link, other in (ends, ends[::-1]):
                link.tick(now, lease_left=10.0)
                deliver(link, other, now)
        self._now = end

    def notices(self, how: str) -> None:
        """That its brain is gone: it is told, or hears nothing more."""
        if how == "killed":
            self._link.eof("the connection ended")
        while self._link.state is not State.CLOSED:
            self._now = self._link.next_tick()
            self._link.tick(self._now)
            sent(self._link)  # into the void
        assert closed(self._link)

    def dials_until(self, back: float) -> Iterable[float]:
        """When it dials; the last time is the one that links it anew."""
        while self._link.state is State.CLOSED:
            self._now += self._backoff.next()
            if self._now >= back:
                self._link, brain = (
                    Link(Side.DAEMON, self._now, hello(1)),
                    Link(Side.BRAIN, self._now),
                )
                deliver(self._link, brain, self._now)
                brain.welcome(welcome(epoch=2), self._now)
                deliver(brain, self._link, self._now)
                assert self._link.state is State.OPEN
            yield self._now


@cache
def storm(how: str, away: float) -> list[list[float]]:
    """When each dials, after one brain was lost at zero and came back so many seconds later."""
    chance = random.Random(3)
    dials = []
    for _ in range(DAEMONS):
        daemon = Simulated(chance)
        daemon.lives_until(0.0)
        daemon.notices(how)
        dials.append(list(daemon.dials_until(away)))
    return dials


def most(moments: Iterable[float], span: float) -> float:
    """The most in any span of so many seconds, as a share of the daemons."""
    return max(Counter(int(moment / span) for moment in moments).values()) / DAEMONS


@pytest.mark.parametrize(
    ("how", "away", "span", "share", "row"),
    [
        ("killed", 0.0, 0.1, 0.2, "at once | 20 % in any tenth of a second"),
        ("killed", 3.0, 1.0, 0.4, "after 3 s | 40 % in any second"),
        ("killed", 10.0, 1.0, 0.2, "after 10 s | 20 % in any second"),
        ("killed", 30.0, 1.0, 0.1, "after 30 s or more | 10 % in any second"),
        ("killed", 600.0, 1.0, 0.1, "after 30 s or more | 10 % in any second"),
        ("silent", 0.0, 1.0, 0.3, "at once, where it was the path that swallowed all | 30 %"),
    ],
)
def test_no_moment_sees_more_daemons_come_back_than_is_promised_l03(
    how: str, away: float, span: float, share: float, row: str
) -> None:
    assert row in PROMISES.read_text(encoding="utf-8")
    assert most((dials[-1] for dials in storm(how, away)), span) <= share


def test_while_the_brain_is_away_each_second_sees_fewer_attempts_l03() -> None:
    attempts = [moment for dials in storm("killed", 600.0) for moment in dials]
    said = "one and a half attempts a daemon in the first second, a fifth after half a minute"
    assert said in PROMISES.read_text(encoding="utf-8")
    per_second = Counter(int(moment) for moment in attempts)
    assert per_second[0] <= 1.5 * DAEMONS
    assert max(per_second[second] for second in range(30, 600)) <= 0.2 * DAEMONS


def test_all_are_back_within_the_longest_wait_l03() -> None:
    assert max(dials[-1] for dials in storm("killed", 600.0)) <= 660.0
