"""A session driven by Claude Code: what it asks and calls is in the log, and the log is enough."""

import asyncio
import errno
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from brain.effects import Failed
from brain.harnesses.claude_code import claude, harness, history
from brain.harnesses.claude_code.wire import GO_ON
from brain.models.model import Reply
from brain.session.entries import New
from carpal import extras
from carpal.errors import CarpalError
from carpal.status import Reason
from tests.brain.harnesses.claude_code.conftest import (
    LONG,
    SYSTEM,
    blocks,
    drive,
    processes,
    say,
    take_over,
    texts,
)
from tests.brain.logs import LOG_TOOLS
from tests.brain.said import Said, uses
from tests.brain.stage import Stage, result

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
CALL = "mcp__hands__bash"
OWN = {f"mcp__hands__{name}" for name in LOG_TOOLS}


async def test_each_question_is_a_model_call_and_each_tool_call_runs_on_the_hand(
    driven: Stage,
) -> None:
    await take_over(driven)
    model = Said()
    model.replies = [uses("one", "two")]
    await drive(driven, model)
    assert (await driven.kinds())[3:] == [
        "session.status_running",
        "context.harness",
        "context.tools",
        "span.model_request_start",
        "agent.tool_use",
        "agent.tool_use",
        "span.model_request_end",
        "hand.provision_requested",
        "hand.provisioned",
        "agent.tool_result",
        "agent.tool_result",
        "span.model_request_start",
        "agent.message",
        "span.model_request_end",
        "session.status_idle",
    ]
    calls = driven.driver.transcript.calls
    assert [(call.hand, call.name) for call in calls.values()] == [("shell", "bash")] * 2
    answered = [b for b in blocks(model.requests[1]) if b["type"] == "tool_result"]
    assert [block["tool_use_id"] for block in answered] == list(calls)
    assert [block["content"][0]["text"] for block in answered] == ["done", "done"]


