"""What the daemon counts from its start on, for who watches it; the journal has what is kept."""

import asyncio
from collections import Counter, deque

_LOOK = 1.0
"""Seconds between looks at the event loop."""
_LOOKS = 60
"""Looks whose worst is told."""


class Counts:
    """Of calls and their bytes, and of what hands say unasked."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        """Calls that ended, by outcome."""
        self.input_bytes = 0
        """Of calls that were accepted."""
        self.output_bytes = 0
        """That the tools of calls which ended gave."""
        self.events = 0
        """That hands said, and that were kept for a log."""
        self.events_dropped = 0
        """That hands said, and that were not."""


class LoopLag:
    """How late the event loop comes to what is due, in seconds."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque([0.0], maxlen=_LOOKS)

    @property
    def worst(self) -> float:
        """In the last minute."""
        return max(self._seen)

    async def run(self) -> None:
        """Look once a second, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LOOK
            await asyncio.sleep(_LOOK)
            self._seen.append(max(0.0, loop.time() - due))
