"""What a log says of a user's consent: what waits for it, whose word counts, and what ends it."""

import json

import pytest

from brain.session.checkpoint import checkpoint, restored
from tests.brain.logs import AGENT, Log

SERVERS = [{"name": "mail", "url": "https://m.a.test/mcp", "credential": "user"}]


def made(inherited: int = 0, call: str = "") -> tuple[Log, str]:
    log = Log(inherited)
    log.add("session.updated", {"agent": AGENT | {"mcp_servers": SERVERS}})
    log.say("go")
    said = {"mcp_server_name": "mail", "url": "https://m.a.test/mcp", "user": "alice"}
    return log, log.add("session.consent_required", said | ({"tool_use_id": call} if call else {}))


def ids(log: Log) -> list[str]:
    return log.transcript.waits_for()


@pytest.mark.parametrize("result", ["given", "denied"])
def test_an_operator_s_first_word_decides_and_nobody_else_s(result: str) -> None:
    log, consent = made()
    word = {"consent_id": consent, "result": result}
    log.add("user.consent", word, source="spiffe://carpal.internal/brain/b1")
    assert ids(log) == [consent]
    log.add("user.consent", word)
    assert ids(log) == []
    log.add("user.consent", word)
    log.add("user.consent", word | {"consent_id": "another"})
    assert len(log.transcript.moot) == 3


@pytest.mark.parametrize(
    "data",
    [{}, {"result": "given"}, {"consent_id": "e4"}, {"consent_id": "e4", "result": "yes"},
     {"consent_id": "e4", "result": "denied", "message": 7}],
)  # fmt: skip
def test_a_word_on_consent_that_is_none_is_malformed(data: dict[str, object]) -> None:
    log, consent = made()
    log.add("user.consent", data)
    assert (ids(log), len(log.transcript.malformed)) == ([consent], 1)


def test_the_model_is_told_that_there_is_no_consent_to_a_server_s_tools() -> None:
    log, consent = made()
    log.add("user.consent", {"consent_id": consent, "result": "denied", "message": "not mine"})
    told = json.dumps(log.transcript.inputs[-1].data["content"])
    assert "did not consent to the use of the MCP server 'mail': not mine" in told
    assert log.transcript.has_work()


def test_tools_that_are_told_and_an_interrupt_end_what_waits() -> None:
    for end in ("user.interrupt", "context.tools"):
        log, _ = made()
        log.add(end, {"hand": "mail", "type": "mcp_server", "tools": []})
        assert ids(log) == []


def test_a_server_that_the_agent_has_no_more_waits_for_nobody() -> None:
    log, _ = made()
    log.add("session.updated", {"agent": AGENT})
    assert ids(log) == []


def test_a_fork_waits_for_no_consent_of_the_session_that_it_left() -> None:
    log, _ = made(inherited=4)
    assert ids(log) == []


def test_a_checkpoint_holds_what_waits() -> None:
    log, consent = made()
    state = checkpoint(log.transcript)
    assert restored(json.loads(json.dumps(state)), 0).waits_for() == [consent]
