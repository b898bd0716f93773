"""A browser hand and the brain say alike what both have to know of the toolset."""

import json

from hypothesis import given
from hypothesis import strategies as st

from carpal import browser_toolset as one
from hands.browser import members, state


def test_a_browser_hand_has_the_members_that_the_brain_offers() -> None:
    assert members.TOOLSET == one.TOOLSET
    assert set(members.MEMBERS) == one.MEMBERS
    assert members.OFF == one.OFF
    assert members.TAB_MEMBERS == one.TABS


def test_the_line_that_a_browser_hand_says_is_the_one_that_the_brain_reads() -> None:
    tabs = [{"tab_id": "t1", "title": "]", "url": "http://a/", "active": True}]
    read = one.told(state.line(tabs, []))
    assert read is not None
    assert json.loads(read) == {"tabs": tabs}
    assert state.line(tabs, []) == one.line(read)


@given(st.text())
def test_what_was_put_into_a_line_is_read_from_it_and_nothing_else_is_one(text: str) -> None:
    assert one.told(one.line(text)) == text
    assert one.told(text) is None or text.startswith(one.BEGINS)
