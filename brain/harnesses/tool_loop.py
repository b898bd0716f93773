"""The tool loop: answer, run what the model calls, answer again. Pure.

Every step is decided from the transcript alone, so a new driver needs no
other state: what is open is run, what failed is said and tried again, what is
unanswered is answered, and when nothing is left the session goes idle.
"""

from brain.context.request import next_reply
from brain.context.window import next_cut
from brain.effects import Effect, Emit, Execute, Finish, Harness, HarnessType, Sleep
from brain.session import model_kinds as kinds
from brain.session.model_standing import WAIT_MAX, Failure
from brain.session.transcript import Transcript
from carpal.layers import Layer

MAX_FAILURES = 5
"""Model calls that may fail in a row before the turn ends."""
MAX_PAUSES = 20
"""Times in a row that a model goes on where its service paused it."""
_TRIES = {kinds.EMPTY: 2}
"""Tries of what another try seldom mends; each is paid for."""
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0
_PLAIN = ("", "end_turn", "tool_use")
"""Stop reasons of which there is no more to say."""


def tool_loop(transcript: Transcript) -> Harness:
    """The harness every agent gets unless it names another."""
    while True:
        # A result is sent in, and `yield from` would pass it on to a list.
        for effect in due(transcript) or (next_reply(transcript),):  # noqa: UP028
            yield effect


def due(transcript: Transcript) -> list[Effect]:
    """What comes before the next reply is asked for, in order; empty when nothing does."""
    models = transcript.models
    if calls := transcript.open_calls():
        return [Execute(tuple(call.call_id for call in calls))]
    if models.gave_up:
        return [_give_up(transcript)]
    if not _wants(transcript):
        return [_finish(transcript)]
    if models.failure is not None and _to_tell(transcript, models.failure):
        return list(_recover(transcript, models.failure))
    if transcript.failures >= MAX_FAILURES:
        # Brains that died while the model was asked count too: each call is paid for.
        return [Finish("retries_exhausted")]
    if why := models.wants_fallback(transcript.agent):
        fallback = {"from": transcript.agent["model"], "because": why}
        fallback["to"] = models.fallback_of(transcript.agent).model
        return [Emit("context.fallback_model", fallback)]
    cut = next_cut(transcript)
    return [cut] if cut is not None else []


def _wants(transcript: Transcript) -> bool:
    """Whether the model is to say something: an answer, or the rest of one."""
    paused = transcript.paused() and transcript.models.pauses <= MAX_PAUSES
    return transcript.wants_model() or paused


def _to_tell(transcript: Transcript, failure: Failure) -> bool:
    """Whether it is one: what a cut of the window helps, or goes on without, is none."""
    more = _more(transcript, failure) or transcript.failures >= MAX_FAILURES
    no_cut_helps = failure.kind in kinds.NOT_OF_THE_REQUEST
    return more or no_cut_helps or next_cut(transcript) is None


def _more(transcript: Transcript, failure: Failure) -> bool:
    """Whether another try is sensible, as far as the kind and the number of tries say."""
    tries_left = failure.tries < _TRIES.get(failure.kind, MAX_FAILURES)
    return failure.retryable and tries_left and transcript.failures < MAX_FAILURES


def _recover(transcript: Transcript, failure: Failure) -> Harness:
    """Say what failed and what follows; wait, if it is another try."""
    instead = bool(transcript.models.wants_fallback(transcript.agent))
    soon = (failure.retry_after or 0.0) <= WAIT_MAX
    more = _more(transcript, failure)
    retry = more and (soon or instead)
    message = failure.message
    if more and not retry:
        message += f" (it asks to wait for {failure.retry_after:g} s, more than is waited)"
    error = {
        "type": failure.kind,
        "message": message,
        "retry_status": {"type": "retrying" if retry else "exhausted"},
        "layer": failure.layer or str(Layer.MODEL),
    }
    # Whoever goes on from here considers what this one considered.
    yield Emit("session.error", {"error": error, "through": transcript.head})
    if retry and not instead:
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0**transcript.failures)
        yield Sleep(wait if failure.retry_after is None else failure.retry_after)


def _give_up(transcript: Transcript) -> Finish:
    """The end that an exhausted failure means."""
    models = transcript.models
    if models.gave_up_for == kinds.EMPTY:
        return Finish("end_turn", {"type": "empty_reply"}, through=models.gave_up)
    return Finish("retries_exhausted", through=models.gave_up)


def _finish(transcript: Transcript) -> Finish:
    reply = transcript.last_reply
    if reply is None or reply.stop_reason in _PLAIN:
        return Finish("end_turn")
    if reply.stop_reason == "refusal":
        return Finish("refusal", reply.stop_details)
    details = {"type": reply.stop_reason}
    if reply.stop_sequence is not None:
        details["stop_sequence"] = reply.stop_sequence
    return Finish("end_turn", details)


HARNESS = HarnessType("2", tool_loop)
"""The entry point `tool_loop`."""
