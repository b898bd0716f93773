"""Hands of a server of somebody's own, on a unix socket."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands import types
from hands.blobs import Blobs
from hands.builtin.socket import SocketType
from tests.hands.hand_server import Context, Least, Replaying, Steps, echo, output, result, serving
from tests.hands.place import PATIENCE, Place, open_place, until

A_MOMENT = 0.05


@asynccontextmanager
async def place(folder: Path, server: Least) -> AsyncIterator[Place]:
    """A daemon's service with the server's type beside the process hand; no brain takes blobs."""
    at = folder / "hand.sock"
    more = {"echo": SocketType("echo", at)}
    async with (
        serving(at, server),
        open_place(folder / "state", more=more, blobs=Blobs(0.0)) as one,
    ):
        yield one


async def test_five_rpcs_are_enough_for_a_hand(tmp_path: Path) -> None:
    server = Least()
    async with place(tmp_path, server) as here:
        hand_id = await here.hand(type="echo")
        said = await here.run(hand_id, "say", text="hello")
        assert (said.outcome, said.content) == (pb.OUTCOME_OK, "hello")
        assert await here.release(hand_id)
        assert not server.hands


async def test_a_call_is_told_to_the_server_once_however_often_a_brain_asks(tmp_path: Path) -> None:
    server = Least()
    async with place(tmp_path, server) as here:
        hand_id = await here.hand(type="echo")
        request = here.request(hand_id, "say", text="hello")
        first = await here.steps(request)
        assert await here.steps(request) == first
        assert [each.call_id for each in server.asked] == [request.call_id]
        assert server.asked[0].time_limit.seconds == 120


async def test_an_input_that_does_not_fit_is_refused_before_the_server_hears_of_it(
    tmp_path: Path,
) -> None:
    server = Least()
    async with place(tmp_path, server) as here:
        hand_id = await here.hand(type="echo")
        with pytest.raises(CarpalError) as raised:
            await here.run(hand_id, "say", text=7)
        assert raised.value.reason is Reason.INPUT_INVALID
        assert not server.asked


async def _nothing(
    request: pb.ExecuteRequest, context: Context
) -> AsyncIterator[pb.ExecuteResponse]:
    nothing: list[pb.ExecuteResponse] = []
    for step in nothing:
        yield step


async def _back(request: pb.ExecuteRequest, context: Context) -> AsyncIterator[pb.ExecuteResponse]:
    yield output(0, b"abc")
    yield output(1, b"abc")
    yield result()


async def _no_outcome(
    request: pb.ExecuteRequest, context: Context
) -> AsyncIterator[pb.ExecuteResponse]:
    yield result("done", pb.OUTCOME_UNSPECIFIED)


async def _raises(
    request: pb.ExecuteRequest, context: Context
) -> AsyncIterator[pb.ExecuteResponse]:
    if request.call_id:
        raise RuntimeError("of its own")
    yield result()


async def _refuses(
    request: pb.ExecuteRequest, context: Context
) -> AsyncIterator[pb.ExecuteResponse]:
    if request.call_id:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the lid is open")
    yield result()


async def _begins_and_refuses(
    request: pb.ExecuteRequest, context: Context
) -> AsyncIterator[pb.ExecuteResponse]:
    yield output(0, b"the lid opens")
    await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such file")


async def _empty(request: pb.ExecuteRequest, context: Context) -> AsyncIterator[pb.ExecuteResponse]:
    yield result("")


async def _bad_attachment(
    request: pb.ExecuteRequest, context: Context
) -> AsyncIterator[pb.ExecuteResponse]:
    step = result()
    step.result.attachments.add(digest=b"x" * 32, data=b"abc", name="a.txt")
    yield step


async def _too_large(
    request: pb.ExecuteRequest, context: Context
) -> AsyncIterator[pb.ExecuteResponse]:
    yield result("x" * (5 * 1024 * 1024))


@pytest.mark.parametrize(
    ("steps", "outcome", "words"),
    [
        (_nothing, pb.OUTCOME_INTERRUPTED, "without a result"),
        (_back, pb.OUTCOME_INTERRUPTED, "output at 1 after output up to 3"),
        (_no_outcome, pb.OUTCOME_INTERRUPTED, "no outcome"),
        (_raises, pb.OUTCOME_INTERRUPTED, "may have partly happened"),
        (_refuses, pb.OUTCOME_ERROR, "did not take the call: the lid is open"),
        (_begins_and_refuses, pb.OUTCOME_INTERRUPTED, "may have partly happened"),
        (_empty, pb.OUTCOME_OK, "answered nothing"),
        (_bad_attachment, pb.OUTCOME_INTERRUPTED, "attachment 'a.txt'"),
        (_too_large, pb.OUTCOME_INTERRUPTED, "a result is at most 4 MiB"),
    ],
)
async def test_whatever_a_server_answers_the_call_ends_and_another_hand_does_not_notice(
    tmp_path: Path, steps: Steps, outcome: int, words: str
) -> None:
    server = Least(steps)
    async with place(tmp_path, server) as here:
        other = await here.hand()
        hand_id = await here.hand(type="echo")
        said = await here.run(hand_id, "say", text="hello")
        assert (said.outcome, words in said.content) == (outcome, True), said
        assert (await here.sh(other, "echo here")).content == "here\n"
        server.steps = echo
        assert (await here.run(hand_id, "say", text="again")).content == "again"


async def test_a_picture_comes_with_the_result(tmp_path: Path) -> None:
    async def picture(
        request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        step = result("a picture")
        step.result.attachments.add(data=b"\x89PNG", media_type="image/png", name="a.png")
        yield step

    async with place(tmp_path, Least(picture)) as here:
        said = await here.run(await here.hand(type="echo"), "say", text="hello")
        assert "a picture" in said.content
        # No brain is linked that would take it: the result says so, and names it.
        assert said.outcome == pb.OUTCOME_OK
        kept = hashlib.sha256(b"\x89PNG").digest()
        assert [each.digest for each in said.attachments] in ([kept], [])


async def test_a_call_that_does_not_end_in_its_time_is_cancelled_and_then_its_hand_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(
        request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        await asyncio.sleep(PATIENCE)
        yield result()

    monkeypatch.setattr("hands.builtin.socket_hand._MARGIN", A_MOMENT)
    monkeypatch.setattr("hands.builtin.socket_hand._GRACE", A_MOMENT)
    server = Least(hangs)
    async with place(tmp_path, server) as here:
        hand_id = await here.hand(type="echo")
        request = here.request(hand_id, "say", text="hello", limit=A_MOMENT)
        said = (await here.steps(request))[-1].result
        assert said.outcome == pb.OUTCOME_LOST
        assert "did not end after its 0.05 s" in said.content
        assert server.cancelled == [request.call_id]


async def test_a_server_that_dies_loses_its_hands_and_the_next_one_makes_new_ones(
    tmp_path: Path,
) -> None:
    at = tmp_path / "hand.sock"
    stopped = asyncio.Event()

    async def hangs(
        request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        yield output(0, b"up")
        stopped.set()
        await asyncio.sleep(PATIENCE)

    kind = SocketType("echo", at)
    async with asyncio.timeout(PATIENCE * 2):
        first = serving(at, Least(hangs))
        await first.__aenter__()
        async with open_place(tmp_path / "state", more={"echo": kind}) as here:
            hand_id = await here.hand(type="echo")
            calling = here.begin(here.request(hand_id, "say", text="hello"))
            await stopped.wait()
            await first.__aexit__(None, None, None)
            said = await calling.result()
            assert said.outcome == pb.OUTCOME_LOST
            assert (await here.service.probe(pb.ProbeRequest(type="echo"))).reason
            async with serving(at, Least()):
                await until(at.exists, "it serves again")
                another = await _made(here)
                assert (await here.run(another, "say", text="new")).content == "new"


async def test_while_its_server_is_down_a_hand_is_refused_with_what_to_start_and_none_is_left(
    tmp_path: Path,
) -> None:
    at = tmp_path / "hand.sock"
    kind = SocketType("echo", at)
    up = serving(at, Least())
    await up.__aenter__()
    async with open_place(tmp_path / "state", more={"echo": kind}) as here:
        await up.__aexit__(None, None, None)
        with pytest.raises(CarpalError, match="the hand did not start") as raised:
            await here.hand(type="echo")
        assert raised.value.action == f"start the server at {at}, on its machine"
        listed = await here.service.list_hands(pb.ListHandsRequest())
        assert not listed.hands, "a hand that never was is said to be lost"
        async with serving(at, Least()):
            assert await here.hand(type="echo")


async def _made(here: Place) -> str:
    """A hand, once the daemon's connection is there again."""
    while True:
        try:
            return await here.hand(type="echo")
        except CarpalError as error:
            if error.reason is not Reason.PROVISION_FAILED:
                raise
            await asyncio.sleep(A_MOMENT)


