"""What goes each way while a person watches: whole, bounded, and nothing else is taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hands import controls
from hands.inside import view_frames as frames
from hands.visit import view_state as screen
from tests.png import png

ALL = (frames.PNG, frames.JPEG, frames.SEEN, frames.EVENT)
_SIDES = st.integers(0, controls.SIDE_MAX)
_TURNS = st.integers(-controls.SIDE_MAX, controls.SIDE_MAX)
_KEYS = st.text(min_size=1, max_size=32).filter(str.isprintable)
_BUTTONS = st.sampled_from(["left", "middle", "right"])
EVENTS = st.one_of(
    st.builds(controls.Key, _KEYS, st.booleans(), st.booleans()),
    st.builds(controls.Pointer, _SIDES, _SIDES, st.sampled_from(["move", "down", "up"]), _BUTTONS),
    st.builds(controls.Wheel, _SIDES, _SIDES, _TURNS, _TURNS),
)
_PICTURES = st.lists(st.binary(max_size=300), max_size=5)


@given(_PICTURES, st.lists(st.integers(1, 40), min_size=1, max_size=50))
def test_frames_are_whole_again_however_they_are_cut(sent: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frames.framed(frames.PNG, each) for each in sent)
    parser, got, at, turn = frames.Parser(ALL), [], 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        got += parser.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert got == [(frames.PNG, each) for each in sent]


@given(st.binary(max_size=200), st.sampled_from([(frames.SEEN,), (frames.EVENT,), ALL]))
def test_whatever_comes_is_frames_or_refused_and_never_more_than_a_frame_is_kept(
    data: bytes, kinds: tuple[bytes, ...]
) -> None:
    try:
        found = frames.Parser(kinds).feed(data)
    except ValueError:
        return
    assert all(kind in kinds for kind, _ in found)


@pytest.mark.parametrize(
    "head",
    [
        frames.HEADER.pack(frames.SEEN, 1),
        frames.HEADER.pack(frames.EVENT, frames.EVENT_MAX + 1),
        frames.HEADER.pack(frames.PNG, frames.PICTURE_MAX + 1),
        frames.HEADER.pack(b"?", 0),
    ],
)
def test_what_says_that_it_is_too_long_or_unknown_is_refused_by_its_head(head: bytes) -> None:
    with pytest.raises(ValueError, match="a frame"):
        frames.Parser(ALL).feed(head)


def test_what_the_other_direction_has_is_refused() -> None:
    with pytest.raises(ValueError, match="a frame"):
        frames.Parser((frames.SEEN,)).feed(frames.framed(frames.EVENT, b"{}"))


@given(EVENTS)
def test_what_a_person_does_is_read_as_it_was_and_fits_a_frame(event: controls.Event) -> None:
    data = controls.encoded(event)
    assert controls.read(data) == event
    frames.framed(frames.EVENT, data)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "key", "down", "x", "y", "dx", "dy", "action", "button", "z"]),
            inner | st.sampled_from(["key", "pointer", "wheel", "up"]),
            max_size=5,
        )
    ),
    max_leaves=8,
)


@given(_JSON)
def test_whatever_else_is_said_is_no_event_in_words_that_tell_nothing_of_it(said: object) -> None:
    words = ""
    try:
        event = controls.checked(said)
    except ValueError as error:
        words = str(error)
    if not words:
        assert controls.read(controls.encoded(event)) == event
    assert words in ("", "it is no event of the type key, pointer, wheel")


@given(st.binary(max_size=60))
def test_bytes_are_no_event_and_no_harm(data: bytes) -> None:
    try:
        controls.read(data)
    except ValueError:
        return
    raise AssertionError(data)


def test_nested_without_end_is_no_event() -> None:
    with pytest.raises(ValueError, match="no event"):
        controls.read(b"[" * 500_000)


@given(st.lists(EVENTS, max_size=30))
def test_after_what_lets_go_nothing_is_down(events: list[controls.Event]) -> None:
    downs, all_of_it = controls.Downs(), [*events]
    for event in events:
        downs.note(event)
    all_of_it += downs.ups()
    down: set[object] = set()
    for event in all_of_it:
        match event:
            case controls.Key(key=name, down=is_down):
                (down.add if is_down else down.discard)(name)
            case controls.Pointer(action="down" | "up" as action, button=button):
                (down.add if action == "down" else down.discard)((button,))
    assert down == set()
    assert list(downs.ups()) == []


def test_a_picture_is_what_it_is_said_to_be_and_of_a_size_that_a_browser_shows() -> None:
    small = png(4, 3)
    assert screen.picture(frames.PNG, small).media_type == "image/png"
    for letter, data in (
        (frames.JPEG, small),
        (frames.PNG, b"<svg/>"),
        (frames.PNG, b""),
        (frames.PNG, png(1, 10_001)),
    ):
        with pytest.raises(ValueError, match="the hand shows"):
            screen.picture(letter, data)
