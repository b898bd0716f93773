"""A call's live output: every byte in order, from any offset, until its result is in the log."""

from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.inside import spool
from hands.inside.output import KEEP
from hands.life.spool import folder_of
from tests.hands.place import Place, let_go, open_place, until
from tests.hands.test_restart import DRIVER, child

BIG = 3_000_000
"""Bytes of output: beyond the beginning that is kept in memory, within what the disk keeps."""
COUNT = f"seq 1 1000000 | head -c {BIG}"


def counted(size: int = BIG) -> bytes:
    """What `COUNT` writes."""
    return b"".join(b"%d\n" % number for number in range(1, size // 5))[:size]


def joined(steps: list[pb.ExecuteResponse], offset: int = 0) -> bytes:
    """The output of steps that leave nothing out and repeat nothing."""
    data = b""
    for step in steps:
        if step.HasField("output"):
            assert step.output.offset == offset + len(data)
            assert step.output.dropped_bytes == 0
            data += step.output.data
    return data


async def test_every_byte_of_many_quick_writes_arrives_before_the_result_l18(
    place: Place, hand: str
) -> None:
    command = "for i in $(seq 1000); do printf 'line %s\\n' $i; done"
    steps = await place.steps(place.request(hand, command=command))
    assert joined(steps[:-1]) == b"".join(b"line %d\n" % i for i in range(1, 1001))
    assert steps[-1].result.output_bytes == len(joined(steps[:-1]))


async def test_bytes_that_are_no_text_arrive_as_they_are_l20(place: Place, hand: str) -> None:
    command = r"printf '\xff\x00\xe2\x82'; sleep 0.3; printf '\xac|'; printf '\xf0\x9f'"
    steps = await place.steps(place.request(hand, command=command))
    assert joined(steps[:-1]) == b"\xff\x00\xe2\x82\xac|\xf0\x9f"
    assert steps[-1].result.content == "\ufffd\0\u20ac|\ufffd"


async def test_output_of_megabytes_is_read_whole_from_any_offset_while_it_is_kept_l22(
    place: Place, hand: str
) -> None:
    request = place.request(hand, command=COUNT, call_id="c")
    whole = counted()
    steps = await place.steps(request)
    assert joined(steps) == whole
    for offset in (0, 1, 32 * 1024, KEEP - 1, KEEP, KEEP + 1, BIG // 2, BIG - 1, BIG):
        request.output_offset = offset
        again = await place.steps(request)
        assert joined(again, offset) == whole[offset:]
        assert again[-1].result == steps[-1].result
    folder = folder_of(place.inventory.folder_of(hand), "c")
    assert spool.held(folder) == BIG - KEEP
    acknowledge = pb.AcknowledgeRequest(driver=place.driver(), hand_id=hand, call_ids=["c"])
    await place.service.acknowledge(acknowledge)
    assert not folder.exists(), "acknowledged output is freed"
    assert len(await place.steps(request)) == 1


async def test_a_cancelled_call_gives_its_output_up_to_its_death_and_one_result_l24(
    place: Place, hand: str
) -> None:
    command = "trap 'echo dying; exit' TERM; echo up; while :; do :; done"
    request = place.request(hand, command=command)
    call = place.begin(request)
    assert await call.output() == b"up\n"
    await place.service.cancel(
        pb.CancelRequest(driver=place.driver(), hand_id=hand, call_id=call.call_id)
    )
    assert await call.output() == b"dying\n"
    assert (await call.result()).outcome == pb.OUTCOME_CANCELLED
    assert [step.WhichOneof("step") for step in await place.steps(request)] == ["output", "result"]


async def test_what_is_written_before_the_kill_is_given_too_l24(place: Place, hand: str) -> None:
    command = "trap '' TERM; echo up; while :; do echo on; sleep 0.02; done"
    request = place.request(hand, command=command)
    call = place.begin(request)
    await call.output()
    cancel = pb.CancelRequest(driver=place.driver(), hand_id=hand, call_id=call.call_id)
    cancel.grace.FromMilliseconds(200)
    await place.service.cancel(cancel)
    result = await call.result()
    assert result.outcome == pb.OUTCOME_CANCELLED
    steps = await place.steps(request)
    assert len(joined(steps)) == result.output_bytes
    assert joined(steps).decode() in result.content


@pytest.mark.slow
async def test_output_written_while_no_daemon_lived_is_kept_with_the_hand_l22(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    command = f"mkfifo go; echo up; read x < go; {COUNT}"
    request = pb.ExecuteRequest(driver=DRIVER, hand_id="h", call_id="c", name="bash")
    request.input = b'{"command": "%s"}' % command.encode()
    async with child(state) as daemon:
        daemon.ask(provision=pb.ProvisionRequest(driver=DRIVER, hand_id="h", type="process"))
        while not (await daemon.reply()).last:
            pass
        daemon.ask(execute=request)
        assert (await daemon.reply()).execute.output.data == b"up\n"
        await daemon.kill()
    await let_go(state / "hands/h/workspace/go")
    folder = folder_of(state / "hands/h", "c")
    await until(lambda: spool.held(folder) == BIG + 3 - KEEP, "the supervisor kept too little")
    # Once re-adopted while it may still run, once after its result is in the journal.
    for end in (False, True):
        async with open_place(state, end=end) as place:
            request.output_offset = 3
            steps = await place.steps(request)
            assert joined(steps, 3) == counted()
            assert steps[-1].result.outcome == pb.OUTCOME_OK
