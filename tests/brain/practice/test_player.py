"""Which script and which turn answers a conversation."""

import json
from typing import Any

from brain.practice.answer import Answer, Cut, Failure, Script
from brain.practice.player import Play, Player
from brain.practice.request import read_messages
from tests.practice import assistant, called, result, said, user

FIRST = Script([Answer(text="a"), Answer(text="b")], match="alpha", name="first")
SECOND = Script([Answer(text="c")], match="beta", name="second")


def play(player: Player, messages: list[dict[str, Any]], **more: Any) -> Play:
    raw = json.dumps({"model": "m", "max_tokens": 1, "messages": messages, **more}).encode()
    return player.play(read_messages(raw)[1], raw)


def test_the_first_script_that_fits_is_played() -> None:
    player = Player([FIRST, SECOND])
    assert play(player, [user("alpha and beta")]).source == "first[0]"
    assert play(player, [user("beta")]).source == "second[0]"
    assert play(player, [user("hi")], system="you are beta").source == "second[0]"
    assert play(player, [user("hi")], system=[said("alpha")]).source == "first[0]"
    assert play(player, [user("gamma")]).source == "instructions"


def test_a_script_that_fits_everything_is_played_where_no_earlier_one_fits() -> None:
    player = Player([SECOND, Script([Answer(text="x")], name="any")])
    assert play(player, [user("gamma")]).source == "any[0]"
    assert play(player, [user("beta")]).source == "second[0]"


def test_only_the_first_user_message_is_matched() -> None:
    later = [user("gamma"), assistant("x"), user("alpha")]
    assert play(Player([FIRST]), later).source == "instructions"


def test_a_turn_is_chosen_by_how_often_the_assistant_has_spoken() -> None:
    player = Player([FIRST])
    messages = [user("alpha"), assistant([said("x"), called("c1")]), user([result("c1")])]
    assert play(player, messages).source == "first[1]"
    split = [user("alpha"), assistant("x"), assistant([called("c1")]), user([result("c1")])]
    assert play(player, split).source == "first[1]", "two assistant messages are one turn"


def test_past_its_end_a_script_leaves_the_word_to_instructions() -> None:
    messages = [user("alpha"), assistant("x"), user("y"), assistant("z"), user("$ ls")]
    assert play(Player([FIRST]), messages).source == "instructions"


def test_turns_with_a_condition_answer_the_message_that_meets_it_from_there_on() -> None:
    turns = [
        Answer(text="0"),
        Answer(when="stop", text="1"),
        Answer(when="weather", text="2"),
        Answer(text="3"),
        Answer(when="stop", text="4"),
    ]
    player = Player([Script(turns, name="s")])
    assert play(player, [user("go")]).source == "s[0]"
    later = [user("go"), assistant("x"), user("more"), assistant("y"), user("now stop")]
    assert play(player, later).source == "s[1]"
    after = [*later, assistant([called("c1")]), user([result("c1")])]
    assert play(player, after).source == "s[4]"
    beyond = [*after, assistant([called("c2")]), user([result("c2")])]
    assert play(player, beyond).source == "instructions"
    assert play(player, [user("go"), assistant("x"), user("more")]).source == "s[3]"
    with_result = [user("go"), assistant([called("c1")]), user([result("c1"), said("weather?")])]
    assert play(player, with_result).source == "s[2]"


def test_attempts_at_one_request_are_counted_apart_from_another() -> None:
    turn = Answer(text="a", error=Failure(529, times=2), cut=Cut(after=1))
    player = Player([Script([turn])])

    def outcome(text: str) -> str:
        played = play(player, [user(text)])
        return "error" if played.error else "cut" if played.cut else "whole"

    assert [outcome("x") for _ in range(5)] == ["error", "error", "cut", "whole", "whole"]
    assert outcome("y") == "error"
