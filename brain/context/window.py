"""Cutting the context window: the model is asked for what is to stand for the log. Pure.

Three steps, each in the log before the next: the model's answer is asked for
(`span.model_request_start`, purpose `compaction`, with what it `covers`), it
is there (`span.model_request_end`), and it stands for the log from then on
(`agent.thread_context_compacted`). Whoever drives next goes on at the step
that is missing: an answer that is there is used, not paid again. What cannot
be summarised is cut all the same, and the text says so: a session goes on. A
key that is refused, or a service that is away, is no such case: it is told as
a reply's failure is, and the window stays as it was.
"""

from typing import Any

from brain.context.asking import question, stands_for
from brain.context.conversation import conversation
from brain.context.cuts import TOO_LONG, Cut, refused
from brain.context.policies import policy_of
from brain.context.request import parameters
from brain.context.settings import Settings, settings
from brain.context.tokens import counted, estimate
from brain.effects import CallModel, Emit
from brain.session.entries import COMPACTED, ModelRequest
from brain.session.model_kinds import EMPTY, NOT_OF_THE_REQUEST
from brain.session.transcript import Transcript
from brain.tools.offered import offered

Json = dict[str, Any]

_TRIES = 2
"""Answers that say nothing, after which nobody is asked any more."""
_HALVINGS = 4
"""Times that a question for a summary is made half as long because it was too long."""


def next_cut(transcript: Transcript) -> CallModel | Emit | None:
    """What is to be done about the window before the next reply; None when nothing is."""
    chosen = settings(transcript.agent)
    policy = policy_of(chosen)
    size = next_size(transcript, chosen)
    asked = _asked(transcript)
    if answered := next((each for each in asked if _text(each)), None):
        cut = Cut(answered.covers, "note" if chosen.policy == "reset" else "summary")
        return _compacted(transcript, cut, size, answered)
    due = policy.cut(transcript, chosen, size)
    if due is None:
        return None
    if due.kind == "omitted" or _hopeless(asked):
        return _compacted(transcript, Cut(due.through, "omitted"), size, None)
    return _ask(transcript, chosen, due, asked)


def next_size(transcript: Transcript, chosen: Settings) -> int:
    """About how many tokens the next reply's request takes."""
    pieces = policy_of(chosen).pieces(transcript, chosen)
    reply = transcript.last_reply
    since = transcript.window.position if transcript.window is not None else 0
    grows = chosen.policy in ("compact", "reset")
    if grows and reply is not None and reply.position > since and (known := counted(reply.usage)):
        return known + sum(p.tokens for p in pieces if _came_after(p.position, p.role, reply))
    agent = transcript.agent
    around = estimate([agent.get("system") or "", offered(transcript)])
    return around + sum(piece.tokens for piece in pieces)


def _came_after(position: int, role: str, reply: ModelRequest) -> bool:
    """Whether the API had not counted it yet."""
    return position > reply.ended or (role == "user" and position > reply.through)


def _asked(transcript: Transcript) -> list[ModelRequest]:
    """The questions for a summary that were made since the last cut, the newest first."""
    window = transcript.window
    since, cut = (window.position, window.through) if window is not None else (0, 0)
    found = []
    for request in reversed(transcript.requests.values()):
        if request.position <= since:
            break
        if request.purpose == "compaction" and request.covers > cut:
            found.append(request)
    return found


def _text(request: ModelRequest) -> str:
    """What the model said when asked; empty when it is no use."""
    answer = request.answer
    if answer is None or answer.get("stop_reason") == "refusal":
        return ""
    blocks = answer.get("content")
    said = blocks if isinstance(blocks, list) else []
    texts = [b.get("text") for b in said if isinstance(b, dict) and b.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str)).strip()


def _hopeless(asked: list[ModelRequest]) -> bool:
    """Whether asking once more would not help: the cut is made without the model."""
    errors = [request.error or {} for request in asked if request.error is not None]
    useless = sum(request.answer is not None for request in asked)
    useless += sum(error.get("type") == EMPTY for error in errors)
    too_long = sum(error.get("type") == TOO_LONG for error in errors)
    for_good = any(
        error.get("retryable") is False and error.get("type") not in (TOO_LONG, *NOT_OF_THE_REQUEST)
        for error in errors
    )
    return useless >= _TRIES or for_good or too_long >= _HALVINGS


def _ask(
    transcript: Transcript, chosen: Settings, cut: Cut, asked: list[ModelRequest]
) -> CallModel:
    room = chosen.window - chosen.summary - estimate(transcript.agent.get("system") or "")
    room = (room - estimate(offered(transcript))) * 4 // 5 >> refused(transcript)
    pieces = [p for p in conversation(transcript) if p.position <= cut.through]
    request = parameters(transcript, question(pieces, cut.instructions, room))
    request["max_tokens"] = chosen.summary + _thinking(request)
    if request.get("tools") and any(each.answer is not None for each in asked):
        # It called a tool in place of an answer. Not so the first time: it spoils the cache.
        request["tool_choice"] = {"type": "none"}
    policy = policy_of(chosen).NAME
    provider = transcript.models.choice(transcript.agent).provider
    return CallModel(
        request,
        policy,
        transcript.head,
        provider=provider,
        purpose="compaction",
        covers=cut.through,
    )


def _thinking(request: Json) -> int:
    """Tokens that the model may think for, which are not the summary's."""
    thinking = request.get("thinking")
    return int(thinking.get("budget_tokens") or 0) if isinstance(thinking, dict) else 0


def _compacted(transcript: Transcript, cut: Cut, size: int, answer: ModelRequest | None) -> Emit:
    text = stands_for(transcript, cut, _text(answer) if answer is not None else "")
    data: Json = {
        "policy": policy_of(settings(transcript.agent)).NAME,
        "kind": cut.kind,
        "through": cut.through,
        "text": text,
        "tokens_before": size,
    }
    if answer is not None:
        data["model_request_start_id"] = answer.request_id
    return Emit(COMPACTED, data)
