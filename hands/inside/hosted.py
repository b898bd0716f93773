"""One call that a hand's host runs: its output, its limits, and how it ended.

The host is asked to stop a call that is cancelled or out of time. One that does not is killed, and
the hand with it: a thread of another's code cannot be stopped, and what it may still do must not
meet the next call.
"""

import time
from collections.abc import Mapping
from typing import Any, Protocol

from hands.inside import runner
from hands.inside.call import NEVER, Call, Event, Place
from hands.inside.output import Capture, compose

GRACE = 2.0
"""Seconds to stop for a call that is out of time."""
_FLOOD = 1024**3
"""Bytes of output after which a host is killed: nobody will read them."""
_OUTCOMES = frozenset({"ok", "error", "cancelled", "lost"})
_MAY = "this call may have partly happened"
_DID_NOT = "this call did not start"


class Host(Protocol):
    """What a call needs of its host."""

    call: Any
    gone: str

    @property
    def root(self) -> runner.Runner | None:
        """The process."""

    def ask(self, **message: Any) -> None:
        """Say something to it."""

    def kill(self, why: str) -> None:
        """Kill it."""


class HostedCall(Call):
    """Waiting, running, or finished with `result` set."""

    untold = 0.05  # its process is its hand's, and known: a short call costs the daemon a step less

    def __init__(
        self,
        place: Place,
        call_id: str,
        tool: str,
        given: Mapping[str, Any],
        limit: float,
        *,
        host: Host,
    ) -> None:
        super().__init__(place, call_id, tool, {}, limit)
        self.given = given
        self._host = host

    @property
    def lingers(self) -> bool:
        """What it leaves running is its host's."""
        return False

    @property
    def restarts(self) -> bool:
        """Its host has no shell of ours, whatever its tools are named."""
        return False

    @property
    def root(self) -> runner.Runner | None:
        """None of its own."""
        return None

    def begin(self) -> None:
        """Ask for it."""
        self._started, self._began = time.time(), time.monotonic()
        self._kill_at = self._began + self.limit
        self.runner = self._host.root
        if self._host.gone:
            self._end("lost", f"{self._host.gone}; {_DID_NOT}")
            return
        self._host.call = self
        self._host.ask(
            op="call", call_id=self.call_id, tool=self.tool, input=self.given, limit=self.limit
        )

    def wrote(self, data: bytes) -> None:
        """Output of it."""
        self._keep(data)
        if self.capture.total > _FLOOD:
            self._give_up(f"killed after {_FLOOD} bytes of output")

    def answered(self, answer: Mapping[str, Any]) -> None:
        """How it ended, as its host says. Raises ValueError for what is no answer."""
        outcome, content = answer["outcome"], answer["content"]
        attached = answer["attachments"]
        if outcome not in _OUTCOMES or not isinstance(content, str | None):
            raise ValueError("it is no answer")
        if not isinstance(attached, list):
            raise ValueError("its attachments are no list")
        if self._cause and outcome != "ok":
            text = _cut(content) if content else self.capture.text()[0]
            self._end(self._cause, text, self._why_stopped("stopped"))
        elif outcome == "lost":
            happened = _MAY if answer.get("began", True) else _DID_NOT
            self._end("lost", f"{content}; {happened}")
        elif content is None:
            self._end(outcome, self.capture.text()[0])
        else:
            self._end(outcome, _cut(content))
        assert self.result is not None
        if attached and outcome in ("ok", "error"):  # an error's picture says what went wrong
            self.result["attachments"] = attached

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self.result is not None:
            return
        if self._host.gone:
            self._host_gone()
        elif now >= self._kill_at and self._cause:
            self._give_up(f"{self._why_stopped('killed')}, for it did not stop")
        elif now >= self._kill_at:
            self._stop("timed_out", now + GRACE)

    def due(self) -> float:
        """When `tick` has something to do."""
        return NEVER if self.result is not None else self._kill_at

    def cancel(self, grace: float) -> None:
        """Ask the tool to stop; kill it after `grace` seconds."""
        if self.result is not None:
            return
        if self._cause:
            self._kill_at = min(self._kill_at, time.monotonic() + grace)
        else:
            self._stop("cancelled", time.monotonic() + grace)

    def freeze(self) -> None:
        """Its host is asked to end first."""

    def refuse(self, outcome: str, why: str) -> None:
        """Settle a call that was never started."""
        self._end(outcome, f"[{why}]")

    def _stop(self, cause: str, kill_at: float) -> None:
        self._cause = cause
        self._kill_at = kill_at
        self._host.ask(op="cancel", call_id=self.call_id)

    def _why_stopped(self, how: str) -> str:
        if self._cause == "timed_out":
            return f"timed out after {self.limit:g} s; {how}"
        return f"cancelled; {how}"

    def _give_up(self, why: str) -> None:
        self._host.kill(why)
        self._end(self._cause or "lost", self.capture.text()[0], f"{why}: the hand is lost; {_MAY}")

    def _host_gone(self) -> None:
        text = self.capture.text()[0]
        self._end("lost", text, f"lost: the hand is gone ({self._host.gone}); {_MAY}")

    def _end(self, outcome: str, text: str, *footers: str) -> None:
        self.spool.close()
        if self._host.call is self:
            self._host.call = None
        size = self.capture.total
        self.result: Event | None = {
            "outcome": outcome,
            "content": compose(text, *footers),
            "exit_code": None,
            "output_bytes": size,
            "omitted_bytes": self.capture.text()[1] if size else 0,
            "background": 0,
            "started": self._started,
            "elapsed": time.monotonic() - self._began,
        }


def _cut(text: str) -> str:
    capture = Capture()
    capture.add(text.encode("utf-8", "replace"))
    return capture.text()[0]
