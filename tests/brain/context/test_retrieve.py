"""Retrieve: of the older log comes back what was asked for, and the same for the same log."""

from typing import Any

from brain.context.conversation import Piece
from brain.context.request import next_reply
from brain.context.retrieve import ranked
from tests.brain.context.chats import check_fit, log_with, prefixes, whole_of, work

LIMITS: dict[str, Any] = {
    "policy": "retrieve",
    "at_tokens": 6000,
    "keep_tokens": 1500,
    "found_tokens": 600,
}


def said(*texts: str) -> list[Piece]:
    """Pieces of text."""
    return [Piece("user", n + 1, {"type": "text", "text": text}) for n, text in enumerate(texts)]


def test_a_rare_word_weighs_more_than_one_that_is_everywhere() -> None:
    texts = said("the dog ran", "the cat sat", "the the the", "a heron in the pond")
    assert ranked(texts, "the heron")[0] == 3


def test_what_says_nothing_of_it_is_not_found_and_of_two_alike_the_newer_comes_first() -> None:
    assert ranked(said("nothing", "heron", "heron"), "where is the heron?") == [2, 1]
    assert ranked(said("a", "b"), "heron") == []
    assert ranked([], "heron") == []


def test_the_newest_turns_are_whole_and_of_the_older_what_was_asked_for() -> None:
    log = log_with(**LIMITS)
    log.say("remember: the heron nests by pond seven")
    log.reply(log.ask(), "noted")
    for number in range(8):
        log.say(f"task {number}")
        work(log, 2)
        log.reply(log.ask(), "done")
    log.say("where does the heron nest?")
    request = next_reply(log.transcript).request
    check_fit(request)
    found = request["messages"][0]["content"][0]["text"]
    assert "[position 3, user said] remember: the heron nests by pond seven" in found
    assert "task 0" not in str(request)
    assert request["messages"][-7]["content"][-1]["text"] == "task 7"


def test_while_a_turn_runs_the_window_only_grows() -> None:
    log = log_with(**LIMITS)
    for number in range(8):
        log.say(f"task {number}")
        work(log, 2)
        log.reply(log.ask(), "done")
    log.say("one more")
    before = work(log, 1)
    for _ in range(4):
        request = work(log, 1)
        assert whole_of(before) in prefixes(request)
        before = request


def test_a_turn_larger_than_the_window_is_cut_between_its_calls() -> None:
    log = log_with(**LIMITS)
    log.say("one task, of very many steps")
    for _ in range(40):
        request = work(log, 1, calls=2)
        check_fit(request)
        assert len(str(request)) < 60_000
