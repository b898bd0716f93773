"""What the hand service answers, refuses and remembers; over real process hands."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.status import Code, Reason
from carpal.v1 import hand_pb2 as pb
from hands.builtin.egress import NETWORK_OPEN
from hands.inside.toolset import TOOLS
from tests.hands.place import PATIENCE, Place, let_go, open_place, until

EDITOR = "str_replace_based_edit_tool"
EDITED = {
    *("command", "path", "view_range", "file_text"),
    *("old_str", "new_str", "insert_line", "insert_text"),
}


async def refused(awaitable: object) -> CarpalError:
    """The refusal an awaitable or an iterator ends in."""

    async def exhaust() -> None:
        if hasattr(awaitable, "__aiter__"):
            async for _ in awaitable:
                pass
        else:
            await awaitable  # type: ignore[misc]

    with pytest.raises(CarpalError) as caught:
        await exhaust()
    return caught.value


def provision(place: Place, hand_id: str, **more: object) -> pb.ProvisionRequest:
    given = {"driver": place.driver(), "type": "process"} | more
    return pb.ProvisionRequest(hand_id=hand_id, **given)  # type: ignore[arg-type]


async def test_describe_names_the_tools_claude_knows_with_their_schemas_h22(place: Place) -> None:
    (kind,) = (await place.service.describe(pb.DescribeRequest())).types
    assert kind.type == "process"
    fields = {tool.name: set(json.loads(tool.input_schema)["properties"]) for tool in kind.tools}
    assert fields == {
        "bash": {"command", "restart", "timeout_ms"},
        "read": {"file_path", "view_range"},
        "write": {"file_path", "content"},
        "edit": {"file_path", "old_string", "new_string", "replace_all"},
        "glob": {"pattern", "path"},
        "grep": {"pattern", "path"},
        "str_replace_based_edit_tool": EDITED,
        "memory": EDITED | {"old_path", "new_path"},
    }
    commands = {
        tool.name: json.loads(tool.input_schema)["properties"]["command"]["enum"]
        for tool in kind.tools
        if tool.name in ("str_replace_based_edit_tool", "memory")
    }
    assert commands == {
        "str_replace_based_edit_tool": ["view", "create", "str_replace", "insert"],
        "memory": ["view", "create", "str_replace", "insert", "delete", "rename"],
    }
    assert all(tool.description for tool in kind.tools)
    assert set(TOOLS) == set(fields)


async def test_a_type_is_probed_and_an_unknown_one_is_refused(place: Place) -> None:
    found = await place.service.probe(pb.ProbeRequest(type="process"))
    assert found.state == pb.PROBE_STATE_READY
    assert "memory_bytes" in found.not_enforceable
    error = await refused(place.service.probe(pb.ProbeRequest(type="spaceship")))
    assert error.reason == Reason.HAND_TYPE_NOT_FOUND
    error = await refused(place.service.provision(provision(place, "h", type="spaceship")))
    assert error.reason == Reason.HAND_TYPE_NOT_FOUND


@pytest.mark.parametrize(
    ("name", "given", "field"),
    [
        ("bash", {}, "command"),
        ("bash", {"command": ""}, "command"),
        ("bash", {"command": 3}, "command"),
        ("bash", {"command": "a\0b"}, "command"),
        ("bash", {"command": "touch ran", "restart": True}, "restart"),
        ("bash", {"command": "touch ran", "timeout_ms": "9"}, "timeout_ms"),
        ("bash", {"command": "touch ran", "timeout_ms": True}, "timeout_ms"),
        ("bash", {"command": "touch ran", "timeout_ms": -1}, "timeout_ms"),
        ("bash", {"command": "touch ran", "timeout_ms": 10**12}, "timeout_ms"),
        ("bash", {"command": "touch ran", "cwd": "/"}, "cwd"),
        ("bash", {"command": "touch ran", "timeout_ms": None}, "timeout_ms"),
        ("write", {"file_path": "ran"}, "content"),
        ("write", {"file_path": "ran", "content": None}, "content"),
        ("write", {"file_path": "ran", "content": "\ud800"}, "content"),
        ("read", {"file_path": "f", "view_range": [1]}, "view_range"),
        ("read", {"file_path": "f", "view_range": [1, "2"]}, "view_range[1]"),
        ("edit", {"file_path": "f", "old_string": "", "new_string": "x"}, "old_string"),
        ("glob", {"pattern": "*", "path": ""}, "path"),
        (EDITOR, {"path": "ran"}, "command"),
        (EDITOR, {"command": "undo_edit", "path": "ran"}, "command"),
        (EDITOR, {"command": ["view"], "path": "ran"}, "command"),
        (EDITOR, {"command": "create", "path": "ran"}, "file_text"),
        (EDITOR, {"command": "create", "file_text": "x"}, "path"),
        (EDITOR, {"command": "create", "path": "ran", "file_text": "x", "new_str": ""}, "new_str"),
        (EDITOR, {"command": "str_replace", "path": "f", "old_str": ""}, "old_str"),
        (EDITOR, {"command": "insert", "path": "f", "insert_line": -1}, "insert_line"),
        (EDITOR, {"command": "view", "path": "a\0b"}, "path"),
        ("memory", {"command": "create", "path": "ran", "file_text": "x"}, "path"),
        ("memory", {"command": "view", "path": "/memoriesx"}, "path"),
        ("memory", {"command": "rename", "old_path": "/memories/a"}, "new_path"),
        ("memory", {"command": "delete", "old_path": "/memories/a"}, "path"),
        ("memory", {"command": "str_replace", "path": "/memories/a", "old_str": "x"}, "new_str"),
    ],
)
async def test_input_that_does_not_fit_is_refused_by_field_and_nothing_runs_h22(
    place: Place, hand: str, name: str, given: dict[str, object], field: str
) -> None:
    request = place.request(hand, name, **given)
    error = await refused(place.execute(request))
    assert (error.reason, error.fields["field"]) == (Reason.INPUT_INVALID, field)
    assert error.message.startswith(f"{field}: ")
    assert place.journal.call(hand, request.call_id) is None
    assert not (place.inventory.folder_of(hand) / "workspace/ran").exists()


DEEP = b'{"command":"true","x":' + b"[" * 150 + b"]" * 150 + b"}"


@pytest.mark.parametrize(
    "data", [b"", b"nonsense", b"[1]", b"\xff", b'"text"', b"[" * 100_000, DEEP]
)
async def test_input_that_is_no_json_object_is_refused(
    place: Place, hand: str, data: bytes
) -> None:
    request = place.request(hand, command="true")
    request.input = data
    assert (await refused(place.execute(request))).reason == Reason.INPUT_INVALID


async def test_an_unknown_tool_is_refused_and_named_h22(place: Place, hand: str) -> None:
    error = await refused(place.execute(place.request(hand, "python", code="1")))
    assert error.reason == Reason.TOOL_NOT_FOUND
    assert "'python'" in error.message
    assert "bash" in error.message


async def test_the_same_call_id_runs_once_and_replays_h19_h43(place: Place, hand: str) -> None:
    request = place.request(hand, command="echo ran >> log; cat log", call_id="once")
    first = (await place.steps(request))[-1].result
    again = await place.steps(request)
    assert [step.output.data for step in again[:-1]] == [b"ran\n"]
    assert again[-1].result == first
    assert first.content == "ran\n"
    assert first.sequence > 0
    other = place.request(hand, command="echo other", call_id="once")
    assert (await refused(place.execute(other))).reason == Reason.ID_REUSED


async def test_a_call_whose_watcher_left_goes_on_and_is_attached_from_an_offset_h05_h43(
    place: Place, hand: str
) -> None:
    request = place.request(hand, command="echo one; read x < go; echo two; echo ran >> log")
    await place.sh(hand, "mkfifo go")
    call = place.begin(request)
    assert await call.output() == b"one\n"
    await call.leave()
    request.output_offset = 2
    again, third = place.begin(request), place.begin(request)
    assert await again.output() == b"e\n"
    (place.inventory.folder_of(hand) / "workspace/go").write_text("x\n")
    assert await again.output() == b"two\n"
    result = await again.result()
    assert result.content == "one\ntwo\n"
    assert await third.result() == result
    assert (await place.sh(hand, "cat log")).content == "ran\n"


async def test_an_acknowledged_result_is_freed_but_its_outcome_stays(
    place: Place, hand: str
) -> None:
    request = place.request(hand, command="echo ran >> log; exit 3")
    await place.steps(request)
    acknowledge = pb.AcknowledgeRequest(
        driver=place.driver(), hand_id=hand, call_ids=[request.call_id, "never-seen"]
    )
    await place.service.acknowledge(acknowledge)
    await place.service.acknowledge(acknowledge)
    (row,) = [place.journal.call(hand, request.call_id)]
    assert row is not None
    assert (row.state, row.outcome, row.result) == ("acknowledged", "error", None)
    result = (await place.steps(request))[-1].result
    assert result.outcome == pb.OUTCOME_ERROR
    assert "no longer kept" in result.content
    assert (await place.sh(hand, "cat log")).content == "ran\n"


async def test_a_running_call_cannot_be_acknowledged(place: Place, hand: str) -> None:
    call = place.begin(place.request(hand, command="echo up; sleep 60"))
    await call.output()
    request = pb.AcknowledgeRequest(driver=place.driver(), hand_id=hand, call_ids=[call.call_id])
    assert (await refused(place.service.acknowledge(request))).reason == Reason.CALL_RUNNING
    await place.service.cancel(
        pb.CancelRequest(driver=place.driver(), hand_id=hand, call_id=call.call_id)
    )
    await call.result()
    await place.service.acknowledge(request)


async def test_a_cancel_before_the_call_refuses_it_when_it_comes(place: Place, hand: str) -> None:
    request = place.request(hand, command="touch ran")
    cancel = pb.CancelRequest(driver=place.driver(), hand_id=hand, call_id=request.call_id)
    for _ in range(3):
        assert (await place.service.cancel(cancel)).state == pb.CALL_STATE_TOMBSTONE
    assert (await refused(place.execute(request))).reason == Reason.CALL_CANCELLED
    assert (await place.sh(hand, "ls")).content == "[no output]"


async def test_a_call_that_waits_in_line_is_cancelled_at_once(place: Place, hand: str) -> None:
    first = place.begin(place.request(hand, command="echo up; read x < go"))
    await first.output()
    second = place.begin(place.request(hand, command="touch ran"))
    third = place.begin(place.request(hand, command="echo third"))
    await asyncio.sleep(0)
    cancel = pb.CancelRequest(driver=place.driver(), hand_id=hand, call_id=second.call_id)
    assert (await place.service.cancel(cancel)).state == pb.CALL_STATE_TERMINAL
    result = await second.result()
    assert result.outcome == pb.OUTCOME_CANCELLED
    assert result.content == "[cancelled before it started]"
    cancel.call_id = first.call_id
    await place.service.cancel(cancel)
    assert (await third.result()).content == "third\n"
    assert not (place.inventory.folder_of(hand) / "workspace/ran").exists()


async def test_a_lower_epoch_is_refused_and_runs_nothing(place: Place, hand: str) -> None:
    claim = pb.ClaimRequest(driver=place.driver(epoch=5), hand_id=hand)
    await place.service.claim(claim)
    await place.service.claim(claim)
    stale = place.driver(epoch=4)
    request = place.request(hand, command="touch ran")
    for awaitable in (
        place.execute(request),
        place.service.claim(pb.ClaimRequest(driver=stale, hand_id=hand)),
        place.service.cancel(pb.CancelRequest(driver=stale, hand_id=hand, call_id="c")),
        place.service.acknowledge(pb.AcknowledgeRequest(driver=stale, hand_id=hand)),
        place.service.release(pb.ReleaseRequest(driver=stale, hand_id=hand)),
        place.service.provision(provision(place, "h9", driver=stale)),
    ):
        assert (await refused(awaitable)).reason == Reason.STALE_EPOCH
    request.driver.epoch = 5
    await place.steps(request)
    assert (place.inventory.folder_of(hand) / "workspace/ran").exists()


async def test_a_call_that_comes_while_its_hand_is_told_of_the_last_one_waits_in_line(
    place: Place, hand: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not begun: a daemon that dies then must not call it interrupted."""
    keeper = place.inventory.keepers[hand]
    may, acknowledge = asyncio.Event(), keeper._hand.acknowledge

    async def slow(call_id: str) -> None:
        await may.wait()
        await acknowledge(call_id)

    monkeypatch.setattr(keeper._hand, "acknowledge", slow)
    assert (await place.sh(hand, "echo one")).content == "one\n"
    request = place.request(hand, command="echo two")
    call = place.begin(request)
    await until(lambda: request.call_id in keeper.open, "it did not come")
    row = place.journal.call(hand, request.call_id)
    assert row is not None
    assert row.state == "accepted"
    may.set()
    assert (await call.result()).content == "two\n"


