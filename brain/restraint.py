"""How much a harness may ask for without a word of the model or a hand. Pure.

A loop that only waits no time, notes or reads would keep a brain busy, and fill a log,
for ever; nothing else bounds it, for it costs no tokens.
"""

from brain.effects import CallModel, Effect, Emit, Replied

NOTES_MAX = 1_000
"""Events of its own, and questions that the model did not answer."""
EFFECTS_MAX = 10_000
"""Effects of any kind at once; as time passes it may ask for more."""
EFFECTS_RATE = 10.0
"""More effects a second."""


class Restraint:
    """Counts what one drive's harness asked for since the model, or a hand, last said something."""

    def __init__(self, now: float) -> None:
        """`now`: seconds of a clock that only goes on."""
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._notes = 0
        self._effects = 0.0
        self._at = now

    def beyond(self, effect: Effect, result: object, *, ran: bool, now: float) -> str:
        """Count one that was performed; why it was one too many, or nothing.

        `ran`: calls got their results by it.
        """
        if ran or isinstance(result, Replied):
            self._begin(now)
            return ""
        passed, self._at = max(0.0, now - self._at), now
        self._effects = max(0.0, self._effects - passed * EFFECTS_RATE) + 1
        self._notes += isinstance(effect, Emit | CallModel)
        without = "without a word of the model or a hand"
        if self._notes > NOTES_MAX:
            return f"it appended events, or asked in vain, more than {NOTES_MAX:,} times {without}"
        if self._effects > EFFECTS_MAX:
            return (
                f"it asked for more than {EFFECTS_MAX:,} effects, and {EFFECTS_RATE:g} more a "
                f"second, {without}: it goes round in a loop that waits too little"
            )
        return ""
