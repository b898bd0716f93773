"""A type that claims `events` or `tunnel` is held to it, whoever serves it, and told if it lied."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from carpal.server import serve_locally
from carpal.v1 import hand_pb2 as pb
from carpal.v1 import hand_pb2_grpc
from hands.conformance.group import Verdict
from hands.conformance.run import judge
from hands.conformance.subject import Subject, subject_at
from hands.conformance.suite import CHECKS
from hands.inventory import Inventory
from hands.owner.gate import Gate
from hands.owner.policy_file import PolicyFile
from hands.service import HandService
from hands.serving import HandServicer
from tests.hands.conformance.test_foreign import LONG, PLAIN, Stops
from tests.hands.conformance.wrong import WORKSPACE
from tests.hands.hand_server import serving
from tests.hands.place import open_place
from tests.hands.plugins.written import Plugins
from tests.pace import SCALE

SAYS = ("say", {"text": "ring"})
PYTHON = """
class It(HandType):
    'A bell.'

    @tool()
    def ring(self, context: Context, loud: bool = True) -> str:
        'Rings.'
        if loud:
            context.event('rang', {})
        return 'done'
"""


class Speaks(Stops):
    """It says what it was told, unasked too, until that is heard."""

    kind = "said"

    def __init__(self) -> None:
        super().__init__()
        self.info.capabilities.append("events")
        self.events: dict[str, pb.EventsResponse] = {}

    async def Execute(self, request: pb.ExecuteRequest, context: Any) -> AsyncIterator[Any]:
        text = json.loads(request.input)["text"]
        if text == "ring":
            said = pb.EventsResponse(event_id=request.call_id, kind=self.kind, data=b"{}")
            self.events[request.call_id] = said
        async for step in super().Execute(request, context):
            yield step

    async def Events(
        self, request: pb.EventsRequest, context: object
    ) -> AsyncIterator[pb.EventsResponse]:
        for key in request.acknowledged:
            self.events.pop(key.event_id, None)
        for each in self.events.values():
            yield each


class SpeaksNot(Stops):
    def __init__(self) -> None:
        super().__init__()
        self.info.capabilities.append("events")


class IsSilent(Speaks):
    async def Events(
        self, request: pb.EventsRequest, context: object
    ) -> AsyncIterator[pb.EventsResponse]:
        await asyncio.Event().wait()
        yield pb.EventsResponse()


class SaysItOnce(Speaks):
    async def Events(
        self, request: pb.EventsRequest, context: object
    ) -> AsyncIterator[pb.EventsResponse]:
        async for each in super().Events(request, context):
            yield each
        self.events.clear()


class SaysItForever(Speaks):
    async def Events(
        self, request: pb.EventsRequest, context: object
    ) -> AsyncIterator[pb.EventsResponse]:
        async for each in super().Events(pb.EventsRequest(), context):
            yield each


class SaysItWrongly(Speaks):
    kind = "Rang It"


class CannotBeEntered(Stops):
    def __init__(self) -> None:
        super().__init__()
        self.info.capabilities.append("tunnel")


@asynccontextmanager
async def daemons(
    inventory: Inventory, kind: type[HandServicer] = HandServicer
) -> AsyncIterator[Path]:
    """The socket of a daemon's own service."""
    with tempfile.TemporaryDirectory(prefix="carpal-") as folder:
        socket = Path(folder) / "socket"
        servicer = kind(HandService(inventory, "d", WORKSPACE))
        async with serve_locally(
            socket, lambda server: hand_pb2_grpc.add_HandServicer_to_server(servicer, server)
        ):
            yield socket


async def judged(name: str, about: Subject) -> Verdict:
    (check,) = [one for one in CHECKS if one.name == name]
    async with asyncio.timeout(60 * SCALE):
        return await judge(check, about, SCALE)


SPOKEN, ASKED = "says_until_it_is_heard", "asked_what_it_says"


@pytest.mark.parametrize("name", [SPOKEN, ASKED])
async def test_a_server_that_speaks_passes(name: str, tmp_path: Path) -> None:
    at = tmp_path / "hand.sock"
    async with serving(at, Speaks()):
        about = await subject_at(at, None, {}, None, PLAIN, long=LONG, says=SAYS)
        assert (await judged(name, about)).verdict == "pass"