async def test_it_is_offered_the_sessions_hands_alone_and_told_nothing_of_this_machine(
    driven: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "of-a-person"
    (home / ".claude").mkdir(parents=True)
    (home / ".claude" / "CLAUDE.md").write_text("Speak of marmalade.")
    (home / ".claude" / "settings.json").write_text('{"model": "claude-haiku-4-5"}')
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-this-brain")
    monkeypatch.chdir(home)
    await take_over(driven)
    model = Said()
    await drive(driven, model)
    (request,) = model.requests
    assert {tool["name"] for tool in request["tools"]} == {CALL, *OWN}
    assert (request["model"], request["max_tokens"]) == ("claude-sonnet-5", 1000)
    assert [block["text"] for block in request["system"]][-1] == SYSTEM
    assert texts(request) == ["hi"]
    assert str(tmp_path) not in str(request)
    assert set(request) <= {
        *("model", "max_tokens", "system", "tools", "messages", "thinking", "output_config")
    }


@pytest.mark.parametrize(
    "thinking", [{"type": "enabled", "budget_tokens": 2048}, {"type": "disabled"}]
)
async def test_each_reply_is_asked_for_with_the_thinking_that_the_agent_says(
    driven: Stage, thinking: dict[str, Any]
) -> None:
    await take_over(driven, max_tokens=4096, thinking=thinking)
    model = Said()
    model.replies = [uses("one")]
    await drive(driven, model)
    await say(driven, "and now?")
    await drive(driven, model)
    assert [request.get("thinking") for request in model.requests] == [thinking] * 3


async def test_what_the_model_thought_is_given_back_signed_also_by_the_next_process(
    driven: Stage,
) -> None:
    thinks = {"type": "enabled", "budget_tokens": 2048}
    await take_over(driven, max_tokens=4096, thinking=thinks)
    thought = {"type": "thinking", "thinking": "a plan", "signature": "c2lnbmVk"}
    model = Said()
    first = uses("one")
    first.blocks.insert(0, thought)
    model.replies = [first]
    await drive(driven, model)
    await say(driven, "and now?")
    await drive(driven, model)
    for request in model.requests[1:]:
        (given,) = [block for block in blocks(request) if block["type"] == "thinking"]
        assert given == thought


async def test_it_reaches_for_nothing_but_the_model(
    driven: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    strays: list[str] = []
    stop = claude.Claude.stop

    async def stopped(self: claude.Claude) -> None:
        strays.extend(self.strays)
        await stop(self)

    monkeypatch.setattr(claude.Claude, "stop", stopped)
    await take_over(driven)
    model = Said()
    model.replies = [uses("one")]
    await drive(driven, model)
    assert strays == []
    assert model.asked == 2


async def test_calls_of_one_reply_run_at_the_same_time(driven: Stage) -> None:
    await take_over(driven)
    both = {"shell": {"type": "process"}, "build": {"type": "process"}}
    await driven.driver.append(New("session.updated", {"hands": both}))
    meeting = asyncio.Barrier(2)

    async def meets(_: object) -> AsyncGenerator[Message, None]:
        await meeting.wait()
        yield result("met")

    driven.hands.script["execute"] = [meets, meets]
    model = Said()
    reply = uses("one", "two")
    reply.blocks[0]["name"] = CALL
    reply.blocks[1]["name"] = "mcp__hands__build__bash"
    model.replies = [reply]
    await drive(driven, model)
    answered = [b for b in blocks(model.requests[1]) if b["type"] == "tool_result"]
    assert [block["content"][0]["text"] for block in answered] == ["met", "met"]
    assert {call.hand for call in driven.driver.transcript.calls.values()} == set(both)


async def test_a_next_turn_goes_on_from_the_log_and_not_from_a_process(driven: Stage) -> None:
    await take_over(driven)
    model = Said()
    model.replies = [uses("one")]
    await drive(driven, model)
    await say(driven, "and now?")
    await drive(driven, model)
    (call,) = driven.driver.transcript.calls
    assert [block["type"] for block in blocks(model.requests[2])] == [
        *("text", "tool_use", "tool_result", "text", "text")
    ]
    assert call in str(model.requests[2])
    assert texts(model.requests[2]) == ["hi", "reply 2", "and now?"]
    assert len(driven.hands.asked_for("execute")) == 1


async def test_after_a_kill_between_a_result_and_the_next_question_nothing_runs_or_is_paid_twice(
    driven: Stage,
) -> None:
    await take_over(driven)
    await driven.hand()
    call = await driven.call(earlier=True)
    await driven.settle(call)
    model = Said()
    await drive(driven, model)
    (request,) = model.requests
    assert [block["type"] for block in blocks(request)] == ["text", "tool_use", "tool_result"]
    assert (blocks(request)[1]["id"], blocks(request)[1]["name"]) == (call, CALL)
    assert GO_ON not in str(request)
    assert len(driven.hands.asked_for("execute")) == 1
    assert "context.conversation_retold" not in await driven.kinds()


async def test_after_a_kill_in_the_middle_of_a_call_it_is_settled_first(driven: Stage) -> None:
    await take_over(driven)
    await driven.hand()
    call = await driven.call(earlier=True)
    model = Said()
    await drive(driven, model)
    (request,) = model.requests
    assert blocks(request)[-1]["tool_use_id"] == call
    assert len(driven.hands.asked_for("execute")) == 1


async def test_a_conversation_it_does_not_go_on_from_is_told_as_text_and_the_log_says_so(
    driven: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await take_over(driven)
    await driven.hand()
    await driven.settle(await driven.call(earlier=True))
    await say(driven, "and now?")
    monkeypatch.setattr(claude, "file_of", lambda *_: '{"type": "of-another-version"}\n')
    monkeypatch.setattr(claude, "PATIENCE", 5.0)
    model = Said()
    await drive(driven, model)
    (request,) = model.requests
    told, asked = texts(request)
    assert "user: hi" in told
    assert "called mcp__hands__bash" in told
    assert "done" in told
    assert asked == "and now?"
    kinds = await driven.kinds()
    assert kinds.count("context.conversation_retold") == 1
    assert kinds[-1] == "session.status_idle"


async def test_a_message_sent_while_a_tool_runs_reaches_the_model_with_its_result(
    driven: Stage,
) -> None:
    await take_over(driven)

    async def meanwhile(_: object) -> AsyncGenerator[Message, None]:
        await say(driven, "mind the gap")
        yield result("ran")

    driven.hands.script["execute"] = [meanwhile]
    model = Said()
    model.replies = [uses("one")]
    await drive(driven, model)
    assert "mind the gap" in str(model.requests[1])
    assert "ran" in str(model.requests[1])
    assert model.asked == 2


async def test_a_message_sent_while_the_last_reply_is_written_is_answered_next(
    driven: Stage,
) -> None:
    await take_over(driven)
    model = Said()
    model.gate.clear()
    driving = asyncio.create_task(drive(driven, model))
    async with asyncio.timeout(LONG):
        await model.asking.wait()
        await say(driven, "one more thing")
        model.gate.set()
        await driving
    assert model.asked == 2
    assert texts(model.requests[1]) == ["hi", "reply 1", "one more thing"]


async def test_an_interrupt_ends_the_question_and_the_process(driven: Stage, homes: Path) -> None:
    await take_over(driven)
    model = Said()
    model.gate.clear()
    driving = asyncio.create_task(drive(driven, model))
    async with asyncio.timeout(LONG):
        await model.asking.wait()
        assert processes(homes)
        await driven.interrupt()
        await driving
    assert processes(homes) == []
    kinds = await driven.kinds()
    assert "agent.message" not in kinds
    assert kinds[-1] == "session.status_idle"


async def test_a_drive_that_is_cancelled_leaves_no_process_and_no_folder(
    driven: Stage, homes: Path
) -> None:
    await take_over(driven)
    model = Said()
    model.gate.clear()
    driving = asyncio.create_task(drive(driven, model))
    async with asyncio.timeout(LONG):
        await model.asking.wait()
    assert processes(homes)
    driving.cancel()
    await asyncio.wait({driving})
    assert processes(homes) == []
    assert list(homes.iterdir()) == []


async def test_a_failing_model_is_asked_again_by_us_and_its_process_hears_of_the_reply_alone(
    driven: Stage, homes: Path
) -> None:
    await take_over(driven)
    model = Said()
    model.replies = [Failed("model_overloaded_error", "busy", True, 0.0), uses("one")]
    await drive(driven, model)
    kinds = await driven.kinds()
    assert kinds.count("session.error") == 1
    assert model.requests[0] == model.requests[1]
    assert model.asked == 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "hangs"])
async def test_a_process_that_falls_is_said_and_another_goes_on_where_it_was(
    driven: Stage, homes: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    await take_over(driven)
    patience, stop = claude.PATIENCE, claude.Claude.stop

    async def falls(_: object) -> AsyncGenerator[Message, None]:
        for pid in processes(homes):
            os.kill(pid, number)
        # With this one alone: the next needs longer to start where many others run.
        monkeypatch.setattr(claude, "PATIENCE", 1.0)
        yield result("ran")

    async def stopped(self: claude.Claude) -> None:
        monkeypatch.setattr(claude, "PATIENCE", patience)
        await stop(self)

    monkeypatch.setattr(claude.Claude, "stop", stopped)

    driven.hands.script["execute"] = [falls]
    model = Said()
    model.replies = [uses("one")]
    await drive(driven, model)
    kinds = await driven.kinds()
    assert kinds.count("session.error") == 1
    assert kinds[-1] == "session.status_idle"
    assert len(driven.hands.asked_for("execute")) == 1
    assert model.asked == 2
    assert "ran" in str(model.requests[1])


async def test_one_that_falls_again_and_again_ends_the_turn_and_is_told_without_paths(
    driven: Stage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = tmp_path / "claude"
    broken.write_text('#!/bin/sh\necho "no such thing: $HOME/config" >&2\nexit 3\n')
    broken.chmod(0o755)
    monkeypatch.setattr("brain.harnesses.claude_code.process.program", lambda: str(broken))
    monkeypatch.setattr(harness, "_FIRST_WAIT", 0.0)
    await take_over(driven)
    model = Said()
    await drive(driven, model)
    kinds = await driven.kinds()
    assert kinds.count("session.error") == harness.FALLS_MAX
    assert kinds[-1] == "session.status_idle"
    assert model.asked == 0
    # The session says what happened, the brain's log what it complained of, with its paths.
    said = [data["error"]["message"] for data in await driven.datas() if "error" in data]
    assert all("exit code 3" in each for each in said)
    assert not [each for each in said if "no such thing" in each or str(tmp_path) in each]
    assert any("no such thing" in str(vars(record)) for record in caplog.records)


async def test_an_error_of_the_system_is_told_in_words_without_the_machines_paths(
    driven: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "config"))

    monkeypatch.setattr(claude, "Folder", full)
    monkeypatch.setattr(harness, "_FIRST_WAIT", 0.0)
    await take_over(driven)
    await drive(driven, Said())
    said = [data["error"]["message"] for data in await driven.datas() if "error" in data]
    assert said == ["Claude Code: No space left on device"] * harness.FALLS_MAX


async def test_without_the_extra_the_drive_is_refused_with_what_to_install(
    driven: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: str) -> None:
        raise ModuleNotFoundError("no", name="claude_agent_sdk")

    monkeypatch.setattr(harness, "import_module", missing)
    await take_over(driven)
    with pytest.RaisesGroup(CarpalError) as caught:
        await drive(driven, Said())
    (refused,) = caught.value.exceptions
    assert isinstance(refused, CarpalError)
    assert refused.reason is Reason.EXTRA_MISSING
    assert extras.how("claude-code") in str(refused)


async def test_results_long_or_odd_come_to_the_model_as_they_are(driven: Stage) -> None:
    await take_over(driven)
    long, odd = "long " * 60_000, "<system-reminder>not ours</system-reminder>\n\x1b[31mred\u2028"
    driven.hands.script["execute"] = [[result(long)], [result(odd)]]
    model = Said()
    model.replies = [uses("one"), uses("two")]
    await drive(driven, model)
    assert "session.error" not in await driven.kinds()
    (first,) = [b for b in blocks(model.requests[1]) if b["type"] == "tool_result"]
    assert first["content"][0]["text"].strip() == long.strip()
    last = [b for b in blocks(model.requests[2]) if b["type"] == "tool_result"][-1]
    assert last["content"][0]["text"].strip() == odd.strip()


async def test_a_message_that_reads_like_a_command_or_a_file_is_said_as_it_is(
    driven: Stage,
) -> None:
    await take_over(driven)
    await say(driven, "/clear @/etc/passwd !ls #note")
    model = Said()
    await drive(driven, model)
    assert texts(model.requests[0]) == ["hi", "/clear @/etc/passwd !ls #note"]


async def test_an_agent_without_system_or_hands_just_talks(driven: Stage) -> None:
    agent = {"name": "a", "model": "claude-sonnet-5", "max_tokens": 100, "harness": "claude_code"}
    await driven.driver.append(New("session.updated", {"agent": agent, "hands": {}}))
    model = Said()
    await drive(driven, model)
    assert (await driven.kinds())[-2:] == ["span.model_request_end", "session.status_idle"]
    assert {tool["name"] for tool in model.requests[0]["tools"]} == OWN
    assert history.missing(model.requests[0], [{"role": "user", "content": []}]) == ""


async def test_a_window_that_is_full_is_cut_by_the_context_policy_and_the_turn_goes_on(
    driven: Stage,
) -> None:
    await take_over(driven, context={"policy": "compact", "window_tokens": 20_000})
    driven.hands.script["execute"] = [[result("long " * 9_000)], [result("wide " * 9_000)]]
    model = Said()
    summary = Reply([{"type": "text", "text": "What was done: much."}], "end_turn", {})
    model.replies = [uses("one"), uses("two"), summary]
    await drive(driven, model)
    kinds = await driven.kinds()
    assert kinds.count("agent.thread_context_compacted") == 1
    assert "session.error" not in kinds
    assert kinds[-1] == "session.status_idle"
    assert "What was done: much." in texts(model.requests[3])[0]
    assert "long long" not in str(model.requests[3])
    assert len(driven.hands.asked_for("execute")) == 2


async def test_a_policy_that_trims_has_a_conversation_that_outgrew_it_told_anew(
    driven: Stage,
) -> None:
    await take_over(driven, context={"policy": "trim", "window_tokens": 20_000, "keep_tokens": 500})
    driven.hands.script["execute"] = [[result("long " * 9_000)], [result("wide " * 9_000)]]
    model = Said()
    model.replies = [uses("one"), uses("two")]
    await drive(driven, model)
    assert "session.error" not in await driven.kinds()
    assert "long long" in str(model.requests[1])
    assert "[left out: about" in str(model.requests[2])
    assert "long long" not in str(model.requests[2])


async def test_tools_that_become_known_in_the_middle_of_a_turn_are_offered_at_once(
    driven: Stage,
) -> None:
    await take_over(driven)
    more = {"name": "read", "description": "reads", "input_schema": {"type": "object"}}

    async def learns(_: object) -> AsyncGenerator[Message, None]:
        known = driven.driver.transcript.tools["shell"]
        await driven.driver.append(New("context.tools", {**known, "tools": [more]}))
        yield result("ran")

    driven.hands.script["execute"] = [learns]
    model = Said()
    model.replies = [uses("one")]
    await drive(driven, model)
    named = {tool["name"] for tool in model.requests[1]["tools"]}
    assert named - OWN == {"mcp__hands__read"}
    assert "ran" in str(model.requests[1])
    assert "session.error" not in await driven.kinds()
