"""What both ends of a link take for granted of each other. Pure."""

from typing import Final

ATTACH: Final = "attach"
"""The capability of moving large answers to a stream of their own."""
TUNNEL: Final = "tunnel"
"""The capability of letting a person into hands, and of noting in a log when they came and left."""
CAPABILITIES: Final = ("claim", "replay", ATTACH, TUNNEL)
"""What either end of this version can do, and says so in hello and welcome."""

SILENT_BEATS: Final = 3
"""Heartbeats that may be missed before silence ends the link."""

ORPHAN_DEADLINE: Final = 600.0
"""Seconds without contact after which a hand ends itself, unless its session says otherwise."""

UNARY: Final = frozenset({
    "describe", "probe", "claim", "acknowledge", "cancel", "transfer", "release", "list_hands",
    "drain_hands", "settle_tunnels",
})  # fmt: skip
"""Requests with one message for an answer."""
STREAMS: Final = frozenset({"provision", "execute", "events", "save"})
"""Requests with an answer of many messages."""
