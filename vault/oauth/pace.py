"""How soon something that failed is tried again, and when an endpoint is left alone. Pure."""

from dataclasses import dataclass

FIRST, MOST = 1.0, 300.0
"""Seconds: the longest first wait, and the longest of any."""
ENOUGH = 5
"""Failures in a row after which nothing is asked of an endpoint, whoever asks."""


@dataclass(slots=True)
class Pace:
    """Of one credential, or of one endpoint with the failures of all of them."""

    patience: int = 1
    """Failures in a row from which on there is a wait."""
    failures: int = 0
    until: float = 0.0
    """Not before, on a steady clock."""

    def failed(self, now: float, chance: float, asked: float = 0.0) -> None:
        """Once more. `chance` is from 0 to 1, `asked` what the server wants waited."""
        self.failures += 1
        if self.failures >= self.patience:
            grown = min(MOST, FIRST * 2.0 ** min(self.failures - self.patience, 16))
            self.until = now + max(asked, grown * (0.5 + chance / 2))
        elif asked:
            self.until = now + asked

    def answered(self) -> None:
        """It works, or said no: waiting would change nothing."""
        self.failures, self.until = 0, 0.0

    def wait(self, now: float) -> float:
        """Seconds until it may be tried; 0 when it may be now."""
        return max(0.0, self.until - now)
