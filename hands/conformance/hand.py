"""One hand as a check holds it: calls on it, watched or awaited, and what their answers say."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from carpal.ids import new_id
from carpal.v1 import hand_pb2 as pb
from carpal.verdict import Failed, Skipped, equal, must
from hands.conformance.waits import END, RESULT, Waits

if TYPE_CHECKING:
    from carpal.v1.hand_pb2_grpc import HandAsyncStub  # known to the stubs alone

    Stream = grpc.aio.UnaryStreamCall[pb.ExecuteRequest, pb.ExecuteResponse]


_ENDS = "End each Execute with one `result`, also of a call that fails or is cancelled."
_STEP = "Set `output` or `result` in each message of Execute."
_CONTENT = "Put a text into the result's `content`: where a tool says nothing, say so."
_OUTCOME = "Set the result's `outcome`: OUTCOME_OK, or OUTCOME_ERROR for a tool that failed."
_BYTES = "Count all bytes of output in output_bytes, or leave it out."
_LAST = "End Execute's stream, with the status OK, right after its `result`."
_OFFSET = (
    "Begin at output_offset, and have each chunk's `offset` count the bytes before it: bytes, not "
    "characters, and those left out, which are in its dropped_bytes, too."
)


@dataclass(frozen=True)
class Answer:
    """A call's result, and the output that came before it."""

    result: pb.Result
    output: bytes
    seconds: float
    """From asking to the result."""

    @property
    def text(self) -> str:
        """What the model is given."""
        return self.result.content

    def ended(self, outcome: "pb.Outcome.ValueType", code: int | None = None) -> "Answer":
        """Itself; Failed unless it ended like this, with an exit code if one is given."""
        if self.result.outcome != outcome:
            wanted, got = pb.Outcome.Name(outcome), pb.Outcome.Name(self.result.outcome)
            raise Failed(f"ended as {got}, not {wanted}: {self.text[-200:]!r}")
        if code is not None:
            equal("the exit code", self.result.exit_code, code)
        return self

    def fails(self) -> "Answer":
        """Itself; Failed unless the tool ran and failed, and says something."""
        return self.ended(pb.OUTCOME_ERROR)

    def within(self, seconds: float) -> "Answer":
        """Itself; Failed when it took longer."""
        must(self.seconds <= seconds, f"took {self.seconds:.1f} s, more than {seconds:.1f} s")
        return self


class Watching:
    """A call under way, and what it gave so far."""

    def __init__(self, call: "Stream", call_id: str, waits: Waits, offset: int = 0) -> None:
        """`offset` is where its output is to begin."""
        self.call_id = call_id
        self.output = b""
        self._waits = waits
        self._end = offset
        self._call = call
        self._begun = time.monotonic()
        self._steps: AsyncIterator[pb.ExecuteResponse] = aiter(call)

    async def says(self, text: bytes) -> "Watching":
        """Itself, once its output holds `text`; Failed when it ends before."""
        while text not in self.output:
            answer = await self._step()
            if answer is not None:
                raise Failed(f"ended without saying {text!r}: {answer.text[-200:]!r}")
        return self

    async def answer(self) -> Answer:
        """Its end."""
        while (answer := await self._step()) is None:
            pass
        return answer

    def cut(self) -> None:
        """Stop listening, without a word to anyone."""
        self._call.cancel()

    async def _step(self) -> Answer | None:
        async with self._waits.within(RESULT, "Execute sent neither output nor a result", _ENDS):
            with self._waits.of("Execute"):
                step = await anext(self._steps, None)
        if step is None:
            raise Failed("the call's stream ended without a result", _ENDS)
        if step.HasField("output"):
            self._take(step.output)
            return None
        must(step.HasField("result"), "a step of Execute holds neither output nor a result", _STEP)
        result, seconds = step.result, time.monotonic() - self._begun
        must(bool(result.content), "the result's content is empty", _CONTENT)
        must(result.outcome != pb.OUTCOME_UNSPECIFIED, "the result has no outcome", _OUTCOME)
        told = f"output_bytes is {result.output_bytes}, where output went up to {self._end}"
        must(result.output_bytes == 0 or result.output_bytes >= self._end, told, _BYTES)
        await self._over()
        return Answer(result, self.output, seconds)

    def _take(self, chunk: pb.OutputChunk) -> None:
        """One piece of output, which goes on where the one before ended."""
        due = self._end + chunk.dropped_bytes
        if chunk.offset != due:
            left_out = f" after {chunk.dropped_bytes} left out" if chunk.dropped_bytes else ""
            raise Failed(f"output at offset {chunk.offset}, not {due}{left_out}", _OFFSET)
        self.output += chunk.data
        self._end = chunk.offset + len(chunk.data)

    async def _over(self) -> None:
        """The stream ends with the result."""
        otherwise = "Execute sent its result and did not end its stream"
        try:
            async with self._waits.within(END, otherwise, _LAST):
                more = await anext(self._steps, None)
        except grpc.aio.AioRpcError as error:
            raise Failed(f"after its result Execute failed: {error.code().name}", _LAST) from None
        must(more is None, "something came after the result", _LAST)


