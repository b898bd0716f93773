"""Floods of output: both ends are kept, the rest is counted, and the server stays small."""

from carpal.v1 import hand_pb2 as pb
from carpal.verdict import equal, must
from hands.conformance.bench import Bench
from hands.conformance.group import Group

shell = Group("shell")

_TEXT_MAX = 1024 * 1024
"""Bytes of a result's text: what an event of the log holds."""
_GROWTH_MAX = 50.0
"""MiB that the server may take for a flood."""
_PATIENCE = 50.0
"""Seconds for an endless flood to be ended."""


@shell("h28", "h08")
async def one_long_line(bench: Bench) -> None:
    """A line of 20 MB is capped text, and its bytes are counted."""
    hand = await bench.hand()
    answer = (await hand.sh("head -c 20000000 /dev/zero | tr '\\0' x")).ended(pb.OUTCOME_OK)
    size = len(answer.text.encode())
    must(size <= _TEXT_MAX, f"the text has {size} bytes")
    equal("bytes of output", answer.result.output_bytes, 20_000_000)
    must(answer.result.omitted_bytes > 0, "nothing is said to be left out")


@shell("h28")
async def no_text_at_all(bench: Bench) -> None:
    """A flood of bytes that are no text does not grow as it becomes text."""
    hand = await bench.hand()
    answer = await hand.sh("head -c 5000000 /dev/zero | tr '\\0' '\\377'")
    size = len(answer.ended(pb.OUTCOME_OK).text.encode())
    must(size <= _TEXT_MAX, f"the text has {size} bytes")


@shell("h29", "h06", alone=True)
async def head_and_tail(bench: Bench) -> None:
    """Of a flood, beginning and end are kept with the count of the rest, in under 50 MiB."""
    hand = await bench.hand()
    flood = "echo first; head -c 200000000 /dev/zero | tr '\\0' y; echo; echo last"
    async with bench.growth() as growth:
        answer = (await hand.sh(flood)).ended(pb.OUTCOME_OK)
    must(answer.text.startswith("first\n"), "the beginning is missing")
    must(answer.text.rstrip().endswith("last"), "the end is missing")
    equal("bytes of output", answer.result.output_bytes, 200_000_012)
    kept = answer.result.output_bytes - answer.result.omitted_bytes
    must(0 < kept < _TEXT_MAX, f"{kept} bytes are said to be kept")
    must(str(answer.result.omitted_bytes) in answer.text, "the text does not say how much is gone")
    must(growth.mib < _GROWTH_MAX, f"the server grew by {growth.mib:.0f} MiB")


@shell("h29", "h06", alone=True)
async def endless(bench: Bench) -> None:
    """Endless output is ended at a total, not by its time limit, and the next call works."""
    hand = await bench.hand()
    async with bench.growth() as growth:
        answer = await hand.sh("yes", limit=bench.slow(_PATIENCE))
    must(answer.result.outcome != pb.OUTCOME_TIMED_OUT, "it went on until its time limit")
    must(answer.result.outcome != pb.OUTCOME_OK, "it is said to have gone well")
    must(growth.mib < _GROWTH_MAX, f"the server grew by {growth.mib:.0f} MiB")
    await hand.works()
