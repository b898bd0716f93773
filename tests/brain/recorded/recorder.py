"""A session as a drive records it, with the requests that the harness really makes."""

from typing import Any

from brain.context.request import digest, next_reply
from brain.recorded.recording import Recording
from tests.brain.logs import Log


class Recorder(Log):
    """A log whose model calls carry what was sent."""

    def turn(
        self, *texts: str, calls: tuple[str, ...] = (), meanwhile: str = "", **reply: Any
    ) -> dict[str, Any]:
        """One model call, its reply, and results of its calls; the request."""
        effect = next_reply(self.transcript)
        request_id = self.start()
        if meanwhile:
            self.say(meanwhile)
        for call_id in self.reply(request_id, *texts, calls=calls, **reply):
            self.result(call_id)
        return effect.request

    def start(self) -> str:
        """The start of a model call; its id."""
        effect = next_reply(self.transcript)
        return self.add(
            "span.model_request_start",
            {
                "model": effect.request["model"],
                "policy": effect.policy,
                "through": effect.through,
                "request_sha256": digest(effect.request),
            },
        )

    def fail(self, kind: str, *, retryable: bool) -> None:
        """A model call that failed."""
        error = {"type": kind, "message": "no", "retryable": retryable}
        end = {"model_request_start_id": self.start(), "is_error": True, "error": error}
        self.add("span.model_request_end", end)

    def idle(self, reason: str = "end_turn") -> None:
        """The turn is over."""
        through = self.transcript.head
        self.add("session.status_idle", {"stop_reason": {"type": reason}, "through": through})

    def recording(self) -> Recording:
        """All of it."""
        return Recording(self.entries)
