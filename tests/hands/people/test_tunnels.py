"""People in a daemon's hands, over a real link: who may enter, what waits, and what is left."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from brain.daemons.meeting import FAILED, Meeting
from carpal.audit_files import AuditFiles
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.status import Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from hands.inside import tree
from hands.owner.audit import Audit
from hands.owner.gate import Gate
from hands.owner.policy_file import PolicyFile
from hands.people.tunnel_records import Record
from tests.hands.fake_brain import Asked, FakeBrain
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE, open_place, until
from tests.hands.test_relink import Linking
from tests.pki import Pki

FLOOD = "cat /dev/zero"


@pytest.fixture
async def machine(machine: Machine, tmp_path: Path) -> AsyncIterator[Machine]:
    """The machine, whose owner lets people in, with its daemon running."""
    policy = tmp_path / "policy.toml"
    policy.write_text('people = ["shell", "forward", "control"]\nredact = ["hunter[0-9]"]\n')
    async with machine.daemon(policy=policy):
        yield machine


@pytest.fixture
async def asked(machine: Machine, one: FakeBrain) -> Asked:
    """The link, and a hand `h`."""
    linked = await one.link()
    await linked.provision("h")
    return linked


def opening(tunnel_id: str, kind: str = "shell", **more: Any) -> hand_pb2.TunnelOpen:
    """A person's wish."""
    options = more.pop("options", {})
    return hand_pb2.TunnelOpen(
        **{
            "hand_id": "h",
            "operator": "spiffe://t/operator/o",
            "kind": kind,
            "options": json.dumps(options).encode(),
            "session_id": "s",
            "workspace": "default",
            "tunnel_id": tunnel_id,
            **more,
        }
    )


@asynccontextmanager
async def inside(asked: Asked, wish: hand_pb2.TunnelOpen) -> AsyncIterator[Meeting]:
    """A tunnel that has begun."""
    async with asked.link.tunnel(wish, "spiffe://t/brain/b") as meeting:
        await meeting.out.put(hand_pb2.TunnelRequest(open=wish))
        async with asyncio.timeout(PATIENCE):
            first = await meeting.back.get()
        assert first is not None
        assert first.HasField("opened")
        yield meeting


async def to_the_end(meeting: Meeting) -> tuple[bytes, bytes, hand_pb2.TunnelEnd]:
    """All that comes."""
    data = error = b""
    async with asyncio.timeout(PATIENCE):
        while (said := await meeting.back.get()) is not None:
            data, error = data + said.data, error + said.error
            if said.HasField("end"):
                return data, error, said.end
    raise AssertionError("no end")


async def refused(asked: Asked, wish: hand_pb2.TunnelOpen) -> CarpalError:
    """Why somebody is not let in."""
    with pytest.raises(CarpalError) as caught:
        async with asked.link.tunnel(wish, "b"):
            pass
    return caught.value


async def listed(asked: Asked) -> list[hand_pb2.TunnelInfo]:
    """What the daemon has to tell of tunnels."""
    answer = await asked.ask(list_hands=hand_pb2.ListHandsRequest())
    return list(answer.list_hands.tunnels)