async def test_a_claim_says_how_each_call_stands_and_starts_none(place: Place, hand: str) -> None:
    done = place.request(hand, command="exit 1")
    await place.steps(done)
    kept = place.request(hand, command="echo kept")
    await place.steps(kept)
    await place.service.acknowledge(
        pb.AcknowledgeRequest(driver=place.driver(), hand_id=hand, call_ids=[done.call_id])
    )
    running = place.begin(place.request(hand, command="echo up; sleep 60"))
    await running.output()
    cancel = pb.CancelRequest(driver=place.driver(), hand_id=hand, call_id="tomb")
    await place.service.cancel(cancel)
    ids = [done.call_id, kept.call_id, running.call_id, "tomb", "never"]
    claim = pb.ClaimRequest(driver=place.driver(epoch=2), hand_id=hand, call_ids=ids)
    answer = await place.service.claim(claim)
    assert [call.call_id for call in answer.calls] == ids
    assert [call.state for call in answer.calls] == [
        pb.CALL_STATE_ACKNOWLEDGED,
        pb.CALL_STATE_TERMINAL,
        pb.CALL_STATE_RUNNING,
        pb.CALL_STATE_TOMBSTONE,
        pb.CALL_STATE_UNKNOWN,
    ]
    assert [call.outcome for call in answer.calls][:2] == [pb.OUTCOME_ERROR, pb.OUTCOME_OK]
    assert answer.sequence == place.journal.sequence
    assert place.journal.call(hand, "never") is None


