"""Limits that a type enforces: what breaks them breaks alone."""

from carpal.v1 import hand_pb2 as pb
from carpal.verdict import equal, must
from hands.conformance.bench import Bench
from hands.conformance.group import Group

shell = Group("shell")

_MIB = 1024 * 1024
_MEMORY = 128
_DISK = 64
_PROCESSES = 64
_BOMBS = {
    "naive": ":(){ :|:& };:",
    "in sessions of its own": (
        'export B=\'while :; do setsid bash -c "$B" & setsid bash -c "$B" & done\'; eval "$B"'
    ),
}
_USABLE = 5.0
"""Seconds after a bomb for the next call."""


@shell("h33", "h09", alone=True)
async def fork_bombs(bench: Bench) -> None:
    """After a fork bomb, also one that leaves its session, the next call works within 5 s."""
    hand = await bench.limited("processes", _PROCESSES)
    for kind, bomb in _BOMBS.items():
        await hand.sh(bomb, limit=2.0)
        await hand.run("bash", {"restart": True})
        answer = await hand.sh("echo usable")
        equal(f"what the next call gives after one that is {kind}", answer.text, "usable\n")
        answer.within(bench.slow(_USABLE))


@shell("h34", "h13", alone=True)
async def out_of_memory(bench: Bench) -> None:
    """Out of memory ends the command alone, and the text says so and names the limit."""
    hand = await bench.limited("memory_bytes", _MEMORY * _MIB)
    answer = (await hand.sh("x=$(head -c 400000000 /dev/zero | tr '\\0' x); echo ${#x}")).fails()
    must("out of memory" in answer.text, f"the text does not say so: {answer.text[-200:]!r}")
    must(f"{_MEMORY} MiB" in answer.text, f"the limit is not named: {answer.text[-200:]!r}")
    await hand.works()


@shell("h35", alone=True)
async def disk_full(bench: Bench) -> None:
    """A full disk is an error within its limit, and room that is made again is of use."""
    hand = await bench.limited("disk_bytes", _DISK * _MIB)
    answer = (await hand.sh(f"head -c {4 * _DISK * _MIB} /dev/zero > big")).fails()
    must("No space" in answer.text or "quota" in answer.text, f"it says {answer.text[-200:]!r}")
    size = int((await hand.sh("stat -c %s big")).text.split()[0])
    must(size <= _DISK * _MIB, f"{size} bytes were written")
    (await hand.sh("rm big; echo small > small")).ended(pb.OUTCOME_OK)
    equal("what is there", (await hand.sh("cat small")).text, "small\n")