@pytest.mark.parametrize(
    "kept",
    ['people = ["forward"]', 'people = ["shell"]', 'people = ["shell", "control"]\ntypes = []'],
)
async def test_whom_the_owner_allows_no_more_is_out_at_once_and_told_why(
    one: FakeBrain, tmp_path: Path, pki: Pki, kept: str
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('people = ["shell", "forward", "control"]\n')
    gate = Gate(PolicyFile(policy), Audit(tmp_path))
    async with open_place(tmp_path / "state", gate=gate) as place:
        shown = pki.issue(Role.DAEMON, "d", directory=pki.root / "it")
        async with Linking(place, shown, one).running():
            asked = await one.link()
            await asked.provision("h")
            wish = opening("t1", take=True, options={"command": "echo $$; exec sleep 1000"})
            stands = opening("t2", kind="forward")
            async with inside(asked, wish) as shell, inside(asked, stands) as forward:
                async with asyncio.timeout(PATIENCE):
                    started = await shell.back.get()
                assert started is not None
                policy.write_text(kept)
                gate.reload()
                _, _, end = await to_the_end(shell)
                assert end.problem.startswith("the machine's owner ended it: ")
                assert str(policy) in end.problem
                if "forward" not in kept:
                    assert "owner ended it" in (await to_the_end(forward))[2].problem
                else:
                    assert not forward.back.over
                    await forward.out.put(hand_pb2.TunnelRequest(end=hand_pb2.TunnelEnd()))
            await until(lambda: tree.find(int(started.data)) is None, "the shell is still there")
    gate.close()
    left = [json.loads(text) for _, text in AuditFiles(tmp_path).lines()]
    [told] = [each for each in left if each["what"] == "left" and each["tunnel"] == "t1"]
    assert "the machine's owner ended it" in told["because"]


async def test_a_person_is_refused_by_what_is_wrong_and_calls_go_on(
    machine: Machine, asked: Asked
) -> None:
    for wish, reason in (
        (opening("t1", hand_id="other"), Reason.HAND_NOT_FOUND),
        (opening("t1", session_id="other"), Reason.HAND_NOT_FOUND),
        (opening("t1", workspace="other"), Reason.POLICY_FORBIDS),
        (opening("t1", kind="copy", options={"from": "x"}), Reason.POLICY_FORBIDS),
        (opening("t1", options={"x": 1}), Reason.INVALID_FIELD),
        (opening("t1", kind="forward", options={"port": 1}), Reason.INVALID_FIELD),
        (opening("../t"), Reason.INVALID_FIELD),
    ):
        assert (await refused(asked, wish)).reason is reason, wish
    assert await listed(asked) == []


async def test_what_a_hand_words_is_for_the_person_and_in_no_log(
    machine: Machine, asked: Asked
) -> None:
    wish = opening("c", "forward", within="t", options={"port": 1})
    async with inside(asked, opening("t", "forward")):
        async with inside(asked, wish) as meeting:
            _, _, end = await to_the_end(meeting)
            assert "nothing answers at port 1" in end.problem
        assert meeting.because == FAILED

    def left() -> list[str]:
        told = [json.loads(text) for _, text in AuditFiles(machine.files.folder).lines()]
        return [each["because"] for each in told if each["what"] == "left"]

    await until(lambda: len(left()) == 2, "both are in the audit")
    assert FAILED in left()
    assert "port 1" not in str(left())


async def test_who_a_person_is_takes_no_more_room_than_a_name(
    machine: Machine, asked: Asked
) -> None:
    for more in ({"operator": "o" * 5000}, {"hand": "h" * 5000}):
        error = await refused(asked, opening("t", **more))
        assert (error.reason, error.fields["field"]) == (Reason.INVALID_FIELD, next(iter(more)))


async def test_nothing_happens_in_a_hand_before_the_log_has_it(
    machine: Machine, asked: Asked
) -> None:
    before = (machine.files.hands / "h/workspace/x").exists()
    async with asked.link.tunnel(opening("t", options={"command": "touch x"}), "b"):
        await asked.ask(list_hands=hand_pb2.ListHandsRequest())
    assert not before
    await until_settled(asked)
    assert not (machine.files.hands / "h/workspace/x").exists()


async def until_settled(asked: Asked) -> None:
    """Until every tunnel is over at the daemon, which announces that to nobody."""
    async with asyncio.timeout(PATIENCE):
        while not all(each.HasField("ended") for each in await listed(asked)):
            pass  # each is a round trip


async def test_calls_that_have_not_begun_wait_while_a_person_has_control(
    machine: Machine, asked: Asked
) -> None:
    async with inside(asked, opening("t", take=True)) as meeting:
        call = asyncio.create_task(asked.ask(execute=asked.call("h", "c1", "cat from-the-person")))
        other = await refused(asked, opening("t2", take=True))
        assert other.reason is Reason.HAND_TAKEN
        assert "operator o has control of hand 'h'" in other.message
        assert "--beside" in other.action
        said = hand_pb2.TunnelRequest(data=b"sleep 0.2; echo x > from-the-person; exit 3\n")
        await meeting.out.put(said)
        data, error, end = await to_the_end(meeting)
        assert (data, error, end.exit_code) == (b"", b"", 3)
    async with asyncio.timeout(PATIENCE):
        reply = await call
    assert reply.execute.result.content == "x\n"
    [told] = await listed(asked)
    assert (told.tunnel_id, told.took, told.because) == ("t", True, "they left")
    await asked.ask(settle_tunnels=pb.SettleTunnelsRequest(tunnel_ids=["t"]))
    assert await listed(asked) == []


async def test_of_a_call_that_a_person_was_beside_nobody_claims_to_know_its_files(
    machine: Machine, asked: Asked
) -> None:
    await asked.ask(execute=asked.call("h", "c0", "echo > zero"))
    async with inside(asked, opening("t")) as meeting:
        reply = await asked.ask(execute=asked.call("h", "c1", "echo > one"))
        assert reply.execute.result.files_unknown
        await meeting.out.put(hand_pb2.TunnelRequest(data=b"echo > mine; exit\n"))
        await to_the_end(meeting)
    reply = await asked.ask(execute=asked.call("h", "c2", "echo > two"))
    assert [each.path for each in reply.execute.result.files] == ["two"]
    assert not reply.execute.result.files_unknown


async def test_who_reads_nothing_delays_no_call_no_heartbeat_and_no_other_tunnel(
    machine: Machine, one: FakeBrain, asked: Asked
) -> None:
    async with inside(asked, opening("slow", options={"command": FLOOD})) as slow:
        await asyncio.sleep(0.3)  # until all that is between is full
        beats = len(one.beats)
        async with inside(asked, opening("quick", options={"command": "echo hi"})) as quick:
            assert (await to_the_end(quick))[0] == b"hi\n"
        reply = await asked.ask(execute=asked.call("h", "c", "echo there"))
        assert reply.execute.result.content == "there\n"
        await until(lambda: len(one.beats) > beats + 2, "heartbeats stopped")
        said = await slow.back.get()
        assert said is not None
        assert set(said.data) == {0}
        assert len(said.data) <= 192 * 1024
    await until_settled(asked)
    assert not [pid for pid in tree.everyone() if _is(pid, b"cat\0/dev/zero\0")]


async def test_what_comes_fast_comes_in_large_pieces(machine: Machine, asked: Asked) -> None:
    wish = opening("t", options={"command": "head -c 20000000 /dev/zero"})
    async with inside(asked, wish) as meeting:
        sizes = []
        async with asyncio.timeout(PATIENCE):
            while (said := await meeting.back.get()) is not None and not said.HasField("end"):
                sizes.append(len(said.data))
    assert sum(sizes) == 20_000_000
    assert len(sizes) < 1_000, "a message costs what it costs, whatever is in it"


async def test_what_the_owner_redacts_is_masked_also_across_pieces(
    machine: Machine, asked: Asked
) -> None:
    command = "printf 'a hunt'; sleep 0.2; printf 'er2 b hunter\\n'; printf 'hunter3' >&2"
    async with inside(asked, opening("t", options={"command": command})) as meeting:
        data, error, _ = await to_the_end(meeting)
    assert (data, error) == (b"a ******* b hunter\n", b"*******")


async def test_why_a_tunnel_ended_is_told_to_a_later_brain_as_the_owner_lets_words_leave(
    tmp_path: Path,
) -> None:
    (tmp_path / "policy.toml").write_text('redact = ["hunter[0-9]"]')
    async with open_place(tmp_path, gate=Gate(PolicyFile(tmp_path / "policy.toml"))) as place:
        records = place.service.tunnels.records
        records.begin(Record("t", "s", "h", "shell", "spiffe://t/operator/o", "copy", False, 1.0))
        records.end("t", "no file /hunter2")
        (told,) = (await place.service.list_hands(hand_pb2.ListHandsRequest())).tunnels
        assert told.because == "no file /[redacted]"


async def test_when_the_link_ends_so_does_all_that_the_person_started(
    machine: Machine, one: FakeBrain, asked: Asked
) -> None:
    async with inside(asked, opening("t", take=True)) as meeting:
        await meeting.out.put(hand_pb2.TunnelRequest(data=b"setsid sleep 987.65 & echo begun\n"))
        said = await meeting.back.get()
        assert said is not None
        assert said.data == b"begun\n"
        asked.link.end(None)
        with pytest.raises(CarpalError) as caught:
            await to_the_end(meeting)
        assert caught.value.reason is Reason.DAEMON_NOT_LINKED
    linked = await one.link()
    reply = await linked.ask(execute=linked.call("h", "c", "echo on"))
    assert reply.execute.result.content == "on\n"
    assert not [pid for pid in tree.everyone() if _is(pid, b"sleep\0987.65\0")]
    assert linked.link.hello.unsettled >= 1
    [told] = await listed(linked)
    assert told.HasField("ended")


def _is(pid: int, command_line: bytes) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == command_line
    except OSError:
        return False


async def test_a_hand_that_is_released_throws_people_out(machine: Machine, asked: Asked) -> None:
    async with inside(asked, opening("t", take=True)) as meeting:
        request = hand_pb2.ReleaseRequest(driver=asked.driver, hand_id="h")
        await asked.ask(release=request)
        _, _, end = await to_the_end(meeting)
        assert end.problem
