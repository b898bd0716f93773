"""A tool's name as the model is told it. Pure."""

import re

from brain.session.transcript import Transcript

_MAX = 128
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


def tool_name(transcript: Transcript, hand: str, name: str) -> str:
    """A tool's name for the model: the default hand's have no prefix."""
    return fit_name(name if hand in ("", transcript.default_hand) else f"{hand}__{name}")


def fit_name(name: str) -> str:
    """A tool's name as the API takes names; the same for the same, and itself where it can be."""
    return _NOT_IN_NAMES.sub("_", name)[:_MAX] or "_"
