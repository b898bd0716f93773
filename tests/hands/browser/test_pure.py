"""Addresses, keys, snapshots and what is told of tabs, without a browser."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from hands.api import ToolError
from hands.browser import addresses, keys, snapshot, state
from hands.browser.elements import ref
from hands.browser.forms import written
from hands.browser.members import MEMBERS, acknowledged
from hands.browser.tabs import Tabs

TREE = """- generic [ref=e1]:
  - heading "Order" [level=1] [ref=e2]
  - list [ref=e3]:
    - listitem [ref=e4]:
      - link "Elsewhere" [ref=e5] [cursor=pointer]:
        - /url: /other
  - searchbox "Search the shop" [ref=e6]
  - button "Add to cart" [ref=e7]"""


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("example.com", "https://example.com"),
        ("localhost:8080/x", "https://localhost:8080/x"),
        ("HTTP://example.com/a?b#c", "HTTP://example.com/a?b#c"),
        (" reload ", "reload"),
        ("about:blank", "about:blank"),
        ("[::1]:80/x", "https://[::1]:80/x"),
        ("user@host:1/x", "https://user@host:1/x"),
    ],
)
def test_an_address_is_meant_as_people_write_it(given: str, meant: str) -> None:
    assert addresses.meant(given) == (meant, "")


@pytest.mark.parametrize(
    "given",
    [
        *("file:///etc/passwd", "FILE:/etc/passwd", "data:text/html,x", "javascript:alert(1)"),
        *("chrome://version", "view-source:http://a", "about:config", "blob:http://a/b", "ftp://a"),
        *("http://", "https:///x", "http://[", "http://a:99999/", "x" * 3000, ""),
    ],
)
def test_what_is_no_address_of_the_web_is_refused_with_why(given: str) -> None:
    url, why = addresses.meant(given)
    assert url == ""
    assert why


def test_the_forwarder_refuses_plain_http_alone_for_of_the_rest_it_sees_nothing() -> None:
    said = {"carpal-refused": "yes"}
    assert addresses.by_forwarder("http://a.example/x", said)
    assert not addresses.by_forwarder("https://a.example/x", said)
    assert not addresses.by_forwarder("http://a.example/x", {"server": "carpal"})


def test_keys_are_those_that_models_write() -> None:
    assert keys.presses("ctrl+shift+a Return") == [["Control", "Shift", "a"], ["Enter"]]
    assert keys.presses("ctrl++") == [["Control", "+"]]
    assert keys.presses("+") == [["+"]]
    assert keys.presses(" ") == [["Space"]]
    assert keys.presses("BackSpace Page_Down cmd+v é") == [
        *(["Backspace"], ["PageDown"], ["Control", "v"], ["é"])
    ]
    assert keys.modifiers("ctrl+shift") == ["Control", "Shift"]
    for wrong in ("ctrl+nothing", "Enterr", "ab"):
        with pytest.raises(ValueError, match="is no key"):
            keys.presses(wrong)
    with pytest.raises(ValueError, match="more than"):
        keys.presses("a " * 300)


def test_a_snapshot_is_cut_to_what_was_asked_for() -> None:
    assert snapshot.cut(TREE) == TREE
    assert snapshot.cut(TREE, ref="e4") == (
        '- listitem [ref=e4]:\n  - link "Elsewhere" [ref=e5] [cursor=pointer]:\n    - /url: /other'
    )
    assert snapshot.cut(TREE, ref="e9") is None
    shallow = snapshot.cut(TREE, depth=2)
    assert shallow is not None
    assert "Elsewhere" not in shallow
    assert shallow.endswith("[3 lines deeper than 2 levels are left out]")
    acted_on = snapshot.cut(TREE, interactive=True)
    assert acted_on is not None
    assert [snapshot.ref_of(line) for line in acted_on.splitlines()] == ["e5", "e6", "e7"]
    long = snapshot.cut("\n".join([f"- text: {'x' * 100}"] * 1000))
    assert long is not None
    assert len(long) <= snapshot.CHARACTERS_MAX
    assert "more lines are left out" in long
    assert snapshot.cut("") == "(empty)"


@pytest.mark.parametrize(
    ("query", "ref"),
    [("search bar", "e6"), ("add to cart button", "e7"), ("the title", "e2"), ("elsewhere", "e5")],
)
def test_what_fits_some_words_is_found(query: str, ref: str) -> None:
    assert snapshot.ref_of(snapshot.found(TREE, query).splitlines()[0]) == ref


def test_a_line_of_tabs_has_room_whatever_pages_call_themselves() -> None:
    tabs = [
        {"tab_id": f"t{n}", "title": "\n[x]" * 1000, "url": "http://a/" + "é" * 5000}
        for n in range(state.TABS_MAX)
    ]
    line = state.line(tabs, [{"type": "download_failed", "download_id": "d", "url": "x" * 9000}])
    assert len(line) < 32 * 1024
    assert "\n" not in line
    assert line.startswith(state.BEGINS)
    told = json.loads(line.removeprefix("[browser_state ").removesuffix("]"))
    assert len(told["tabs"]) == state.TABS_MAX


def test_many_dialogs_are_few_lines_and_each_is_one_line() -> None:
    seen = state.Dialogs()
    for _ in range(1000):
        seen.add("confirm", "a\nb\u2028c", "dismissed")
    seen.add("beforeunload", "", "accepted")
    lines = seen.told()
    assert lines[0] == 'A confirm dialog "a b c" was dismissed.'
    assert lines[3:] == ["997 more dialogs were dismissed.", "1 more dialog was accepted."]
    seen.add("alert", "", "accepted")
    assert seen.told() == ["An alert dialog was accepted."]
    assert seen.told() == []


def test_what_was_given_is_never_a_place_for_more() -> None:
    told = acknowledged(MEMBERS["hold_key"], {"text": "{duration}", "duration": 2.0})
    assert told == "Held {duration} for 2s."
    ref = {"target": {"type": "ref", "ref": "e1\n{ref}"}}
    assert acknowledged(MEMBERS["scroll_to"], ref) == "Scrolled to e1 {ref}."


@pytest.mark.parametrize("given", ["e5", "ref=e5", "[ref=e5]"])
def test_a_ref_is_taken_as_pages_are_read(given: str) -> None:
    assert ref(given) == "e5"
    assert ref(given.replace("e5", "f12e5")) == "f12e5"


@pytest.mark.parametrize(
    "given",
    [
        *("e", "5", "e5 ", "e5\n", "E5", "e5e6", "[e5]", "[ref=e5", "ref=[ref=e5]", "e٣", "f1"),
        *("e5 >> css=body", "e5,body", "css=body", "e5 >> internal:control=enter-frame", ""),
        *("e" + "1" * 10, "x" * 100_000, "e5]", "ref=ref=e5", "aria-ref=e5"),
    ],
)
def test_what_is_no_ref_never_becomes_part_of_a_selector(given: str) -> None:
    with pytest.raises(ToolError, match="is no ref"):
        ref(given)


class Text(str):
    """One that is never walked as a whole."""

    def __iter__(self) -> Any:
        raise AssertionError("the whole of it was walked")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *((1234567.89, "1234567.89"), (0.1, "0.1"), (2.0, "2"), (12345678.0, "12345678")),
        *((12345678901234567890, "12345678901234567890"), (-3, "-3"), (1e300, "1e+300")),
        *((True, "true"), (False, "false"), ("1.0", "1.0")),
    ],
)
def test_a_number_is_put_into_a_form_with_all_its_digits(
    value: str | float | bool, shown: str
) -> None:
    assert written(value) == shown


def test_what_a_page_says_is_cut_before_it_is_walked() -> None:
    assert state.one_line(Text("a\n" * 5000), 5) == "a a …"
    assert state.one_line(Text("a\nb"), 3) == "a b"
    assert state.one_line(Text("ab"), 1) == "…"


class Page:
    """One of which nothing is asked."""

    url = "about:blank"

    def on(self, event: str, _: Any) -> None:
        """Nothing happens."""


async def test_of_what_pages_do_unasked_only_so_much_is_kept() -> None:
    context: Any = SimpleNamespace(on=lambda *_: None, pages=[])
    off: Any = {"accept": False, "watch_console": False, "watch_network": False}
    tabs = Tabs(context, **off, download=lambda _: None)
    tabs._follow = _nothing  # type: ignore[method-assign,assignment]
    for number in range(1000):
        tabs._wanted(f"file:///{number}" + "x" * 100_000)
        tabs.dialogs.add("alert", "x" * 100_000, "dismissed")
        page: Any = Page()
        tabs._gone(tabs._opened(page))
    assert (len(tabs.refused), max(map(len, tabs.refused))) == (500, 501)
    assert not tabs.changes, "what is gone again is not told"
    *dialogs, refused = tabs.notices()
    assert all(line.endswith('…" was dismissed.') for line in dialogs[:3])
    assert dialogs[3:] == ["997 more dialogs were dismissed."]
    assert "(and 499 or more others)" in refused


async def _nothing(_: Any) -> None:
    pass
