"""What an MCP server says, as bytes that are to be a message: what is no text in it, and its bound.

Pure. JSON may escape half of a pair of UTF-16, which is no text in UTF-8 and which no parser of
the client's takes: its whole message would be as if it had never come. So such a half is `NO_TEXT`
in its place, which no server has a use for. Who shows it to people or models replaces it again.
"""

import re

MOST = 16 * 1024 * 1024
"""Bytes of one message, by whichever transport."""
NO_TEXT = "\ufffe"
"""Unicode keeps it from ever being a character."""
_SHOWN = "\ufffd"
_ESCAPED = b"\\ufffe"
_ESCAPE = re.compile(
    rb"\\(?:(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def mended(data: bytes) -> bytes:
    """JSON that is UTF-8, of which each half of a pair has its other half; or what was no JSON."""
    text = data.decode("utf-8", "replace").encode()
    if b"\\ud" not in text and b"\\uD" not in text:
        return text
    return _ESCAPE.sub(lambda found: _ESCAPED if found["half"] else found[0], text)


def shown(text: str) -> str:
    """A text of the server's, fit to be shown."""
    return text.replace(NO_TEXT, _SHOWN)