@pytest.mark.parametrize("replays", [True, False])
async def test_after_a_restart_of_the_daemon_a_call_is_attached_to_where_the_server_keeps_it(
    tmp_path: Path, replays: bool
) -> None:
    going, go = asyncio.Event(), asyncio.Event()

    async def waits(
        request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        yield output(0, b"up")
        going.set()
        await go.wait()
        yield output(2, b"down")
        yield result("up and down")

    server = Replaying(waits) if replays else Least(waits)
    at = tmp_path / "hand.sock"
    async with asyncio.timeout(PATIENCE), serving(at, server):
        more = {"echo": SocketType("echo", at)}
        async with open_place(tmp_path / "state", more=more, end=False) as here:
            hand_id = await here.hand(type="echo")
            request = here.request(hand_id, "say", text="hello")
            watched = here.begin(request)
            await going.wait()
            await watched.leave()
        more = {"echo": SocketType("echo", at)}
        async with open_place(tmp_path / "state", more=more) as here:
            go.set()
            said = (await here.steps(request))[-1].result
            if replays:
                assert (said.outcome, said.content) == (pb.OUTCOME_OK, "up and down")
                assert isinstance(server, Replaying)
                await until(lambda: server.acknowledged == [request.call_id], "acknowledged")
            else:
                assert said.outcome == pb.OUTCOME_INTERRUPTED
            assert len(server.asked) == 1


async def test_a_call_that_a_server_held_and_then_denies_may_have_partly_happened(
    tmp_path: Path,
) -> None:
    going = asyncio.Event()

    async def waits(
        request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        going.set()
        await asyncio.Event().wait()
        yield result()

    class Denying(Replaying):
        denies = False

        async def Execute(
            self, request: pb.ExecuteRequest, context: Context
        ) -> AsyncIterator[pb.ExecuteResponse]:
            if self.denies:
                await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such call")
            async for step in super().Execute(request, context):
                yield step

    server, at = Denying(waits), tmp_path / "hand.sock"
    async with asyncio.timeout(PATIENCE), serving(at, server):
        more = {"echo": SocketType("echo", at)}
        async with open_place(tmp_path / "state", more=more, end=False) as here:
            request = here.request(await here.hand(type="echo"), "say", text="hello")
            watched = here.begin(request)
            await going.wait()
            await watched.leave()
        server.denies = True
        more = {"echo": SocketType("echo", at)}
        async with open_place(tmp_path / "state", more=more) as here:
            said = (await here.steps(request))[-1].result
            assert said.outcome == pb.OUTCOME_INTERRUPTED
            assert "may have partly happened" in said.content


async def test_a_hand_is_not_called_ended_while_its_server_says_that_it_is_not(
    tmp_path: Path,
) -> None:
    class Keeping(Least):
        keeps = True

        async def Release(self, request: pb.ReleaseRequest, context: object) -> pb.ReleaseResponse:
            return pb.ReleaseResponse(ended=not self.keeps)

    going = asyncio.Event()

    async def waits(
        request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        going.set()
        await asyncio.Event().wait()
        yield result()

    server = Keeping(waits)
    async with place(tmp_path, server) as here:
        hand_id = await here.hand(type="echo")
        call = here.begin(here.request(hand_id, "say", text="hello"))
        await going.wait()
        with pytest.raises(CarpalError, match="it says that it has not ended"):
            await here.release(hand_id)
        said = await call.result()
        assert said.outcome == pb.OUTCOME_INTERRUPTED
        assert "may still run" in said.content
        server.keeps = False
        assert await here.release(hand_id)


async def test_of_a_server_that_makes_a_hand_with_ever_more_words_so_many_are_told(
    tmp_path: Path,
) -> None:
    class Talking(Least):
        async def Provision(
            self, request: pb.ProvisionRequest, context: object
        ) -> AsyncIterator[pb.ProvisionResponse]:
            self.hands[request.hand_id] = request
            for number in range(3000):
                words = pb.ProvisionProgress(message=f"step {number}")
                yield pb.ProvisionResponse(progress=words)
            yield pb.ProvisionResponse(result=pb.ProvisionResult(note="It is there."))

    async with place(tmp_path, Talking()) as here:
        request = pb.ProvisionRequest(driver=here.driver(), hand_id="h", type="echo")
        steps = [step async for step in here.service.provision(request)]
        assert steps[-1].result.note == "It is there."
        assert steps[999].progress.message == "step 999"
        assert [each.progress.message for each in steps[1000:-1]] == [
            "[it says more, which is left out]"
        ]


async def test_a_hand_whose_brain_is_gone_too_long_is_lost_and_released(tmp_path: Path) -> None:
    server = Least()
    async with place(tmp_path, server) as here:
        hand_id = await here.hand(type="echo", deadline=1.0)
        await until(lambda: not server.hands, "the server was told to release it")
        row = here.journal.hand(hand_id)
        assert row is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tools": []}, "no list of 1 to 128 tools"),
        ({"schema": b"{"}, "is no JSON"),
        ({"schema": b'{"type": "string"}'}, "not that of an object"),
        (
            {"schema": b'{"type": "object", "properties": {"a": {"type": ["string", "null"]}}}'},
            "has as its type not one of",
        ),
        ({"name": "other"}, ""),
    ],
)
async def test_a_server_that_says_nothing_of_use_of_its_type_makes_no_hand_and_says_why(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    server = Least()
    if "tools" in change:
        del server.info.tools[:]
    if "schema" in change:
        server.info.tools[0].input_schema = change["schema"]  # type: ignore[assignment]
    if "name" in change:
        server.info.type = "other"  # the only one there: it is meant
    async with place(tmp_path, server) as here:
        health = await here.service.probe(pb.ProbeRequest(type="echo"))
        assert words in health.reason
        assert (health.state == pb.PROBE_STATE_READY) == (not words)


async def test_a_socket_where_nobody_listens_is_said_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hands.builtin.socket._START", A_MOMENT)
    at = tmp_path / "none.sock"
    async with open_place(tmp_path / "state", more={"echo": SocketType("echo", at)}) as here:
        health = await here.service.probe(pb.ProbeRequest(type="echo"))
        assert health.state == pb.PROBE_STATE_BROKEN
        assert "start its server, then restart the daemon" in health.reason


@pytest.mark.parametrize(
    ("name", "path", "words"),
    [
        ("process", "/run/a.sock", "sockets.process: a hand type of that name is installed"),
        ("a b", "/run/a.sock", "sockets.a b: no such name"),
        ("a", "run/a.sock", "sockets.a: 'run/a.sock' is no absolute path"),
        ("a", "/" + "x" * 108, "sockets.a: "),
    ],
)
def test_a_wrong_socket_in_the_settings_is_named(name: str, path: str, words: str) -> None:
    with pytest.raises(CarpalError) as raised:
        types.installed(sockets={name: Path(path)})
    assert raised.value.message.startswith(words)


async def test_a_limit_is_refused_where_the_server_does_not_say_that_it_keeps_it(
    tmp_path: Path,
) -> None:
    async with place(tmp_path, Least()) as here:
        with pytest.raises(CarpalError) as raised:
            await here.hand(type="echo", limits={"memory_bytes": 1 << 30})
        assert raised.value.reason is Reason.LIMIT_NOT_ENFORCEABLE
