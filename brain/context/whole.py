"""All of the conversation. Pure."""

from typing import Any

from brain.context.conversation import Piece, conversation, joined
from brain.context.cuts import Cut
from brain.context.settings import Settings
from brain.session.transcript import Transcript

Json = dict[str, Any]
NAME = "whole/3"


def pieces(transcript: Transcript, settings: Settings) -> list[Piece]:
    """See Policy."""
    del settings  # it has none
    return conversation(transcript)


def cut(transcript: Transcript, settings: Settings, size: int) -> Cut | None:
    """See Policy. None ever: a conversation that is larger than the window ends there."""
    del transcript, settings, size  # it asks for none
    return None


def messages(transcript: Transcript) -> list[Json]:
    """Messages API messages of everything up to the transcript's head."""
    return joined(conversation(transcript))
