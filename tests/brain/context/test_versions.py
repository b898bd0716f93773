"""What a policy makes of a log is pinned under its version: what makes another is another version.

`carpal session request` tells by it which code can make a request again, so a version that
makes another request of the same log than it did would be a lie in every log that names it.
"""

import hashlib

import pytest

from brain.context.made_again import made_again
from brain.context.policies import POLICIES
from brain.context.request import digest, next_reply
from brain.context.window import next_cut
from brain.effects import CallModel
from brain.recorded.recording import Recording
from brain.session.entries import COMPACTED
from tests.brain.context.chats import Json, log_with
from tests.brain.context.test_recorded_logs import FOLDER, recorded
from tests.brain.logs import Log

MADE = {
    "whole/5": "4ae807f6a4188560",
    "trim/4": "606edbd1badeb6f4",
    "compact/3": "61610496b2e64b17",
    "reset/3": "5eba5d9105fe4a82",
    "retrieve/3": "2c0b6fcb852e0b39",
}
"""Policy, version → of all that it makes of `conversation_of`."""
_TOOLS = [{"name": "bash", "description": "runs", "input_schema": {"type": "object"}}]
_PICTURE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
}
_SHOT = {"blob": "sha256:" + "0" * 64, "media_type": "image/png", "size": 99, "name": "a.png"}


def block(kind: str, **more: object) -> Json:
    """One of a message or a reply."""
    return {"type": kind, **more}


def conversation_of(policy: str) -> list[str]:
    """Digests of the requests in a conversation that has something of all there is."""
    settings = {} if policy == "whole" else {"at_tokens": 3000}
    log, made = log_with(policy=policy, **settings), []

    def ask() -> str:
        call = next_cut(log.transcript)
        if isinstance(call, CallModel):
            made.append(digest(call.request))
            cut(log, call)
        elif call is not None:
            log.add(COMPACTED, call.data)
        made.append(digest(next_reply(log.transcript).request))
        return log.ask()

    for hand in ("shell", "build"):
        log.add("context.tools", {"hand": hand, "type": "process", "tools": _TOOLS})
    content = [block("text", text="what is this?"), _PICTURE, block("text", text=" ")]
    log.add("user.message", {"content": content})
    request = ask()
    thought = [block("thinking", thinking="hm", signature="s")]
    log.add("agent.thinking", {"content": thought, "model_request_start_id": request})
    first, second = log.reply(request, "I look", calls=("ls", "cat x"), stop="tool_use")
    log.result(second, "", "failed")
    log.say("and be quick")
    log.result(first, "y" * 4000, "ok", attachments=[_SHOT, _SHOT | {"media_type": "text/csv"}])
    ask_again = ask()
    log.fails(ask_again)
    request = ask()
    (late,) = log.reply(request, calls=("sleep",), hand="build", stop="tool_use")
    log.result(late, "given up", "interrupted")
    log.add("hand.late_result", {"tool_use_id": late, "outcome": "ok", "content": content[:1]})
    request = ask()
    log.say("the bad one")
    log.reply(request, "well", " ", stop="max_tokens")
    log.reply(ask(), "I will", calls=("rm",), stop="refusal")
    log.say("another " * 900)
    use = block("server_tool_use", id="srv", name="web_search", input={})
    request = ask()
    log.add("agent.message", {"content": [use], "model_request_start_id": request})
    log.reply(request, stop="pause_turn")
    log.reply(ask(), "found", "done " * 2000)
    log.add("user.interrupt")
    log.say("where is the other?")
    log.reply(ask(), "here")
    log.say("thanks")
    ask()
    return made


def cut(log: Log, call: CallModel) -> None:
    """The question for a summary, its answer, and the cut."""
    asked = {"through": log.transcript.head, "purpose": call.purpose, "covers": call.covers}
    request = log.add("span.model_request_start", asked)
    reply = {"content": [block("text", text="SUMMARY")], "stop_reason": "end_turn"}
    log.add("span.model_request_end", {"model_request_start_id": request, "reply": reply})
    emitted = next_cut(log.transcript)
    assert emitted is not None
    assert not isinstance(emitted, CallModel)
    log.add(COMPACTED, emitted.data)


def test_what_a_policy_makes_is_that_of_its_version() -> None:
    now = {}
    for name, policy in POLICIES.items():
        made = "".join(conversation_of(name))
        now[policy.NAME] = hashlib.sha256(made.encode()).hexdigest()[:16]
    assert now == MADE, "raise the version of each policy that makes another request now"


@pytest.mark.parametrize("policy", sorted(path.stem for path in FOLDER.glob("*.jsonl")))
def test_a_recorded_log_has_the_hashes_that_its_policy_makes_now(policy: str) -> None:
    recording = Recording(recorded(policy))
    for asked in recording.asked():
        call = made_again(recording.folded(asked.through), asked.purpose, asked.policy)
        assert digest(call.request) == asked.sha256, asked.start.position
