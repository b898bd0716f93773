"""The daemon over real mutual TLS: it links, answers, comes back, and stops in good order."""

import asyncio
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from carpal.errors import CarpalError, Unreachable, refuse
from carpal.proof import Token
from carpal.status import Code, Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from hands import app
from hands.enroll import Links, links_path
from hands.journal import Journal
from hands.local import asking
from tests.hands.fake_brain import Asked, FakeBrain, brain, next_reply
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE, let_go, until
from tests.pace import SCALE
from tests.pki import Pki


async def test_a_daemon_says_who_it_is_and_runs_calls_with_live_output(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        hello = asked.link.hello
        assert (hello.daemon_id, hello.labels["rack"]) == ("d", "7")
        assert [kind.type for kind in hello.types] == ["process"]
        assert hello.capacity.hands_max == 4
        result = await asked.provision("h")
        assert (result.journal_id, result.boot_id) == (hello.journal_id, hello.boot_id)
        replies = asked.execute("h", "c", "echo up; read x < go; echo done")
        machine.fifo()
        first = await next_reply(replies)
        assert (first.execute.output.data, first.last) == (b"up\n", False)
        await machine.let_go()
        assert (await next_reply(replies)).execute.output.data == b"done\n"
        last = await next_reply(replies)
        assert (last.execute.result.content, last.last) == ("up\ndone\n", True)
        await until(lambda: asked.link.capacity.hands == 1, "the brain was not told of the hand")


async def test_a_cut_link_stops_nothing_and_the_daemon_comes_back_l09(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        await asked.provision("h")
        machine.fifo()
        replies = asked.execute("h", "c", "echo up; read x < go; echo ran >> log; cat log")
        await next_reply(replies)
        asked.link.end(None)
        with pytest.raises(CarpalError):
            await next_reply(replies)
        again = await one.link()
        replies = again.execute("h", "c", "echo up; read x < go; echo ran >> log; cat log")
        assert (await next_reply(replies)).execute.output.data == b"up\n"
        await machine.let_go()
        async for reply in replies:
            last = reply
        assert last.execute.result.content == "up\nran\n"


async def test_s08_a_command_started_before_a_cut_is_readable_killable_and_finishes_after_it(
    machine: Machine, one: FakeBrain
) -> None:
    """S08: its output is complete from any offset, and nothing ambiguous is run again."""
    command = "echo ran >> log; echo up; read x < go; echo on; read x < then; cat log"
    async with machine.daemon():
        asked = await one.link()
        await asked.provision("h")
        await asked.provision("k")
        machine.fifo()
        # One of its own: the first may not be closed yet when it is opened again.
        then = machine.files.hands / "h/workspace/then"
        os.mkfifo(then)
        await next_reply(asked.execute("h", "c", command))
        doomed = "setsid sleep 61 & echo up; sleep 60"
        await next_reply(asked.execute("k", "d", doomed))
        asked.link.end(None)
        again = await one.link()
        # Readable: all of it, and from where it was read up to.
        replies = again.execute("h", "c", command)
        assert (await next_reply(replies)).execute.output.data == b"up\n"
        await machine.let_go()
        assert (await next_reply(replies)).execute.output.data == b"on\n"
        # Killable: the whole tree, with one result that has the output up to its death.
        cancel = hand_pb2.CancelRequest(driver=again.driver, hand_id="k", call_id="d")
        await again.ask(cancel=cancel)
        async with asyncio.timeout(PATIENCE):
            async for reply in again.execute("k", "d", doomed):
                last = reply
        assert last.execute.result.outcome == hand_pb2.OUTCOME_CANCELLED
        assert last.execute.result.content.startswith("up\n")
        # Finishes: once.
        await let_go(then)
        async for reply in replies:
            last = reply
        assert last.execute.result.content == "up\non\nran\n"


async def test_when_a_brain_dies_the_daemon_dials_another_it_was_told_of(
    machine: Machine, one: FakeBrain, pki: Pki
) -> None:
    async with brain(pki, "brain-2") as two:
        one.brains.append(two.address)
        async with machine.daemon():
            asked = await one.link()
            await asked.provision("h")
            one.admits = False
            two.epoch = one.epoch
            asked.link.end(None)
            listed = await (await two.link()).ask(list_hands=hand_pb2.ListHandsRequest())
            assert [info.hand_id for info in listed.list_hands.hands] == ["h"]
    kept = Links.load(links_path(machine.files.identity_dir))
    assert kept.brains == (two.address, one.address)


async def test_a_brain_that_drains_is_left_for_another_and_calls_go_on(
    machine: Machine, one: FakeBrain, pki: Pki
) -> None:
    async with brain(pki, "brain-2") as two:
        one.brains.append(two.address)
        async with machine.daemon():
            asked = await one.link()
            await asked.provision("h")
            machine.fifo()
            await next_reply(asked.execute("h", "c", "echo up; read x < go; echo done"))
            one.admits = False
            two.epoch = one.epoch
            asked.link.drain("deploy")
            again = await two.link()
            replies = again.execute("h", "c", "echo up; read x < go; echo done")
            await next_reply(replies)
            await machine.let_go()
            async for reply in replies:
                last = reply
            assert last.execute.result.content == "up\ndone\n"


async def test_a_brain_that_dies_while_it_drains_is_not_waited_for(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        asked.link.drain("deploy", 3600.0)
        await asked.ask(list_hands=hand_pb2.ListHandsRequest())
        asked.link.end(refuse(Reason.UNAVAILABLE, "it died"))
        await one.link()


async def test_an_unknown_request_is_answered_with_its_id_not_with_silence(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        unknown = pb.Request.FromString(b"\xfa\x07\x00")  # field 127, of a newer brain
        with pytest.raises(CarpalError) as caught:
            async for _ in asked.replies(unknown):
                pass
        assert caught.value.code == Code.UNIMPLEMENTED
        with pytest.raises(CarpalError) as caught:
            await asked.ask(transfer=hand_pb2.TransferRequest())
        assert caught.value.reason == Reason.NOT_BUILT


async def test_contact_counts_only_while_the_brains_own_lease_lives_l13(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        await asked.provision("h", deadline=1.0 * SCALE)
        for number in range(3):
            await _result(asked, f"c{number}", f"sleep {0.6 * SCALE}; echo on")
        one.lease_left = 0.0
        result = await _result(asked, "c", "sleep 60")
        assert result.outcome == hand_pb2.OUTCOME_LOST
        assert "orphan deadline" in result.content


async def _result(asked: Asked, call_id: str, command: str) -> hand_pb2.Result:
    async with asyncio.timeout(PATIENCE):
        async for reply in asked.execute("h", call_id, command):
            last = reply
    return last.execute.result


async def test_stopping_says_drain_and_goodbye_and_calls_go_on(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        await asked.provision("h")
        machine.fifo()
        replies = asked.execute("h", "c", "echo up; read x < go; echo ran >> log; cat log")
        await next_reply(replies)
    with pytest.raises(CarpalError):
        await next_reply(replies)  # the brain heard that the link ended
    assert asked.link.draining
    await machine.let_go()
    async with machine.daemon():
        again = await one.link()
        assert again.link.hello.instance_id != asked.link.hello.instance_id
        assert again.link.hello.journal_id == asked.link.hello.journal_id
        result = await _result(again, "c", "echo up; read x < go; echo ran >> log; cat log")
        assert result.content == "up\nran\n"


async def test_a_daemon_obeys_no_link_older_than_its_newest_l06(
    machine: Machine, one: FakeBrain
) -> None:
    one.epoch = 6
    async with machine.daemon():
        await (await one.link()).ask(list_hands=hand_pb2.ListHandsRequest())
    one.epoch = 4
    async with machine.daemon():
        for refused in (5, 6, 7):
            asked = await one.link()
            assert asked.link.hello.last_epoch == 7
            with pytest.raises(CarpalError):
                await asked.ask(list_hands=hand_pb2.ListHandsRequest())
            assert one.epoch == refused
        await (await one.link()).ask(list_hands=hand_pb2.ListHandsRequest())
    journal = Journal(machine.files.journal)
    assert journal.note("last_epoch") == "8"
    journal.close()


async def test_a_reader_that_left_ends_the_answer_and_not_the_call(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        await asked.provision("h")
        machine.fifo()
        replies = asked.link.call(
            pb.Request(execute=_execute(asked, "echo up; read x < go; echo ran > log"))
        )
        await next_reply(replies)
        await replies.aclose()
        await until(lambda: not asked.link._link.unfinished, "the answer goes on")
        await machine.let_go()
        result = await _result(asked, "c2", "cat log")
        assert result.content == "ran\n"


def _execute(asked: Asked, command: str) -> hand_pb2.ExecuteRequest:
    return hand_pb2.ExecuteRequest(
        driver=asked.driver,
        hand_id="h",
        call_id="c",
        name="bash",
        input=json.dumps({"command": command}).encode(),
    )


async def test_two_daemons_on_one_state_folder_are_refused(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        await one.link()
        with pytest.raises(CarpalError) as caught:
            await app.run(app.HandConfig(state_dir=machine.state), asyncio.Event())
        assert caught.value.reason == Reason.CONFIG_INVALID
        assert "another daemon" in caught.value.message


async def test_without_an_identity_it_says_to_enrol(tmp_path: Path) -> None:
    with pytest.raises(CarpalError) as caught:
        await app.run(app.HandConfig(state_dir=tmp_path), asyncio.Event())
    assert caught.value.reason == Reason.CONFIG_INVALID
    assert "enrol" in str(caught.value)


async def test_a_token_that_cannot_be_used_does_not_stop_one_with_a_valid_identity_l27(
    machine: Machine, one: FakeBrain
) -> None:
    for address in ("127.0.0.1:1", "127.0.0.1:2"):  # the enrolment's own, and one that is dead
        token = Token(address, (b"p" * 32,), "tok_1", b"s" * 32)
        async with machine.daemon(token=token):
            await one.link()


async def test_a_drained_daemon_takes_no_new_hands_until_it_is_lifted_also_after_a_restart_l14(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        await asked.provision("h")
        drained = await asked.ask(drain_hands=pb.DrainHandsRequest(reason="new disk"))
        assert (drained.drain_hands.capacity.draining, drained.drain_hands.capacity.hands) == (
            True,
            1,
        )
        assert (await _result(asked, "c1", "echo on")).content == "on\n", "its hands go on"
        with pytest.raises(CarpalError) as caught:
            await asked.provision("h2")
        assert caught.value.reason == Reason.AT_CAPACITY
        assert asked.link.open, "the link goes on"
    async with machine.daemon():
        again = await one.link()
        assert again.link.hello.capacity.draining
        assert (await _result(again, "c2", "echo on")).content == "on\n"
        lifted = await again.ask(drain_hands=pb.DrainHandsRequest(lift=True))
        assert not lifted.drain_hands.capacity.draining
        await again.provision("h2")


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("running", Reason.INTERNAL),
        ("running", Reason.STORE_FULL),
        ("starting", Reason.STORE_FULL),
        ("raise_epoch", Reason.STORE_FULL),
        ("acknowledged", Reason.STORE_FULL),
        ("tombstone", Reason.STORE_FULL),
        ("released", Reason.STORE_FULL),
    ],
)
async def test_a_journal_that_fails_ends_the_daemon_in_words_and_loses_no_call(
    machine: Machine,
    one: FakeBrain,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    reason: Reason,
) -> None:
    """Whatever step cannot be written: an answer would settle what was asked, and untruly."""
    full = reason is Reason.STORE_FULL

    def failing(*_: object) -> None:
        error = sqlite3.OperationalError("database or disk is full" if full else "disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL if full else sqlite3.SQLITE_IOERR
        raise error

    def asks(link: Asked) -> dict[str, Any]:
        about: dict[str, Any] = {"driver": link.driver, "hand_id": "h"}
        requests: dict[str, dict[str, Any]] = {
            "acknowledged": {"acknowledge": hand_pb2.AcknowledgeRequest(call_ids=["c"], **about)},
            "tombstone": {"cancel": hand_pb2.CancelRequest(call_id="late", **about)},
            "released": {"release": hand_pb2.ReleaseRequest(**about)},
        }
        call = link.call("h", "c", "echo ran >> log; cat log")
        return requests.get(step, {"execute": call})

    running = machine.daemon()
    await running.__aenter__()
    asked = await one.link()
    await asked.provision("h")
    if step == "acknowledged":
        await _result(asked, "c", "echo ran >> log; cat log")
    elif step == "raise_epoch":
        asked.driver.epoch += 1
    with monkeypatch.context() as broken:
        broken.setattr(Journal, step, failing)
        with pytest.raises(Unreachable):
            await asked.ask(**asks(asked))
        with pytest.raises(CarpalError) as caught:
            await running.__aexit__(None, None, None)
    assert caught.value.reason is reason
    assert "start the daemon again: its hands go on" in caught.value.action
    async with machine.daemon():
        again = await one.link()
        again.driver = asked.driver
        await again.ask(**asks(again))
        if step == "released":
            assert not machine.files.hands.joinpath("h").exists()
        else:
            ran = await _result(again, "c2", "cat log 2> /dev/null || echo not yet")
            assert ran.content == ("not yet\n" if step == "tombstone" else "ran\n")


async def test_an_identity_that_cannot_be_read_for_a_while_does_not_end_the_daemon(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        bundle = machine.files.identity.ca
        aside = bundle.rename(bundle.with_suffix(".aside"))
        asked.link.end(None)

        async def told() -> str:
            return str((await asyncio.to_thread(asking.ask, machine.files.folder))["reason"])

        async with asyncio.timeout(PATIENCE):
            while await told() != "CONFIG_INVALID":  # noqa: ASYNC110 - another process would ask so
                await asyncio.sleep(0.01)
        aside.rename(bundle)
        await one.link()