async def test_provisioning_again_answers_the_first_result(place: Place) -> None:
    request = provision(place, "h-again")
    first, second = await asyncio.gather(place.provision(request), place.provision(request))
    assert first == second == await place.provision(request)
    assert first.journal_id == place.journal.journal_id
    assert first.not_enforced == [
        "runs as the daemon's user, without a sandbox: the machine's owner turned it off",
        NETWORK_OPEN,
    ]
    assert "workspace" in first.note
    request.driver.epoch = 7  # another brain, the same request
    assert await place.provision(request) == first
    request.config = b'{"workspace": "/tmp"}'
    assert (await refused(place.service.provision(request))).reason == Reason.ID_REUSED
    assert place.inventory.count == 1


async def test_a_limit_that_cannot_be_kept_refuses_the_hand_h10_h23(place: Place) -> None:
    request = provision(place, "h-limit", limits=pb.Limits(memory_bytes=1, processes=3))
    error = await refused(place.service.provision(request))
    assert error.reason == Reason.LIMIT_NOT_ENFORCEABLE
    assert "limits.memory_bytes, limits.processes:" in error.message
    assert error.fields["field"] == "limits.memory_bytes"
    assert place.journal.hand("h-limit") is None
    assert not place.inventory.folder_of("h-limit").exists()


