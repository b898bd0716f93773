"""Pictures are scaled as the model's service would, and a point goes there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpal.pictures import EDGE_MAX, TOKENS_MAX, fit, tokens

_PIXELS = st.integers(1, 40_000)


@pytest.mark.parametrize(
    ("given_size", "seen"),
    [
        ((1280, 800), (1280, 800)),
        ((1092, 1092), (1092, 1092)),
        ((1920, 1080), (1456, 819)),
        ((1075, 1520), (924, 1307)),
        ((6000, 4000), (1344, 896)),
        ((10_000, 10_000), (1092, 1092)),
        ((1568, 784), (1568, 784)),
        ((784, 3136), (392, 1568)),
        ((30_000, 2), (1568, 1)),
        ((1, 1), (1, 1)),
    ],
)
def test_a_size_is_what_the_services_own_rule_makes_of_it(
    given_size: tuple[int, int], seen: tuple[int, int]
) -> None:
    made = fit(*given_size)
    assert (made.width, made.height) == seen
    assert made.scaled == (given_size != seen)


@given(_PIXELS, _PIXELS)
def test_every_size_is_within_the_limits_and_none_is_made_larger(width: int, height: int) -> None:
    made = fit(width, height)
    assert 1 <= made.width <= min(width, EDGE_MAX)
    assert 1 <= made.height <= min(height, EDGE_MAX)
    assert tokens(made.width, made.height) <= TOKENS_MAX
    again = fit(made.width, made.height)
    assert not again.scaled, "what was scaled is not scaled again"


@given(_PIXELS, _PIXELS, st.data())
def test_a_point_that_was_mapped_back_is_shown_where_it_was(
    width: int, height: int, data: st.DataObject
) -> None:
    made = fit(width, height)
    x = data.draw(st.integers(0, made.width - 1))
    y = data.draw(st.integers(0, made.height - 1))
    there = made.back(x, y)
    assert 0 <= there[0] < width
    assert 0 <= there[1] < height
    assert made.onto(*there) == (x, y)
    assert made.scaled or there == (x, y)


def test_a_point_outside_stays_outside() -> None:
    made = fit(1920, 1080)
    assert made.back(1456, 819) >= (1920, 1080)
    assert made.back(-1, -1) < (0, 0)


def test_what_has_no_pixels_is_no_picture() -> None:
    with pytest.raises(ValueError, match="0x5 pixels is none"):
        fit(0, 5)
