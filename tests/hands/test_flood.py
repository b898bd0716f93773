"""Endless output: bounded everywhere, counted, and cut."""

import resource
from pathlib import Path

from carpal.v1 import hand_pb2 as pb
from hands.inside import spool
from hands.inside.output import KEEP, Capture
from tests.hands.place import Place

LIMIT = 50 * 1024 * 1024


def _resident(pid: int | str) -> int:
    """Bytes of memory a process has had at most."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


async def test_endless_output_is_killed_at_a_total_and_memory_stays_small_h06_h29(
    place: Place, hand: str
) -> None:
    await place.sh(hand, "true")
    base_here = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    base_there = _resident(place.supervisor(hand))
    steps = await place.steps(place.request(hand, command="timeout 10 yes", limit=18))
    result = steps[-1].result
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - base_here < LIMIT
    assert _resident(place.supervisor(hand)) - base_there < LIMIT
    assert result.outcome == pb.OUTCOME_ERROR
    assert f"[{result.omitted_bytes} bytes omitted]" in result.content
    assert "bytes of output" in result.content
    assert result.output_bytes > 1024**3
    shown = sum(len(step.output.data) for step in steps[:-1])
    # Nobody said that it was read, so that is all there was room for; the rest is counted.
    assert KEEP + spool.LIMIT - 64 * 1024 <= shown <= KEEP + spool.LIMIT
    dropped = sum(step.output.dropped_bytes for step in steps[:-1])
    assert shown + dropped == result.output_bytes
    assert (await place.sh(hand, "echo on")).content == "on\n"


async def test_a_flood_in_the_background_costs_little_and_ends_with_the_hand_h29(
    place: Place, hand: str
) -> None:
    first = await place.sh(hand, "yes & echo started")
    assert first.background == 1
    assert (await place.sh(hand, "echo on")).content == "on\n"
    assert await place.release(hand)


async def test_live_output_has_no_gap_and_counts_what_it_leaves_out_l18(
    place: Place, hand: str
) -> None:
    command = "head -c 40000 /dev/zero; sleep 0.2; head -c 100000 /dev/zero; sleep 0.4; echo end"
    steps = await place.steps(place.request(hand, command=command))
    offset = 0
    for step in steps[:-1]:
        chunk = step.output
        offset += chunk.dropped_bytes
        assert chunk.offset == offset
        assert len(chunk.data) <= 64 * 1024
        offset += len(chunk.data)
    assert offset <= 140_004
    assert steps[-1].result.output_bytes == 140_004
    assert steps[-1].result.content.endswith("end\n")


def test_the_kept_text_is_the_whole_when_it_fits() -> None:
    capture = Capture()
    for _ in range(2 * KEEP // 8):
        capture.add(b"12345678")
    text, omitted = capture.text()
    assert (len(text), omitted) == (2 * KEEP, 0)


def test_the_kept_text_is_cut_between_characters_and_the_count_is_exact() -> None:
    for shift in range(4):
        capture = Capture()
        data = b"x" * shift + "€".encode() * 100_000
        capture.add(data)
        text, omitted = capture.text()
        head, _, tail = text.partition(f"\n[{omitted} bytes omitted]\n")
        assert "\ufffd" not in text
        assert len((head + tail).encode()) + omitted == len(data)


def test_bytes_that_grow_as_text_are_kept_fewer() -> None:
    capture = Capture()
    capture.add(b"\xff" * 2 * KEEP)
    text, omitted = capture.text()
    assert len(text.encode()) < 2 * KEEP + 100
    assert text.count("\ufffd") + omitted == 2 * KEEP