async def test_what_a_provision_gets_wrong_is_named(place: Place, tmp_path: Path) -> None:
    for more, field in (
        ({"hand_id": "no/slash"}, "hand_id"),
        ({"config": b"[]"}, "config"),
        ({"config": b'{"image": "x"}'}, "config.image"),
        ({"config": b'{"workspace": "relative"}'}, "config.workspace"),
        ({"config": json.dumps({"workspace": f"{tmp_path}/nope"}).encode()}, "config.workspace"),
        ({"driver": pb.Driver(workspace="default", epoch=1)}, "driver.session_id"),
        ({"driver": pb.Driver(workspace="default", session_id="s")}, "driver.epoch"),
    ):
        request = provision(place, str(more.pop("hand_id", place.new_id("h"))), **more)
        error = await refused(place.service.provision(request))
        assert (error.reason, error.fields["field"]) == (Reason.INVALID_FIELD, field)
    assert place.inventory.count == 0
    assert not list(place.inventory.folder_of("x").parent.iterdir())


async def test_another_workspaces_session_is_not_served(place: Place, hand: str) -> None:
    other = pb.Driver(session_id="s", epoch=1, workspace="other")
    error = await refused(place.service.provision(provision(place, "h9", driver=other)))
    assert error.reason == Reason.POLICY_FORBIDS
    claim = pb.ClaimRequest(driver=other, hand_id=hand)
    assert (await refused(place.service.claim(claim))).reason == Reason.POLICY_FORBIDS


async def test_another_sessions_hand_does_not_exist_for_one(place: Place, hand: str) -> None:
    request = place.request(hand, command="true")
    request.driver.CopyFrom(place.driver("stranger", 9))
    assert (await refused(place.execute(request))).reason == Reason.HAND_NOT_FOUND
    release = pb.ReleaseRequest(driver=place.driver("stranger"), hand_id=hand)
    assert not (await place.service.release(release)).ended
    assert (await place.sh(hand, "echo on")).content == "on\n"


async def test_a_daemon_at_capacity_refuses_new_hands_and_not_calls_l10(tmp_path: Path) -> None:
    async with open_place(tmp_path / "state", hands_max=1) as place:
        hand = await place.hand()
        os.mkfifo(place.inventory.folder_of(hand) / "workspace/go")
        running = place.begin(place.request(hand, command="echo up; read x < go; echo done"))
        await running.output()
        queued = place.begin(place.request(hand, command="echo on"))
        error = await refused(place.service.provision(provision(place, "h2")))
        assert (error.reason, error.code) == (Reason.AT_CAPACITY, Code.RESOURCE_EXHAUSTED)
        await let_go(place.inventory.folder_of(hand) / "workspace/go")
        assert (await running.result()).content == "up\ndone\n", "running work is untouched"
        assert (await queued.result()).content == "on\n"
        await place.release(hand)
        await place.provision(provision(place, "h2"))
        place.inventory.draining = True
        error = await refused(place.service.provision(provision(place, "h3")))
        assert error.reason == Reason.AT_CAPACITY


