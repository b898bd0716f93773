"""A session's log as it was recorded, and the model calls in it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from brain.session.entries import Entry
from brain.session.transcript import Transcript

Json = dict[str, Any]
START = "span.model_request_start"
END = "span.model_request_end"


@dataclass(frozen=True)
class Asked:
    """One call of the model."""

    number: int
    """1, 2, 3, … in the order of the log."""
    start: Entry
    end: Entry | None
    """None when its brain died, or it is still under way."""

    @property
    def purpose(self) -> str:
        """What it was for; see `brain.effects.Purpose`."""
        return str(self.start.data.get("purpose", "reply"))

    @property
    def policy(self) -> str:
        """Name and version of what made the request."""
        return str(self.start.data.get("policy", ""))

    @property
    def through(self) -> int:
        """Position up to which the log was seen."""
        through = self.start.data.get("through", 0)
        return through if isinstance(through, int) else 0

    @property
    def sha256(self) -> str:
        """Of what was sent, in hex."""
        return str(self.start.data.get("request_sha256", ""))

    @property
    def outcome(self) -> str:
        """How it ended, in a word."""
        if self.end is None:
            return "no end in the log"
        if self.end.data.get("is_error"):
            error = self.end.data.get("error")
            return str(error.get("type")) if isinstance(error, dict) else "error"
        return str(self.end.data.get("stop_reason", ""))


@dataclass(frozen=True)
class Recording:
    """All of a log, from position 1 on."""

    entries: Sequence[Entry]
    inherited: int = 0
    """The last position that was another session's, on forks and imports."""

    def asked(self) -> list[Asked]:
        """Every call of the model."""
        ends = {e.data.get("model_request_start_id"): e for e in self.entries if e.type == END}
        starts = [entry for entry in self.entries if entry.type == START]
        return [Asked(n, start, ends.get(start.id)) for n, start in enumerate(starts, 1)]

    def folded(self, through: int) -> Transcript:
        """The transcript of the log up to a position."""
        transcript = Transcript(self.inherited)
        for entry in self.entries[:through]:
            transcript.apply(entry)
        return transcript

    def redacted(self, through: int) -> list[int]:
        """Positions up to `through` whose data was erased since."""
        return [entry.position for entry in self.entries[:through] if entry.redacted]
