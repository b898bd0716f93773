"""A server of someone's own is held to what a daemon needs of it, and to nothing that it brings."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.conformance.group import CONTRACT
from hands.conformance.run import judge, verdicts
from hands.conformance.subject import Subject, subject_at
from hands.conformance.suite import CHECKS, chosen
from tests.hands.hand_server import Context, Least, Replaying, Steps, output, result, serving
from tests.pace import SCALE

PLAIN = ("say", {"text": "hello"})
LONG = ("say", {"text": "wait"})


class Stops(Least):
    """The least; of a call that says `wait` the end is that it is cancelled."""

    def __init__(self, steps: Steps | None = None) -> None:
        super().__init__(steps or self.say)

    async def say(
        self, request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        text = json.loads(request.input)["text"]
        yield output(0, text.encode())
        while text == "wait":
            if request.call_id in self.cancelled:
                yield result("stopped", pb.OUTCOME_CANCELLED)
                return
            await asyncio.sleep(0.01)  # nothing announces it
        yield result(text)


class StopsAndReplays(Replaying, Stops):
    """It keeps its calls too."""

    def __init__(self) -> None:
        super().__init__(self.say)


class StopsNothing(Least):
    async def Cancel(self, request: pb.CancelRequest, context: object) -> pb.CancelResponse:
        return pb.CancelResponse(state=pb.CALL_STATE_TERMINAL)


class KnowsEveryHand(Stops):
    async def _find(self, request: pb.ExecuteRequest, context: Context) -> None:
        pass


class RunsAgain(Stops):
    """It claims to keep calls, and keeps none."""

    def __init__(self) -> None:
        super().__init__()
        self.info.capabilities.append("replay")

    async def say(
        self, request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        yield result(f"{len(self.asked)}")


class ForgetsNothing(StopsAndReplays):
    async def Acknowledge(
        self, request: pb.AcknowledgeRequest, context: object
    ) -> pb.AcknowledgeResponse:
        return pb.AcknowledgeResponse()


async def subject(socket: Path) -> Subject:
    return await subject_at(socket, None, {}, None, PLAIN, long=LONG)


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        (
            Stops,
            {
                *("described_whole", "as_claude_knows_them", "tools_of_capabilities"),
                *("ready_in_time", "ended", "cancelled_while_it_runs", "cut_and_stopped"),
            },
        ),
        (
            StopsAndReplays,
            {
                *("described_whole", "as_claude_knows_them", "tools_of_capabilities"),
                *("ready_in_time", "ended", "cancelled_while_it_runs", "cut_and_stopped"),
                *("asked_again", "left_and_asked_again", "cancelled_after"),
            },
        ),
    ],
)
async def test_a_server_of_the_five_rpcs_passes_and_so_does_one_that_keeps_its_calls(
    kind: type[Least], made: set[str], tmp_path: Path
) -> None:
    names = {check.sentence: check.name for check in CHECKS}
    async with serving(tmp_path / "hand.sock", kind()):
        about = await subject(tmp_path / "hand.sock")
        async with asyncio.timeout(60 * SCALE):
            found = [one async for one in verdicts(chosen([CONTRACT]), about, SCALE)]
    assert [one for one in found if one.verdict == "fail"] == []
    assert {names[one.check] for one in found if one.verdict == "pass"} == made
    sees = [one for one in found if one.detail.startswith("a daemon sees to it")]
    assert "input_refused_by_field" in {names[one.check] for one in sees}


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        (StopsNothing, "cancelled_while_it_runs", "was not stopped"),
        (KnowsEveryHand, "ended", "the call was not refused"),
        (RunsAgain, "asked_again", "the result again"),
        (RunsAgain, "left_and_asked_again", "not built"),
        (ForgetsNothing, "asked_again", "calls to acknowledge, then: "),
    ],
)
async def test_a_server_that_breaks_what_a_daemon_needs_is_caught(
    kind: type[Least], name: str, says: str, tmp_path: Path
) -> None:
    (check,) = [one for one in CHECKS if one.name == name]
    async with serving(tmp_path / "hand.sock", kind()):
        verdict = await judge(check, await subject(tmp_path / "hand.sock"), SCALE)
    assert verdict.verdict == "fail"
    assert says in verdict.detail
