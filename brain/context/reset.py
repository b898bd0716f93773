"""The conversation, begun anew with a handover note when it has grown too large. Pure.

Nothing is kept but the note, which the model wrote to whoever goes on, and
what it was asked after its last word.
"""

from brain.context.conversation import Piece, conversation
from brain.context.cuts import Cut, due
from brain.context.settings import Settings
from brain.session.transcript import Transcript

NAME = "reset/3"

INSTRUCTIONS = """\
Somebody else goes on from here, who knows nothing of this conversation. Write a handover note to
them: what is to be done, in the words in which it was asked; what has been done so far, and where
it stands; what was learned, with the exact names of files, commands, numbers and identifiers; what
is open, and what you would do next. Do not call a tool, do not go on with the work, and write
nothing but the note."""


def pieces(transcript: Transcript, settings: Settings) -> list[Piece]:
    """See Policy."""
    del settings  # what they say is in the log's cuts by now
    return conversation(transcript)


def cut(transcript: Transcript, settings: Settings, size: int) -> Cut | None:
    """See Policy."""
    reply = transcript.last_reply
    # What was asked since its last word stays, if that word ended a turn and nothing is awaited.
    asked = sum(p.tokens for p in conversation(transcript) if reply and p.position > reply.ended)
    through = due(transcript, settings, size, keep=asked)
    if through is None:
        return None
    return Cut(through, "note", settings.instructions or INSTRUCTIONS)
