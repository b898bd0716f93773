"""Any history of a link, however it is cut, repeated, delayed and drained, keeps its promises.

Both ends of the machine run against models of a daemon's journal and a
session's log. That this finds faults is shown by machines that were broken
on purpose.
"""

import random
from collections.abc import Callable

import pytest

from carpal.link import Link
from carpal.link_answers import Answer, Answers
from carpal.link_ids import Arrivals
from carpal.link_output import Reading
from carpal.v1 import orchestrator_pb2 as pb
from tests.link_history import by_chance, made_up
from tests.pace import SEED, times

ENOUGH = 2_000
"""Histories among which there is one that finds any of these."""


PARTS = times(1, 8)
"""Of a soak, which may run side by side."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_links_do_each_call_ends_with_one_true_outcome_and_ran_at_most_once(
    part: int,
) -> None:
    made_up(times(60, 20_000) // PARTS)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_links_do_by_chance_each_call_ends_with_one_true_outcome(part: int) -> None:
    count = times(500, 200_000) // PARTS
    first = (SEED or random.randrange(1 << 32)) + part * count
    for seed in range(first, first + count):
        try:
            by_chance(seed)
        except AssertionError as error:
            raise AssertionError(f"CARPAL_TEST_SEED={seed}: {error}") from error


def all_of(seeds: range) -> None:
    for seed in seeds:
        by_chance(seed)


def takes_every_id(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(Arrivals, "take", lambda self, request_id: "")


def takes_any_reply(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(Answers, "on_control", lambda self, request_id: Answer("execute"))
    machine.setattr(Answers, "last_reply", lambda self, request_id, attached: None)


def gives_output_as_it_comes(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(Reading, "take", lambda self, chunk: chunk)


def obeys_every_epoch(machine: pytest.MonkeyPatch) -> None:
    honest = Link._on_welcome

    def obey(self: Link, welcome: pb.Welcome) -> None:
        assert self._hello is not None
        self._hello.last_epoch = 0
        honest(self, welcome)

    machine.setattr(Link, "_on_welcome", obey)


def forgets_what_moved(machine: pytest.MonkeyPatch) -> None:
    honest = Answers.last_reply
    machine.setattr(
        Answers, "last_reply", lambda self, number, attached: honest(self, number, attached=False)
    )


def forgets_what_was_acknowledged(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(Link, "acknowledge", lambda self, request_id, offset: None)


def asks_for_hands_while_it_drains(machine: pytest.MonkeyPatch) -> None:
    honest = Link.request

    def ask(self: Link, request: pb.Request) -> int:
        self._draining = False
        return honest(self, request)

    machine.setattr(Link, "request", ask)


def forgets_an_abandoned_answer_before_its_end(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(
        Answers, "leave", lambda self, request_id: self._open.pop(request_id, None) is not None
    )


@pytest.mark.parametrize(
    ("broken", "first"),
    [
        (takes_every_id, 0),
        (takes_any_reply, 0),
        (gives_output_as_it_comes, 240),
        (obeys_every_epoch, 0),
        (forgets_what_moved, 0),
        (forgets_what_was_acknowledged, 960),
        (asks_for_hands_while_it_drains, 250),
        (forgets_an_abandoned_answer_before_its_end, 0),
    ],
)
@pytest.mark.timeout(120)
def test_a_machine_that_was_broken_on_purpose_is_found_out(
    broken: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`first` spares the histories that are known not to find it."""
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        all_of(range(first, first + ENOUGH))
