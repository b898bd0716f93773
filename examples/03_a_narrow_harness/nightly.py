"""A narrow harness: whatever a person says is answered with a report, and nothing is ever run.

The model is asked once, with a request of this file's own, and offered no tools: it cannot do
anything but report. Every step follows from the log, so any brain goes on where one died.
"""

from brain.effects import CallModel, Emit, Execute, Failed, Finish, Harness, HarnessType, Sleep
from brain.session.transcript import Transcript

POLICY = "given/1"
TRIES = 3


def nightly(transcript: Transcript) -> Harness:
    """Answer each message with a report of no more than three lines."""
    while True:
        if calls := transcript.open_calls():
            # None of ours: another harness drove before, and a call is settled by whoever drives.
            yield Execute(tuple(call.call_id for call in calls))
        elif not transcript.wants_model():
            yield Finish("end_turn")
        elif transcript.failures >= TRIES:
            yield Finish("retries_exhausted")
        else:
            said = "\n".join(
                block["text"]
                for entry in transcript.inputs
                if entry.type == "user.message"
                for block in entry.data["content"]
                if block["type"] == "text"
            )
            result = yield CallModel(
                {
                    "model": transcript.agent["model"],
                    "max_tokens": 300,
                    "system": "Report what you are told, in three lines at most.",
                    "messages": [{"role": "user", "content": said}],
                },
                policy=POLICY,
                through=transcript.head,
            )
            if isinstance(result, Failed) and result.kind != "interrupted":
                retrying = "retrying" if transcript.failures < TRIES else "exhausted"
                error = {"type": result.kind, "message": result.message}
                yield Emit(
                    "session.error", {"error": {**error, "retry_status": {"type": retrying}}}
                )
                yield Sleep(min(30.0, result.retry_after or 2.0**transcript.failures))


HARNESS = HarnessType("1", nightly)
