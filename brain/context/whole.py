"""All of the conversation. Pure."""

from brain.context.conversation import Piece, conversation
from brain.context.cuts import Cut
from brain.context.settings import Settings
from brain.session.transcript import Transcript

NAME = "whole/5"


def pieces(transcript: Transcript, settings: Settings) -> list[Piece]:
    """See Policy."""
    del settings  # it has none
    return conversation(transcript)


def cut(transcript: Transcript, settings: Settings, size: int) -> Cut | None:
    """See Policy. None ever: a conversation that is larger than the window ends there."""
    del transcript, settings, size  # it asks for none
    return None
