"""What a person types to leave, and what is the hand's."""

import pytest

from hands.visit.escapes import Escapes


@pytest.mark.parametrize(
    ("keys", "given", "left"),
    [
        (b"ls\r", b"ls\r", False),
        (b"~.", b"", True),
        (b"ls\r~.never", b"ls\r", True),
        (b"a~.", b"a~.", False),
        (b"~~.", b"~.", False),
        (b"~x", b"~x", False),
        (b"\r~\r~.", b"\r~\r", True),
        (b"\n~.", b"\n", True),
    ],
)
def test_a_tilde_at_the_beginning_of_a_line_is_for_this_end(
    keys: bytes, given: bytes, left: bool
) -> None:
    whole = Escapes()
    assert (whole.feed(keys), whole.left) == (given, left)
    pieces = Escapes()
    assert b"".join(pieces.feed(keys[at : at + 1]) for at in range(len(keys))) == given
    assert pieces.left == left
