"""Searching a log: what fits, with its position and a short excerpt."""

from brain.tools.log_search import LogSearch, excerpt
from brain.tools.own import Search
from tests.brain.logs import Log


def searched(log: Log, **asked: object) -> list[int]:
    """Positions of what was found."""
    search = LogSearch(Search(**asked), log.transcript)  # type: ignore[arg-type]
    for entry in reversed(log.entries):
        search.look(entry)
        if search.over():
            break
    return sorted(search.hits)


def one_turn() -> Log:
    """1 agent, 2 message, 3 start, 4 reply, 5 call, 6 end, 7 result."""
    log = Log()
    log.say("Find the Red door")
    (call,) = log.reply(log.ask(), "looking for red", calls=("open red",))
    log.result(call, "it is locked")
    return log


def test_all_words_must_occur_in_any_case() -> None:
    assert searched(one_turn(), words="RED door") == [2]
    assert searched(one_turn(), words="red") == [2, 4, 5]
    assert searched(one_turn(), words="blue") == []


def test_a_type_or_a_family_of_types_narrows_it() -> None:
    assert searched(one_turn(), words="red", type="agent.*") == [4, 5]
    assert searched(one_turn(), words="red", type="user.message") == [2]


def test_a_tools_calls_and_their_results_are_found_by_its_name() -> None:
    assert searched(one_turn(), tool="bash") == [5, 7]
    assert searched(one_turn(), tool="bash", words="locked") == [7]
    assert searched(one_turn(), tool="bash", type="agent.tool_use") == [5]
    assert searched(one_turn(), tool="build__bash") == []


def test_it_is_over_once_enough_was_found() -> None:
    assert searched(one_turn(), words="red", limit=2) == [4, 5]


def test_what_was_searched_for_before_is_not_found_unless_asked_for() -> None:
    log = one_turn()
    request = log.ask()
    use = {"name": "session_search", "hand": "brain", "model_request_start_id": request}
    call = log.add("agent.tool_use", use | {"input": {"words": "red door"}})
    log.result(call, "2 user.message: Find the Red door", again=True)
    assert searched(log, words="red door") == [2]
    assert searched(log, tool="brain__session_search") == [9, 10]


def test_an_excerpt_is_short_and_around_the_first_word() -> None:
    text = "x " * 1000 + "needle\n\n  here" + " y" * 1000
    line = excerpt(text, ["needle"])
    assert "needle here" in line
    assert line[0] == line[-1] == "…"
    assert len(line) < 220
    assert excerpt("short", []) == "short"
    assert excerpt("", []) == "[no text]"
    assert excerpt("short", ["long"]) == ""
