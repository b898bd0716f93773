"""Whoever wrote a hand server learns from the checks what to change in it, and waits for no end."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from carpal.errors import CarpalError
from carpal.v1 import hand_pb2 as pb
from hands.conformance import given
from hands.conformance.first import first
from hands.conformance.run import judge
from hands.conformance.suite import CHECKS
from tests.command import Command
from tests.hands.conformance.test_foreign import Stops, StopsAndReplays, subject
from tests.hands.hand_server import Context, Least, output, result, serving
from tests.pace import SCALE

SHORT = 0.3


async def _hang() -> None:
    await asyncio.Event().wait()


class GoesOnAfterItsHand(Stops):
    async def Provision(
        self, request: pb.ProvisionRequest, context: object
    ) -> AsyncIterator[pb.ProvisionResponse]:
        async for step in super().Provision(request, context):
            yield step
        await _hang()


class MakesNoHand(Stops):
    async def Provision(
        self, request: pb.ProvisionRequest, context: object
    ) -> AsyncIterator[pb.ProvisionResponse]:
        yield pb.ProvisionResponse(progress=pb.ProvisionProgress(message="still at it"))
        await _hang()


class EndsWithNoHand(Stops):
    async def Provision(
        self, request: pb.ProvisionRequest, context: object
    ) -> AsyncIterator[pb.ProvisionResponse]:
        yield pb.ProvisionResponse(progress=pb.ProvisionProgress(message="made"))


class MakesItTwice(Stops):
    async def Provision(
        self, request: pb.ProvisionRequest, context: object
    ) -> AsyncIterator[pb.ProvisionResponse]:
        for _ in range(2):
            async for step in super().Provision(request, context):
                yield step


class Wrong(Stops):
    """Its calls end as `end` says."""

    async def say(
        self, request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        for step in await self.end(request, context):
            yield step

    async def end(self, request: pb.ExecuteRequest, context: Context) -> list[pb.ExecuteResponse]:
        raise RuntimeError("of its own")


class CountsFromNothing(Wrong):
    async def end(self, *_: Any) -> list[pb.ExecuteResponse]:
        return [output(0, b"abc"), output(0, b"abc"), result()]


class CountsCharacters(Wrong):
    async def end(self, *_: Any) -> list[pb.ExecuteResponse]:
        return [output(0, "né".encode()), output(2, b"e"), result()]


class CountsTooFewBytes(Wrong):
    async def end(self, *_: Any) -> list[pb.ExecuteResponse]:
        end = result()
        end.result.output_bytes = 1
        return [output(0, b"abc"), end]


class SaysNoEnd(Wrong):
    async def end(self, *_: Any) -> list[pb.ExecuteResponse]:
        return [output(0, b"abc")]


class SaysNothing(Wrong):
    async def end(self, *_: Any) -> list[pb.ExecuteResponse]:
        return [result("")]


class HasNoOutcome(Wrong):
    async def end(self, *_: Any) -> list[pb.ExecuteResponse]:
        return [result("done", pb.OUTCOME_UNSPECIFIED)]


class NeverEnds(Wrong):
    async def end(self, *_: Any) -> list[pb.ExecuteResponse]:
        await _hang()
        return []


class GoesOnAfterItsResult(Stops):
    async def Execute(
        self, request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        async for step in super().Execute(request, context):
            yield step
        await _hang()


class ForgetsItsHands(Stops):
    async def Provision(
        self, request: pb.ProvisionRequest, context: object
    ) -> AsyncIterator[pb.ProvisionResponse]:
        async for step in super().Provision(request, context):
            yield step
        self.hands.clear()


class StopsAsAnError(Stops):
    async def say(
        self, request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        async for step in super().say(request, context):
            if step.result.outcome == pb.OUTCOME_CANCELLED:
                step.result.outcome = pb.OUTCOME_ERROR
            yield step


class HearsNoCancel(Stops):
    async def Cancel(self, request: pb.CancelRequest, context: object) -> pb.CancelResponse:
        return pb.CancelResponse(state=pb.CALL_STATE_RUNNING)


class AnswersNoCancel(Stops):
    async def Cancel(self, request: pb.CancelRequest, context: object) -> pb.CancelResponse:
        await _hang()
        return pb.CancelResponse()


class HasNoCancel(Stops):
    async def Cancel(self, request: pb.CancelRequest, context: Any) -> pb.CancelResponse:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not yet")
        return pb.CancelResponse()


class HearsNoCut(Stops):
    """Its call goes on without a watcher, and the next one waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.one_at_a_time = asyncio.Lock()

    async def Execute(
        self, request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        await self.one_at_a_time.acquire()
        async for step in super().Execute(request, context):
            yield step
        self.one_at_a_time.release()  # not when the stream was cut


class LeavesItsProgram(Stops):
    """What a call had started goes on when its stream is cut."""

    async def say(
        self, request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        program = await asyncio.create_subprocess_exec("sleep", "60")
        self.programs.append(program)
        async for step in super().say(request, context):
            yield step
        program.kill()
        await program.wait()

    def __init__(self) -> None:
        super().__init__()
        self.programs: list[asyncio.subprocess.Process] = []

    async def end(self) -> None:
        for program in self.programs:
            if program.returncode is None:
                program.kill()
            await program.wait()


class EndsWithoutAWord(Stops):
    async def Release(self, request: pb.ReleaseRequest, context: object) -> pb.ReleaseResponse:
        await super().Release(request, context)
        return pb.ReleaseResponse()


class EndsWhatIsNotThereWithAnother(Stops):
    async def _find(self, request: pb.ExecuteRequest, context: Context) -> None:
        if request.hand_id not in self.hands:
            await context.abort(grpc.StatusCode.INTERNAL, "KeyError")


class ListsNothing(StopsAndReplays):
    async def ListHands(
        self, request: pb.ListHandsRequest, context: object
    ) -> pb.ListHandsResponse:
        return pb.ListHandsResponse()


class Undescribed(Stops):
    def __init__(self) -> None:
        super().__init__()
        self.info.tools[0].description = ""


class NoSchema(Stops):
    def __init__(self) -> None:
        super().__init__()
        self.info.tools[0].input_schema = b"{"


class OddSchema(Stops):
    def __init__(self) -> None:
        super().__init__()
        self.info.tools[
            0
        ].input_schema = b'{"type": "object", "properties": {"text": {"type": ["string", "null"]}}}'


class NoTime(Stops):
    def __init__(self) -> None:
        super().__init__()
        self.info.tools[0].time_limit.FromSeconds(-1)


READY, ENDED, CANCELLED = "ready_in_time", "ended", "cancelled_while_it_runs"
TOLD = [
    (GoesOnAfterItsHand, READY, "did not end its stream within", "End Provision's stream"),
    (MakesNoHand, READY, "Provision sent no result within", "Have Provision send one `result`"),
    (EndsWithNoHand, READY, "Provision ended without a result", "Have Provision send one"),
    (MakesItTwice, READY, "something came after the result", "right after its one `result`"),
    (Wrong, READY, "Execute refused as UNKNOWN without a reason", "Catch what a tool raises"),
    (CountsFromNothing, READY, "output at offset 0, not 3", "count the bytes before it"),
    (CountsCharacters, READY, "output at offset 2, not 3", "bytes, not characters"),
    (CountsTooFewBytes, READY, "output_bytes is 1, where", "Count all bytes of output"),
    (SaysNoEnd, READY, "stream ended without a result", "End each Execute with one `result`"),
    (SaysNothing, READY, "content is empty", "Put a text into the result's `content`"),
    (HasNoOutcome, READY, "has no outcome", "Set the result's `outcome`"),
    (NeverEnds, READY, "neither output nor a result within", "End each Execute with one"),
    (GoesOnAfterItsResult, READY, "did not end its stream within", "End Execute's stream"),
    (ForgetsItsHands, READY, "refused as NOT_FOUND without a reason", "Keep the hand that"),
    (StopsAsAnError, CANCELLED, "ended as OUTCOME_ERROR", "the outcome OUTCOME_CANCELLED"),
    (HearsNoCancel, CANCELLED, "did not end after Cancel within", "Have Cancel stop the call"),
    (AnswersNoCancel, CANCELLED, "Cancel was not answered within", "Answer Cancel at once"),
    (HasNoCancel, CANCELLED, "Cancel not built", "Serve Cancel: every hand server must."),
    (HearsNoCut, "cut_and_stopped", "had no result after the stream of the one", "under you"),
    (LeavesItsProgram, "cut_and_stopped", "still runs after its stream was cut", "all it started"),
    (EndsWithoutAWord, ENDED, "ended: False, not True", "Set `ended` to true"),
    (EndsWhatIsNotThereWithAnother, ENDED, "INTERNAL", "with the status NOT_FOUND"),
    (ListsNothing, "asked_again", "does not list the hand", "List each hand in ListHands"),
    (Undescribed, "described_whole", "say has no description", "Give the tool say a desc"),
    (NoSchema, "described_whole", "the schema of say is no JSON", "Make each schema the bytes"),
    (OddSchema, "described_whole", "no daemon takes the schema of say", "Change that in Desc"),
    (NoTime, "described_whole", "the time limit of say is -1 s", "at most a day"),
]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for, and does not come, is waited for shortly."""
    for name in ("bench.RESULT", "bench.END", "hand.RESULT", "hand.END", "waits.ANSWER"):
        monkeypatch.setattr(f"hands.conformance.{name}", SHORT * 3)
    monkeypatch.setattr("hands.conformance.checks.calls._STOPPED", SHORT)
    monkeypatch.setattr("hands.conformance.checks.faults._STOPS", SHORT)
    monkeypatch.setattr("hands.conformance.first._PATIENCE", SHORT)


@pytest.mark.parametrize("told", TOLD, ids=[f"{each[0].__name__}" for each in TOLD])
async def test_what_is_said_of_a_wrong_server_is_what_is_wrong_and_what_to_change(
    told: tuple[type[Stops], str, str, str], tmp_path: Path
) -> None:
    kind, name, detail, change = told
    (check,) = [one for one in CHECKS if one.name == name]
    server = kind()
    async with serving(tmp_path / "hand.sock", server), asyncio.timeout(30 * SCALE):
        verdict = await judge(check, await subject(tmp_path / "hand.sock"), SCALE)
    if isinstance(server, LeavesItsProgram):
        await server.end()
    assert verdict.verdict == "fail", verdict
    assert detail in verdict.detail
    assert change in verdict.change
    assert verdict.change.endswith(".")
    assert "\n" not in verdict.change


async def test_the_first_hand_is_waited_for_with_a_bound_and_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hands.conformance.first._SAY", 0.0)
    said: list[str] = []
    async with serving(tmp_path / "hand.sock", MakesNoHand()), asyncio.timeout(30 * SCALE):
        about = await subject(tmp_path / "hand.sock")
        with pytest.raises(CarpalError) as caught:
            await first(about, SCALE, said.append)
    assert "no hand can be made: Provision sent no result within" in str(caught.value)
    assert "have Provision send one `result`" in str(caught.value)
    assert len(said) == 1
    assert said[0].startswith("waiting for the first hand: Provision sent no result yet")


async def test_a_provision_that_goes_on_after_its_result_holds_up_no_check(tmp_path: Path) -> None:
    async with serving(tmp_path / "hand.sock", GoesOnAfterItsHand()), asyncio.timeout(30 * SCALE):
        about = await subject(tmp_path / "hand.sock")
        assert await first(about, SCALE) is about


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--call", "sing", "{}"), "--call: 'echo' has no tool 'sing'; it has say"),
        (("--call", "say", "{}"), "--call say: does not fit its schema: text is required"),
        (("--long", "say", '{"text": 7}'), "--long say: does not fit its schema: text must be a"),
        (("--hand-config", '{"a": 1}'), "--hand-config: does not fit its schema: config.a is not"),
    ],
)
async def test_a_call_or_a_config_that_cannot_be_is_refused_before_any_hand_is_made(
    flags: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    server = Least()
    server.info.config_schema = b'{"type": "object", "additionalProperties": false}'
    at = tmp_path / "hand.sock"
    async with serving(at, server):
        ended = await Command(tmp_path)("hand", "check", "--endpoint", f"unix://{at}", *flags)
    assert (ended.code, ended.stdout) == (2, "")
    assert says in ended.stderr
    assert not server.hands


async def test_a_call_of_a_hand_that_lists_its_tools_itself_is_held_to_them_once_it_is_there(
    tmp_path: Path,
) -> None:
    server = Stops()
    async with serving(tmp_path / "hand.sock", server):
        about = await subject(tmp_path / "hand.sock")
    given.check(about)
    about.type.capabilities.append("lists_tools")
    tools = list(about.type.tools)
    del about.type.tools[:]
    given.check(about)
    given.check_calls(about)  # that its hand listed none, a check says
    about.type.tools.extend(tools)
    given.check_calls(about)
    about.type.tools[0].name = "tell"
    with pytest.raises(CarpalError, match="--call: 'echo' has no tool 'say'; it has tell"):
        given.check_calls(about)
