"""Tools are found by words: of many, those that fit."""

from brain.tools.search import best, told

TOOLS = {
    "web__click": {"description": "Click an element on a page."},
    "web__open_page": {"description": "Open a page by its URL."},
    "cal__create_event": {"description": "Put an event into a calendar."},
    "cal__listEvents": {"description": "What is in a calendar, by day."},
    "db__query": {"description": "Run a statement of SQL on a page of rows."},
}


def test_a_word_in_the_name_counts_for_more_than_one_in_the_description() -> None:
    assert best(TOOLS, "open page", 5)[0] == "web__open_page"
    assert best(TOOLS, "query", 5) == ["db__query"]


def test_parts_of_names_beginnings_of_words_and_hands_are_found() -> None:
    assert set(best(TOOLS, "events", 5)) == {"cal__create_event", "cal__listEvents"}
    assert best(TOOLS, "events", 5)[0] == "cal__listEvents", "the word itself first"
    assert best(TOOLS, "cal", 5) == ["cal__create_event", "cal__listEvents"]


def test_a_name_that_is_the_word_comes_before_a_long_one_that_has_it() -> None:
    said = {"description": "Change a file."}
    assert best({"replace_based_edit_tool": said, "edit": said}, "edit a file", 1) == ["edit"]


def test_what_has_none_of_the_words_is_not_found_and_the_limit_holds() -> None:
    assert best(TOOLS, "telephone", 5) == []
    assert best(TOOLS, "", 5) == []
    assert best(TOOLS, "page", 1) == ["web__open_page"]


def test_ties_keep_the_order_in_which_the_tools_were_told() -> None:
    same = {name: {"description": "runs"} for name in ("b", "a", "c")}
    assert best(same, "runs", 2) == ["b", "a"]


def test_the_answer_has_names_and_descriptions_and_says_what_is_no_tool() -> None:
    long = {"web__click": {"description": "x" * 1000}}
    assert len(told(long, ["web__click"], [])) < 500
    said = told(TOOLS, ["web__click"], ["nope"])
    assert said.splitlines() == [
        "web__click: Click an element on a page.",
        "[no tool is named nope]",
        "[loaded: they can be called from your next reply on]",
    ]
    assert "try others" in told(TOOLS, [], [])
