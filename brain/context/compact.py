"""The conversation, with a summary by the model for all but its newest. Pure.

As long as it fits, it is whole. When it is nearly as large as the window, the
model is asked for a summary of the older part, and the newest stays as it is.
"""

from brain.context.conversation import Piece, conversation
from brain.context.cuts import Cut, due
from brain.context.settings import Settings
from brain.session.transcript import Transcript

NAME = "compact/3"

INSTRUCTIONS = """\
The conversation has grown nearly too long to go on with. Write a summary of it, from its beginning
to here, for yourself: from now on you will have that summary in its place. Say, as far as it still
matters: what you were asked to do, in the words in which it was asked; every decision and why it
was made; what was done, found and tried without success, with the exact names of files, commands,
numbers and identifiers; what is done, what is not, and what comes next. Do not call a tool, do not
go on with the work, and write nothing but the summary."""


def pieces(transcript: Transcript, settings: Settings) -> list[Piece]:
    """See Policy."""
    del settings  # what they say is in the log's cuts by now
    return conversation(transcript)


def cut(transcript: Transcript, settings: Settings, size: int) -> Cut | None:
    """See Policy."""
    through = due(transcript, settings, size)
    if through is None:
        return None
    return Cut(through, "summary", settings.instructions or INSTRUCTIONS)
