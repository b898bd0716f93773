"""Finding a hand's processes by what they carry, whatever other processes make of themselves."""

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hands.inside import tree
from hands.isolation import uids
from tests.pace import SCALE

MARK = "CARPAL_HAND=/a/hand/of/these/tests"
_BOMB = """
import ctypes, mmap, struct, sys
size = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_ulong
at = libc.mmap(None, ctypes.c_size_t(size), 1, 0x4022, -1, ctypes.c_long(0))
code = [0x400000, 0x401000, 0x400000, 0x401000, 0x402000, 0x402000]
given = struct.pack("12QIi", *code, at, at, at + 1, at, at + size, 0, 0, -1)
done = libc.prctl(35, ctypes.c_ulong(14), given, ctypes.c_ulong(len(given)), ctypes.c_ulong(0))
print(ctypes.get_errno() if done else "armed", flush=True)
sys.stdin.read()
"""
"""Says that its environment is so many bytes of nothing but zeros, which cost it no memory."""
_WAIT = "print('up', flush=True); import sys; sys.stdin.read()"


@contextmanager
def _child(
    code: str, *given: str, **environment: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A Python that runs `code` until this ends, and the first thing it said."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code, *given],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait(20 * SCALE)
        process.stdin.close()
        process.stdout.close()


def test_a_process_whose_environment_is_all_memory_costs_who_looks_for_marks_nothing() -> None:
    with _child(_BOMB, str(16 << 20)) as (_, said):
        if said != "armed":
            pytest.skip(f"the kernel lets no process do this here: errno {said}")
        tracemalloc.start()
        try:
            assert tree.kill_marked(MARK) == 0
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    ("environment", "marked"),
    [
        ({"CARPAL_HAND": "/a/hand/of/these/tests"}, True),
        ({"A": "b", "CARPAL_HAND": "/a/hand/of/these/tests", "Z": "x" * 100_000}, True),
        ({"CARPAL_HAND": "/a/hand/of/these/tests2"}, False),
        ({"XCARPAL_HAND": "/a/hand/of/these/tests"}, False),
        ({"A": "CARPAL_HAND=/a/hand/of/these/tests"}, False),
    ],
)
def test_a_mark_is_a_whole_variable_wherever_it_stands(
    environment: dict[str, str], marked: bool
) -> None:
    with _child(_WAIT, **environment) as (process, _):
        assert tree.kill_marked(MARK) == marked
        assert (process.poll() is not None or tree.find(process.pid) is None) == marked


def test_processes_of_another_hands_user_are_not_looked_into(tmp_path: Path) -> None:
    with _child(_WAIT, CARPAL_HAND="/a/hand/of/these/tests"):
        assert tree.kill_marked(MARK, lambda uid: uid == os.geteuid()) == 0
        assert tree.kill_marked(MARK, uids.anothers(tmp_path)) == 1
    anothers = uids.anothers(tmp_path)
    assert not anothers(0)
    assert not anothers(tmp_path.stat().st_uid)
    assert anothers(uids.FIRST + 7)
    assert not uids.anothers(tmp_path / "gone")(uids.FIRST + 7), "whose it was is not known"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes such namespaces here")
def test_a_namespace_is_killed_with_all_in_it_by_its_first_process_and_no_other_process_is() -> (
    None
):
    inside = "setsid env -i sleep 600 & echo $$; wait"
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", inside]
    with subprocess.Popen(unshare, stdout=subprocess.PIPE, text=True) as outer:
        assert outer.stdout
        assert outer.stdout.readline() == "1\n"
        (first,) = [one for one in tree.descendants(outer.pid) if one.parent == outer.pid]
        below = tree.descendants(first.pid)
        assert below
        assert not tree.kill_namespace(below[0].pid, below[0].start), "it is not the first of one"
        assert not tree.kill_namespace(first.pid, first.start + 1), "another of its pid"
        assert not tree.kill_namespace(os.getpid(), tree.start_time(os.getpid()))
        assert tree.kill_namespace(first.pid, first.start)
        assert not [one for one in (first, *below) if tree.alive(one.pid, one.start)]
        outer.wait(20 * SCALE)
