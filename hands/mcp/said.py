"""What an MCP server says, as bytes that are to be a message: what is no text in it, and its bound.

Pure. JSON may escape half of a pair of UTF-16, which is no text in UTF-8 and which no parser of
the client's takes: its whole message would be as if it had never come. So such a half is `NO_TEXT`
in its place, which no server has a use for. Who shows it to people or models replaces it again.
"""

import json
import re

MOST = 16 * 1024 * 1024
"""Bytes of one message, by whichever transport."""
NO_TEXT = "\ufffe"
"""Unicode keeps it from ever being a character."""
_SHOWN = "\ufffd"
_NO_RESULT = re.compile(rb'"(?:result|error)"\s*:\s*[^{\s]|^[^{]*\{[^{}]*\}\s*$')
"""Where it may be, so that few messages are read twice."""
_INTERNAL_ERROR = -32603
"""Of JSON-RPC 2.0, section 5.1."""
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


def answered(data: bytes) -> bytes:
    """A message; one that answers, but with what is no answer, as an error that says so.

    Its client would pass over such a one, and who asked would wait for all of the call's time.
    """
    if not _NO_RESULT.search(data):
        return data
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if not isinstance(said, dict) or "method" in said or not isinstance(said.get("id"), int | str):
        return data
    if any(isinstance(said.get(key), dict) for key in ("result", "error")):
        return data
    error = {"code": _INTERNAL_ERROR, "message": "its answer has no result that is an object"}
    return json.dumps({"jsonrpc": "2.0", "id": said["id"], "error": error}).encode()


def shown(text: str) -> str:
    """A text of the server's, fit to be shown."""
    return text.replace(NO_TEXT, _SHOWN)
