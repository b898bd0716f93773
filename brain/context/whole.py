"""All of the conversation. Pure."""

from typing import Any

from brain.context.conversation import Piece, conversation, joined
from brain.context.settings import Settings
from brain.transcript import Transcript

Json = dict[str, Any]
NAME = "whole/3"


def pieces(transcript: Transcript, settings: Settings) -> list[Piece]:
    """See Policy."""
    del settings  # it has none
    return conversation(transcript)


def messages(transcript: Transcript) -> list[Json]:
    """Messages API messages of everything up to the transcript's head."""
    return joined(conversation(transcript))
