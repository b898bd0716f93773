"""What a model makes of a picture: which sizes it sees as they are, and where a point of it lies.

The Messages API takes a picture that is larger, and scales it down before the model looks: what
the model then says of a place in it is of a picture that nobody here has. So pictures are scaled
here, by the same rule, and whoever acts on a place maps it back. Pure.

The rule, for the models that see least, so that one picture in a log fits each that may go on
with it: platform.claude.com/docs/en/build-with-claude/vision, and .../vision-coordinates. A
picture is seen in squares of 28 pixels, one token each; neither edge has more than 1568 pixels,
and all of it no more than 1568 tokens. (Models that see more take 2576 pixels and 4784 tokens,
but a request of more than 20 pictures takes none with an edge of more than 2000.)
"""

from bisect import bisect_right
from dataclasses import dataclass

EDGE_MAX = 1568
"""Pixels."""
TOKENS_MAX = 1568
BYTES_MAX = 5 * 1024 * 1024 // 4 * 3
"""Of one picture: the API takes 5 MiB of base64, says the `anthropic` package, in
`lib/tools/agent_toolset.py`."""
MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""What the API takes: `Base64ImageSourceParam` of the `anthropic` package."""
_SQUARE = 28


@dataclass(frozen=True)
class Fit:
    """A size that is seen as it is, and the size that is scaled to it; both in pixels."""

    width: int
    height: int
    of_width: int
    of_height: int

    @property
    def scaled(self) -> bool:
        """Whether the two differ."""
        return (self.width, self.height) != (self.of_width, self.of_height)

    def back(self, x: float, y: float) -> tuple[int, int]:
        """The pixel of the original that a pixel of the scaled one shows; one outside stays so."""
        return (
            int((x + 0.5) * self.of_width // self.width),
            int((y + 0.5) * self.of_height // self.height),
        )

    def onto(self, x: float, y: float) -> tuple[int, int]:
        """The pixel of the scaled one that shows a pixel of the original."""
        return (
            int((x + 0.5) * self.width // self.of_width),
            int((y + 0.5) * self.height // self.of_height),
        )


def tokens(width: int, height: int) -> int:
    """How many a picture takes that is seen as it is."""
    return -(-width // _SQUARE) * -(-height // _SQUARE)


def fit(width: int, height: int) -> Fit:
    """The largest size of the same shape that is seen as it is. ValueError for no pixels at all."""
    if width < 1 or height < 1:
        raise ValueError(f"a picture of {width}x{height} pixels is none")
    longer, shorter = max(width, height), min(width, height)

    def across(length: int) -> int:
        return max(1, round(length * shorter / longer))

    def needs(length: int) -> int:
        return tokens(length, across(length))

    most = min(longer, EDGE_MAX)
    length = bisect_right(range(1, most + 1), TOKENS_MAX, key=needs)
    wide = (length, across(length)) if length < longer else (longer, shorter)
    return Fit(*(wide if width >= height else wide[::-1]), width, height)