class HandAt:
    """One provisioned hand, driven by one session."""

    def __init__(
        self,
        stub: "Callable[[], HandAsyncStub]",
        hand_id: str,
        driver: pb.Driver,
        *,
        lacks: frozenset[str] = frozenset(),
        limit: Callable[[str], float] = lambda _tool: 0.0,
        waits: Waits | None = None,
        over: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`stub` gives the connection there is now; `lacks` are commands that are not there.

        `over` is what follows its release.

        `limit` gives the time limit of a tool's call for which none is said; 0 leaves it to the
        tool.
        """
        self._waits = waits or Waits(1.0)
        self.hand_id = hand_id
        self.driver = driver
        self._stub = stub
        self._lacks = lacks
        self._limit = limit
        self._over = over

    def request(
        self,
        name: str,
        given: Mapping[str, Any] | bytes,
        *,
        call_id: str = "",
        limit: float = 0.0,
        offset: int = 0,
    ) -> pb.ExecuteRequest:
        """A call, of a fresh id unless one is given; `limit` is its time limit in seconds.

        Skipped when its bash would need a command that the hand has not.
        """
        if name == "bash" and isinstance(given, Mapping):
            self._check_commands(str(given.get("command", "")))
        request = pb.ExecuteRequest(
            driver=self.driver,
            hand_id=self.hand_id,
            call_id=call_id or new_id("call"),
            name=name,
            input=given if isinstance(given, bytes) else json.dumps(given).encode(),
            output_offset=offset,
        )
        if limit := limit or self._limit(name):
            request.time_limit.FromNanoseconds(int(limit * 1e9))
        return request

    def _check_commands(self, command: str) -> None:
        """Skipped when bash would not find a command of it."""
        if missing := sorted(self._lacks.intersection(re.findall(r"(?<![-./\w])\w+", command))):
            raise Skipped(f"the hand has no {', '.join(missing)}")

    def ask(self, request: pb.ExecuteRequest) -> Watching:
        """Send a call."""
        call = self._stub().Execute(request)
        return Watching(call, request.call_id, self._waits, request.output_offset)

    def begin(self, name: str, given: Mapping[str, Any] | bytes, **more: Any) -> Watching:
        """Begin a call; `more` is as of `request`."""
        return self.ask(self.request(name, given, **more))

    async def run(self, name: str, given: Mapping[str, Any] | bytes, **more: Any) -> Answer:
        """A call's end."""
        return await self.begin(name, given, **more).answer()

    async def sh(self, command: str, **more: Any) -> Answer:
        """The end of a bash call."""
        return await self.run("bash", {"command": command}, **more)

    def begin_sh(self, command: str, **more: Any) -> Watching:
        """Begin a bash call."""
        return self.begin("bash", {"command": command}, **more)

    async def works(self) -> None:
        """Failed unless a shell call is answered as if nothing had been."""
        answer = await self.sh("echo usable")
        equal("what the next call gives", answer.ended(pb.OUTCOME_OK, 0).text, "usable\n")

    async def sleeping(self, mark: str) -> int:
        """How many processes sleep for `mark` seconds, as a call in the hand sees it."""
        answer = await self.sh(
            'n=0; for f in /proc/[0-9]*/cmdline; do mapfile -d "" -t a <"$f";'
            f' [ "${{a[*]}}" = "sleep {mark}" ] && n=$((n+1)); done 2>/dev/null; echo $n'
        )
        return int(answer.ended(pb.OUTCOME_OK).text)

    async def cancel(self, call_id: str, grace: float = 0.0) -> pb.CancelResponse:
        """Stop a call."""
        request = pb.CancelRequest(driver=self.driver, hand_id=self.hand_id, call_id=call_id)
        request.grace.FromNanoseconds(int(grace * 1e9))
        async with self._waits.answer("Cancel"):
            return await self._stub().Cancel(request)

    async def acknowledge(self, *call_ids: str) -> None:
        """Say that results are in the log."""
        request = pb.AcknowledgeRequest(driver=self.driver, hand_id=self.hand_id, call_ids=call_ids)
        async with self._waits.answer("Acknowledge"):
            await self._stub().Acknowledge(request)

    async def claim(self, *call_ids: str, epoch: int | None = None) -> pb.ClaimResponse:
        """Ask for the states of calls, as another driver when `epoch` is another."""
        request = pb.ClaimRequest(driver=self.driver, hand_id=self.hand_id, call_ids=call_ids)
        if epoch is not None:
            request.driver.epoch = epoch
        async with self._waits.answer("Claim"):
            return await self._stub().Claim(request)

    async def listed(self) -> pb.HandInfo:
        """What the server lists of it; Failed when it lists no such hand."""
        request = pb.ListHandsRequest(session_id=self.driver.session_id)
        async with self._waits.answer("ListHands"):
            hands = (await self._stub().ListHands(request)).hands
        for each in hands:
            if each.hand_id == self.hand_id:
                return each
        change = "List each hand in ListHands from its Provision to its Release."
        raise Failed("ListHands does not list the hand", change)

    async def state(self, call_id: str) -> "pb.CallState.ValueType":
        """One call's state."""
        (found,) = (await self.claim(call_id)).calls
        equal("the call that Claim answers about", found.call_id, call_id)
        return found.state

    async def until(self, call_id: str, *states: "pb.CallState.ValueType") -> None:
        """Once a call is in one of these states."""
        while await self.state(call_id) not in states:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.02)

    async def release(self) -> pb.ReleaseResponse:
        """End it."""
        request = pb.ReleaseRequest(driver=self.driver, hand_id=self.hand_id)
        async with self._waits.answer("Release"):
            released = await self._stub().Release(request)
        if released.ended and self._over is not None:
            await self._over()
        return released
