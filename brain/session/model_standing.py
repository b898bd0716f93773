"""How things stand with the models, by the log: a fold beside the transcript's. Pure.

What a provider lacks, which images were refused, how the newest call failed
and whether that was said, whether this turn goes on with the fallback model.
A new driver reads here what an old one had decided, and decides the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from brain.session import model_kinds as kinds

Json = dict[str, Any]

STRUCK_MAX = 2
"""Failures of the service itself, in one turn, after which the fallback model is asked."""
WAIT_MAX = 300.0
"""Seconds that a service may ask to wait; who asks for more is not waited for."""
_OF_THE_CONVERSATION = ("reply", "compaction")
"""Purposes without whose answer the conversation does not go on."""
_STRIKES = (kinds.FAILED, kinds.TIMED_OUT, kinds.CUT)


@dataclass(frozen=True)
class Failure:
    """A model call that failed, of which nothing has been said or done yet."""

    kind: str
    message: str
    retryable: bool
    retry_after: float | None
    tries: int
    """How many have failed by this kind since the last reply, this one too."""
    layer: str = ""
    """The part that failed, as the log has it."""


@dataclass(frozen=True)
class Choice:
    """The model to ask next."""

    model: str
    provider: str
    """Empty: the brain's own choice."""


@dataclass
class Standing:
    """The fold. All of it is JSON, but `failure`."""

    missing: dict[str, list[str]] = field(default_factory=dict)
    """Provider, or provider and model, → features that the log says are not there."""
    refused: dict[str, str] = field(default_factory=dict)
    """Digest of an image's source → why it was refused."""
    fallback: bool = False
    """The rest of this turn goes to the fallback model."""
    overloaded: str = ""
    """Why one failure of the first model in this turn was enough."""
    struck: int = 0
    """Failures of the first model in this turn by the service's own fault."""
    pauses: int = 0
    """Replies in a row that the service paused."""
    tries: dict[str, int] = field(default_factory=dict)
    """Kind of failure → how often since the last reply."""
    failure: Failure | None = None
    gave_up: int = 0
    """Of a turn that a failure ends: up to where the log was considered. 0 of any other."""
    gave_up_for: str = ""
    """The kind of that failure."""
    replying: bool = True
    """The newest call is for the conversation, and no question of a harness's own."""

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take the next event of the log. Raises ValueError, KeyError or TypeError on nonsense."""
        match kind:
            case "session.status_running":
                self.fallback, self.overloaded, self.struck, self.pauses = False, "", 0, 0
                self.tries, self.failure, self.gave_up = {}, None, 0
            case "span.model_request_start":
                self.failure, self.gave_up = None, 0
                self.replying = data.get("purpose") != "aside"
            case "span.model_request_end":
                self._ended(data)
            case "session.status_idle":
                self.gave_up = 0
            case "agent.thread_context_compacted":
                self.failure = None
            case "session.error":
                self._told(data)
            case "user.message":
                self.tries = {}
            case "context.feature_missing":
                where = _where(str(data["provider"]), str(data.get("model") or ""))
                features = self.missing.setdefault(where, [])
                if str(data["feature"]) not in features:
                    features.append(str(data["feature"]))
                self.failure = None
            case "context.media_refused":
                self.refused |= {str(each): str(data["reason"]) for each in data["sha256"]}
                self.failure = None
            case "context.fallback_model":
                self.fallback = True

    def of_last_turn(self) -> bool:
        """Whether there is anything that a turn forgets as it begins."""
        soft = self.fallback, self.overloaded, self.struck, self.pauses
        return any((*soft, self.tries, self.failure, self.gave_up))

    def _told(self, data: Mapping[str, Any]) -> None:
        """A failure was said; it may have been the turn's last."""
        if self.failure is not None and data["error"].get("type") == self.failure.kind:
            status = (data["error"].get("retry_status") or {}).get("type")
            self.gave_up = int(data.get("through") or 0) if status == "exhausted" else 0
            self.gave_up_for = self.failure.kind
            self.failure = None

    def _ended(self, data: Mapping[str, Any]) -> None:
        if not data.get("is_error"):
            self.failure = None
            if not self.replying:
                return
            self.tries = {}
            self.pauses = self.pauses + 1 if data.get("stop_reason") == "pause_turn" else 0
            return
        error = data.get("error") or {}
        kind = str(error.get("type") or kinds.FAILED)
        if kind == kinds.INTERRUPTED:
            return
        said = error.get("retry_after")
        after = None if said is None else float(said)
        if not self.fallback:
            self.struck += kind in _STRIKES and bool(error.get("retryable"))
            if kind == kinds.OVERLOADED:
                self.overloaded = "overloaded"
            elif kind == kinds.RATE_LIMITED and (after or 0) > WAIT_MAX:
                self.overloaded = f"rate limited for {after:g} s"
        if not self.replying:
            return  # whoever asked is told, and decides
        self.tries[kind] = self.tries.get(kind, 0) + 1
        self.failure = Failure(
            kind=kind,
            message=str(error.get("message") or ""),
            retryable=bool(error.get("retryable")),
            retry_after=after,
            tries=self.tries[kind],
            layer=str(error.get("layer") or ""),
        )

    def lacks(self, choice: Choice) -> set[str]:
        """Features that are not to be asked of it."""
        provider = self.missing.get(_where(choice.provider, ""), ())
        return {*provider, *self.missing.get(_where(choice.provider, choice.model), ())}

    def wants_fallback(self, agent: Mapping[str, Any]) -> str:
        """Why the fallback model should take over from here; empty when it should not."""
        if self.fallback or not agent.get("fallback_model"):
            return ""
        struck = f"{self.struck} failures of the service" if self.struck >= STRUCK_MAX else ""
        return self.overloaded or struck

    def choice(self, agent: Mapping[str, Any]) -> Choice:
        """The model that the next request of the conversation goes to."""
        if self.fallback and agent.get("fallback_model"):
            return self.fallback_of(agent)
        return Choice(str(agent["model"]), str(agent.get("provider") or ""))

    @staticmethod
    def fallback_of(agent: Mapping[str, Any]) -> Choice:
        """The fallback model of an agent that names one."""
        other, provider = agent["fallback_model"], str(agent.get("provider") or "")
        if isinstance(other, Mapping):
            return Choice(str(other["model"]), str(other.get("provider") or provider))
        return Choice(str(other), provider)


def _where(provider: str, model: str) -> str:
    return f"{provider} {model}" if model else provider
