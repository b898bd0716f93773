"""What docs/reference/attachments.md says of sizes and times is so."""

import re

import pytest

from carpal.pictures import BYTES_MAX, EDGE_MAX, TOKENS_MAX, fit
from hands.attachments import BYTES_MAX as TAKEN_MAX
from hands.attachments import COUNT_MAX
from hands.life import kept
from hands.pictures import fitting, scaler
from tests.command import ROOT

PAGE = (ROOT / "docs" / "reference" / "attachments.md").read_text(encoding="utf-8")
MIB = 1024 * 1024


@pytest.mark.parametrize(
    "words",
    [
        f"Up to {COUNT_MAX} a call, of\n{TAKEN_MAX // MIB} MiB each",
        f"All of a result is in the store within {kept.LIMIT:g} s",
        f"not\nscaled within {kept._FITTING * kept.LIMIT:g} s",
        f"one whose turn does not come within {fitting.TURN_SECONDS:g} s",
        f"up to {BYTES_MAX / MIB:g} MiB",
        f"no more than {fitting.PIXELS_MAX // 1_000_000} million pixels",
        f"would have more than {scaler._PNG_MAX // MIB} MiB",
        f"more than {fitting.TAKEN_MAX // MIB} MiB, damaged",
        f"up to {EDGE_MAX} pixels an edge and {TOKENS_MAX} squares of 28 pixels",
        f"with {scaler._MEMORY // MIB} MiB, {fitting.SECONDS:g} s",
    ],
)
def test_the_page_says_what_the_bounds_are(words: str) -> None:
    assert words in PAGE


def test_the_sizes_of_the_page_are_the_largest_of_their_shapes() -> None:
    (named,) = re.findall(r"squares of 28 pixels: (.*)\. Services", PAGE)
    for size in named.split(", "):
        width, height = map(int, size.split("x"))
        made = fit(10 * width, 10 * height)
        assert (made.width, made.height) == (width, height)
    (was, now) = re.findall(r"scaled from (\w+) to (\w+)\]", PAGE)[0]
    made = fit(*map(int, was.split("x")))
    assert f"{made.width}x{made.height}" == now
