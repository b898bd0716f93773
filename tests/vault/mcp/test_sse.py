"""Server-sent events, however they are cut."""

import random

import pytest

from vault.mcp.sse import EVENTS_MAX, Events, TooMuch

STREAM = (
    b': hello\n\nid: 1\ndata:\n\nevent: message\ndata: {"a":\ndata: 1}\n\n'
    b"data: two\r\n\r\n:ping\r\rdata:three\r\revent: other\ndata: not ours\n\ndata: last\n\n"
    b"data: never ended"
)
FOUND = [b'{"a":\n1}', b"two", b"three", b"last"]


def test_events_are_the_same_however_they_are_cut() -> None:
    for seed in range(300):
        chance, events, at, found = random.Random(seed), Events(1000), 0, []
        while at < len(STREAM):
            step = chance.randint(1, 20)
            found += events.feed(STREAM[at : at + step])
            at += step
        assert found == FOUND


@pytest.mark.parametrize(
    "stream", [b"data: " + b"x" * 2000, b"data: x\n" * 1500, b"x" * 2000, b"y: " + b"x" * 2000]
)
def test_v42_an_event_has_a_most(stream: bytes) -> None:
    with pytest.raises(TooMuch):
        Events(1000).feed(stream)


@pytest.mark.parametrize("event", [b"data: x\n\n", b":\n", b"\n"])
def test_v42_and_so_have_all_events_together(event: bytes) -> None:
    events = Events(1000)
    with pytest.raises(TooMuch):
        feed_for_ever(events, event * 1000)


def feed_for_ever(events: Events, data: bytes) -> None:
    for _ in range(EVENTS_MAX):
        events.feed(data)
