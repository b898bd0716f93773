"""How long, how large and how often, of one request. Pure."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds and bytes. What reaches one of them ends the request with an error."""

    connect: float = 10.0
    """To find, dial and know the server."""
    first_byte: float = 60.0
    """From the last byte sent to the whole head of the reply."""
    idle: float = 60.0
    """Between two parts of a body, either way."""
    total: float = 900.0
    """Of all of it, whatever comes: a trickle ends here."""
    kept: float = 4.0
    """That a connection is kept for the next of its lane: many servers close after five."""
    request_bytes: int = 4 * MIB
    reply_bytes: int = 10 * MIB
    """After decompression; of a stream, all of it."""
    ratio: int = 100
    """How many times its size a compressed reply may have, past its first MiB."""
