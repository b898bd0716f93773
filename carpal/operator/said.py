"""What a person says on the command line or on stdin, checked before it is sent."""

import sys

from carpal.errors import invalid

MESSAGE_BYTES = 1024 * 1024 - 1024
"""An event's data is at most 1 MiB; the rest is its envelope."""


def said(argument: str, name: str) -> str:
    """The text of an argument, `-` meaning stdin; `name` is how a refusal calls it.

    Raises INVALID_FIELD when it is empty, not UTF-8, or too large for one message.
    """
    try:
        if argument == "-":
            text = sys.stdin.buffer.read(2 * MESSAGE_BYTES).decode()
        else:
            text = argument
            text.encode()  # bytes of the command line that are no text come as half characters
    except UnicodeError:
        raise invalid(name, "is not text in UTF-8") from None
    if not text.strip():
        raise invalid(name, "is empty")
    if (size := len(text.encode())) > MESSAGE_BYTES:
        raise invalid(
            name, f"has {size} bytes; a message takes {MESSAGE_BYTES}: put the rest in a file"
        )
    return text