@pytest.mark.parametrize(
    ("kind", "name", "detail", "change"),
    [
        (SpeaksNot, ASKED, "Events not built", "Serve Events, or take the capability"),
        (SpeaksNot, SPOKEN, "Events not built", "Serve Events, or take the capability"),
        (IsSilent, SPOKEN, "nothing was said within", "or take `events` out of the capab"),
        (SaysItOnce, SPOKEN, "what is said again: [], not", "is not in `acknowledged` again"),
        (SaysItForever, SPOKEN, "said after it was acknowledged: ['call_", "Forget an event"),
        (SaysItWrongly, SPOKEN, "its kind is 'Rang It'", "a kind of a-z"),
        (CannotBeEntered, "person_in", "Tunnel not built", "Serve Tunnel, or take the cap"),
        (CannotBeEntered, "nobody_in_no_hand", "not built", "Serve Tunnel, or take the cap"),
    ],
)
async def test_a_server_that_claims_falsely_is_told_what_to_change(
    kind: type[Stops], name: str, detail: str, change: str, tmp_path: Path
) -> None:
    at = tmp_path / "hand.sock"
    async with serving(at, kind()):
        about = await subject_at(at, None, {}, None, PLAIN, long=LONG, says=SAYS)
        verdict = await judged(name, about)
    assert verdict.verdict == "fail", verdict
    assert detail in verdict.detail
    assert change in verdict.change


async def test_without_a_call_that_has_it_speak_the_check_says_how_to_give_one(
    tmp_path: Path,
) -> None:
    at = tmp_path / "hand.sock"
    async with serving(at, Speaks()):
        verdict = await judged(SPOKEN, await subject_at(at, None, {}, None, PLAIN, long=LONG))
    assert verdict.verdict == "skipped"
    assert "say one with --says" in verdict.detail


async def test_a_python_type_can_say_something_unasked_and_must_where_one_says_that_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = Plugins(tmp_path / "plugins", monkeypatch)
    async with (
        plugins.place(plugins.write("bell", PYTHON)) as place,
        daemons(place.inventory) as at,
    ):
        about = await subject_at(at, "bell", {}, says=("ring", {}))
        assert "events" in about.capabilities
        for name in (SPOKEN, ASKED):
            assert (await judged(name, about))[2:] == ("pass", "", "")
        about = await subject_at(at, "bell", {}, says=("ring", {"loud": False}))
        verdict = await judged(SPOKEN, about)
    assert verdict.verdict == "fail"
    assert "or in Python by context.event" in verdict.change


class TellsNoCode(HandServicer):
    async def Tunnel(  # type: ignore[override]
        self, request_iterator: Any, context: Any
    ) -> None:
        await super().Tunnel(request_iterator, _Without(context))


class _Without:
    """Its end without the exit code."""

    def __init__(self, context: Any) -> None:
        self._context = context

    async def write(self, said: pb.TunnelResponse) -> None:
        if said.HasField("end"):
            said.end.ClearField("exit_code")
        await self._context.write(said)


class LetsCallsRun(HandServicer):
    async def Tunnel(  # type: ignore[override]
        self, request_iterator: Any, context: Any
    ) -> None:
        async def without() -> AsyncIterator[pb.TunnelRequest]:
            async for each in request_iterator:
                if each.HasField("open"):
                    each.open.take = False
                yield each

        await super().Tunnel(without(), context)


@pytest.mark.parametrize(
    ("kind", "name", "detail"),
    [
        (HandServicer, "person_in", ""),
        (HandServicer, "taken", ""),
        (TellsNoCode, "person_in", "its exit code: 0, not 3"),
        (LetsCallsRun, "taken", "a call ran while a person had control"),
    ],
)
async def test_a_hand_that_a_person_can_enter_is_held_to_it(
    kind: type[HandServicer], name: str, detail: str, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('people = ["shell", "copy", "forward", "control"]\n')
    async with (
        open_place(tmp_path / "state", gate=Gate(PolicyFile(policy))) as place,
        daemons(place.inventory, kind) as at,
    ):
        verdict = await judged(name, await subject_at(at, "process", {}))
    assert verdict.verdict == ("fail" if detail else "pass"), verdict
    assert detail in verdict.detail
