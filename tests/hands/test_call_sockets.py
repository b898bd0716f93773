"""`carpal hand call` on a server of somebody's own, as whoever writes one uses it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from carpal.v1 import hand_pb2 as pb
from hands import calling
from hands.builtin.socket import SocketType
from hands.local.notes import noted
from hands.local.routes import routes
from hands.local.server import answering
from tests.command import Command, Ended
from tests.hands.hand_server import Context, Least, result, serving
from tests.hands.local.test_beside import folder_of, standing_of
from tests.hands.place import open_place
from tests.hands.test_socket_units import Phones
from tests.pace import SCALE

SAY = ("echo", "say", '{"text": "hello"}')


async def called(tmp_path: Path, server: Least, *arguments: str) -> Ended:
    """A call on it, by its socket, once the server serves."""
    at = tmp_path / "hand.sock"
    async with serving(at, server):
        return await Command(tmp_path)("hand", "call", "--endpoint", f"unix://{at}", *arguments)


def configured(command: Command, tmp_path: Path, at: Path) -> tuple[str, str]:
    """The flag that names a hand.toml with the server in it."""
    toml = tmp_path / "hand.toml"
    toml.write_text(f'[sockets]\necho = "{at}"\n')
    return "--config", str(toml)


async def test_a_call_may_take_longer_than_a_hand_lives_without_its_brain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def works(
        request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        await asyncio.sleep(1.6)  # longer than the orphan deadline: that is all there is to it
        yield result("dug")

    monkeypatch.setattr(calling, "_ORPHAN", 1)
    at = tmp_path / "hand.sock"
    asked = calling.Asked(type="echo", tool="say", given=b'{"text": "a"}', time_limit=60)
    notes: list[str | bytes] = []
    async with serving(at, Least(works)), asyncio.timeout(30 * SCALE):
        kind = {"echo": SocketType("echo", at)}
        said, left, _ = await calling.call(kind, asked, note=notes.append, output=notes.append)
    assert (said.outcome, said.content) == (pb.OUTCOME_OK, "dug")
    assert not left


class NeverEnds(Least):
    async def Release(self, request: pb.ReleaseRequest, context: object) -> pb.ReleaseResponse:
        return pb.ReleaseResponse()


async def test_a_release_that_ends_nothing_is_said_after_the_result_with_what_to_change(
    tmp_path: Path,
) -> None:
    ended = await called(tmp_path, NeverEnds(), *SAY)
    assert (ended.code, ended.stdout) == (1, "hello\n")
    assert "says that it has not ended" in ended.stderr
    assert "have Release end the hand and answer `ended: true`" in ended.stderr
    for word in ("Traceback", "this is a bug"):
        assert word not in ended.stderr


class MakesNone(Least):
    async def Provision(
        self, request: pb.ProvisionRequest, context: object
    ) -> AsyncIterator[pb.ProvisionResponse]:
        if request.hand_id:
            raise RuntimeError("of its own")
        yield pb.ProvisionResponse()


class NoPhones(Phones):
    def __init__(self) -> None:
        super().__init__()
        del self.info.units[:]


class MakesNoneAndEndsNone(MakesNone, NeverEnds):
    pass


@pytest.mark.parametrize("kind", [MakesNone, MakesNoneAndEndsNone])
async def test_a_hand_that_cannot_be_made_is_said_in_words(
    kind: type[Least], tmp_path: Path
) -> None:
    ended = await called(tmp_path, kind(), *SAY)
    assert (ended.code, ended.stdout) == (1, "")
    assert "the hand did not start: echo: " in ended.stderr
    for word in ("Traceback", "this is a bug"):
        assert word not in ended.stderr


class Refuses(Least):
    async def Execute(
        self, request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        if request.call_id:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such hand")
        yield result()


async def test_a_bare_status_is_told_by_its_own_words(tmp_path: Path) -> None:
    ended = await called(tmp_path, Refuses(), *SAY)
    assert ended.code == 1
    assert "did not take the call: there is no such hand" in ended.stdout


async def test_where_nobody_listens_one_is_told_to_start_the_server_and_nothing_of_a_daemon(
    tmp_path: Path,
) -> None:
    endpoint = f"unix://{tmp_path}/none.sock"
    ended = await Command(tmp_path)("hand", "call", "--endpoint", endpoint, *SAY)
    assert (ended.code, ended.stdout) == (3, "")
    assert f"the hand server at {tmp_path}/none.sock does not answer" in ended.stderr
    assert ended.stderr.rstrip().endswith("start your server first")
    assert "daemon" not in ended.stderr


async def test_a_server_that_hand_toml_names_is_called_by_that_name(tmp_path: Path) -> None:
    at, command = tmp_path / "hand.sock", Command(tmp_path)
    async with serving(at, Least()):
        ended = await command("hand", "call", *configured(command, tmp_path, at), *SAY)
    assert (ended.code, ended.stdout) == (0, "hello\n")


async def test_of_a_name_that_nobody_has_the_answer_says_where_it_could_come_from(
    tmp_path: Path,
) -> None:
    command = Command(tmp_path)
    flags = configured(command, tmp_path, tmp_path / "hand.sock")
    ended = await command("hand", "call", *flags, "lantern", "say")
    assert ended.code == 5
    assert "no hand type 'lantern' is installed here; there is " in ended.stderr
    assert "echo" in ended.stderr
    assert "--endpoint" in ended.stderr
    assert "[sockets]" in ended.stderr


async def test_a_name_that_is_no_type_of_the_endpoints_server_is_refused_with_those_it_has(
    tmp_path: Path,
) -> None:
    ended = await called(tmp_path, Least(), "eko", "say", '{"text": "hello"}')
    assert (ended.code, ended.stdout) == (5, "")
    assert "it has no hand type 'eko'; it has echo" in ended.stderr


async def test_of_units_that_a_daemon_has_by_another_name_a_call_and_the_checks_take_none(
    tmp_path: Path,
) -> None:
    at, state, server = tmp_path / "hand.sock", tmp_path / "daemons", Phones()
    command, endpoint = Command(tmp_path), ("--endpoint", f"unix://{tmp_path / 'hand.sock'}")
    async with (
        serving(at, server),
        open_place(state, more={"rack": SocketType("rack", at)}) as place,
        answering(folder_of(state), routes(standing_of(place))),
    ):
        with noted(state, {"rack": at}):
            for words in (("call", *endpoint, *SAY), ("check", *endpoint)):
                ended = await command("hand", *words)
                assert ended.code == 3, ended
                assert f"the daemon of {state} gives units of type 'echo' to hands" in ended.stderr
                assert server.log == []
        assert (await command("hand", "call", *endpoint, *SAY)).stdout == "hello\n"


async def test_where_no_daemon_is_none_of_its_logs_and_units_is_named_as_what_to_do(
    tmp_path: Path,
) -> None:
    phones = Phones()
    phones.fails = "its screen is broken"
    del phones.info.units[1:]
    for server, words in (
        (MakesNone(), "echo: "),
        (phones, "could not be reset, and is quarantined: its reset failed: its screen is broken"),
        (NoPhones(), "no unit of 'echo' is there now"),
    ):
        ended = await called(tmp_path, server, *SAY)
        assert ended.code != 0
        assert words in ended.stderr
        for word in ("daemon", "hand units"):
            assert word not in ended.stderr
