"""The tool loop: answer, run what the model calls, answer again. Pure.

Every step is decided from the transcript alone, so a new driver needs no
other state: what is open is run, what is unanswered is answered, and when
nothing is left the session goes idle.
"""

from brain.effects import Emit, Execute, Failed, Finish, Harness, HarnessType, Sleep
from brain.request import next_reply
from brain.transcript import Transcript
from brain.window import next_cut

MAX_FAILURES = 5
"""Model calls that may fail in a row before the turn ends."""
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0


def tool_loop(transcript: Transcript) -> Harness:
    """The harness every agent gets unless it names another."""
    while True:
        if calls := transcript.open_calls():
            yield Execute(tuple(call.call_id for call in calls))
        elif transcript.wants_model() and transcript.failures < MAX_FAILURES:
            result = yield next_cut(transcript) or next_reply(transcript)
            # What a cut of the window helps, or goes on without, is no failure to tell.
            if isinstance(result, Failed) and (result.retryable or not next_cut(transcript)):
                yield from _recover(transcript, result)
        elif transcript.wants_model():
            # Brains that died while the model was asked count too: each call is paid for.
            yield Finish("retries_exhausted")
        else:
            yield _finish(transcript)


def _recover(transcript: Transcript, failed: Failed) -> Harness:
    """Wait and try again, or end the turn; the log says which."""
    if failed.kind == "interrupted":
        return
    retry = failed.retryable and transcript.failures < MAX_FAILURES
    through = transcript.head
    yield Emit(
        "session.error",
        {
            "error": {
                "type": failed.kind,
                "message": failed.message,
                "retry_status": {"type": "retrying" if retry else "exhausted"},
            }
        },
    )
    if not retry:
        yield Finish("retries_exhausted", through=through)
    wait = _FIRST_WAIT * 2.0**transcript.failures
    asked = failed.retry_after
    yield Sleep(min(_LONGEST_WAIT, wait if asked is None else asked))


def _finish(transcript: Transcript) -> Finish:
    reply = transcript.last_reply
    stop = reply.stop_reason if reply is not None else ""
    if stop == "refusal":
        return Finish("refusal")
    if stop == "max_tokens":
        return Finish("end_turn", {"type": "max_tokens"})
    return Finish("end_turn")


HARNESS = HarnessType("1", tool_loop)
"""The entry point `tool_loop`."""