async def test_release_leaves_nothing_is_idempotent_and_the_id_is_spent_h45(
    place: Place, hand: str
) -> None:
    await place.sh(hand, "mkdir -p a/b; touch a/b/c; chmod 000 a/b a; setsid sleep 60 & true")
    folder = place.inventory.folder_of(hand)
    assert await place.release(hand)
    assert await place.release(hand)
    assert not folder.exists()
    assert place.inventory.count == 0
    request = place.request(hand, command="true")
    assert (await refused(place.execute(request))).reason == Reason.HAND_NOT_FOUND
    assert (await refused(place.service.provision(provision(place, hand)))).reason == (
        Reason.HAND_GONE
    )
    assert (
        await place.service.release(pb.ReleaseRequest(driver=place.driver(), hand_id="never"))
    ).ended


async def test_releasing_a_hand_settles_its_open_calls(place: Place, hand: str) -> None:
    running = place.begin(place.request(hand, command="echo up; sleep 60"))
    await running.output()
    waiting = place.begin(place.request(hand, command="touch ran"))
    await asyncio.sleep(0)
    await place.release(hand)
    for call in (running, waiting):
        assert (await call.result()).outcome == pb.OUTCOME_CANCELLED


async def test_a_bound_workspace_is_used_and_never_removed(place: Place, tmp_path: Path) -> None:
    bound = tmp_path / "own"
    bound.mkdir()
    (bound / "kept").write_text("mine")
    hand = await place.hand(workspace=str(bound))
    assert (await place.sh(hand, "cat kept; pwd")).content == f"mine{bound}\n"
    await place.release(hand)
    assert (bound / "kept").read_text() == "mine"


async def test_the_inventory_lists_hands_with_their_open_calls(place: Place, hand: str) -> None:
    call = place.begin(place.request(hand, command="echo up; sleep 60"))
    await call.output()
    listed = await place.service.list_hands(pb.ListHandsRequest())
    (info,) = listed.hands
    assert (info.hand_id, info.type, info.daemon_id) == (hand, "process", "d")
    assert list(info.session_ids) == ["s"]
    assert list(info.open_call_ids) == [call.call_id]
    assert 0 < info.orphan_in.ToSeconds() <= 60
    assert not (await place.service.list_hands(pb.ListHandsRequest(session_id="t"))).hands


async def test_what_is_not_built_says_so(place: Place) -> None:
    service = place.service
    assert (await refused(service.transfer(pb.TransferRequest()))).reason == Reason.NOT_BUILT


async def test_a_log_is_no_mount_of_a_daemons_own(place: Place) -> None:
    mounted = provision(place, "h", mounts=[pb.Mount(source_ref="session:s", mount_path="x")])
    error = await refused(place.service.provision(mounted))
    assert error.reason == Reason.INVALID_FIELD
    assert "a tar:, which the brain makes" in error.message


async def test_an_id_whose_provision_failed_may_be_tried_again_the_moment_it_is_free(
    place: Place,
) -> None:
    bad = provision(place, "again", limits=pb.Limits(cpus=1.0))
    failing = asyncio.create_task(refused(place.service.provision(bad)))
    async with asyncio.timeout(PATIENCE):
        while place.journal.hand("again") is None:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0)
        while place.journal.hand("again") is not None:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0)
    await place.provision(provision(place, "again"))
    assert (await failing).reason == Reason.LIMIT_NOT_ENFORCEABLE


async def test_a_release_goes_on_when_its_link_is_cut(place: Place, hand: str) -> None:
    asking = asyncio.create_task(place.release(hand))
    await until(lambda: place.inventory.count == 0, "the release does not begin")
    asking.cancel()
    await asyncio.wait({asking})
    assert asking.cancelled()

    def released() -> bool:
        row = place.journal.hand(hand)
        return row is not None and row.state == "released"

    await until(released, "the release stopped with its link")
    assert not place.inventory.folder_of(hand).exists()


async def test_two_releases_of_a_hand_are_one(place: Place, hand: str) -> None:
    ended = await asyncio.gather(place.release(hand), place.release(hand))
    assert list(ended) == [True, True]
    assert not place.inventory.folder_of(hand).exists()
