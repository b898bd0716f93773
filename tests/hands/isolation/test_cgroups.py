"""Control groups of both versions: found, made, and removed, on a tree like the kernel's."""

import os
from pathlib import Path

import pytest

from hands.isolation import cgroups
from hands.isolation.cgroups import Base, Group

V1 = """\
33 24 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
34 24 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 24 0:31 /docker/abc /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
36 24 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
V1_OWN = "4:memory:/system.slice/x\n3:cpu,cpuacct:/\n2:pids:/docker/abc/y\n0::/z\n"


ROOT = Path("/sys/fs/cgroup")


def test_version_1_has_a_tree_for_each_controller() -> None:
    assert cgroups.parse(V1, V1_OWN) == {
        "memory": Base(ROOT / "memory/system.slice/x", ROOT / "memory", 1),
        "cpu": Base(ROOT / "cpu,cpuacct", ROOT / "cpu,cpuacct", 1),
        "pids": Base(ROOT / "pids/y", ROOT / "pids", 1),
    }


def test_version_2_has_one_tree_for_all() -> None:
    line = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    found = cgroups.parse(line, "0::/user.slice/d.service\n")
    base = Base(Path("/sys/fs/cgroup/user.slice/d.service"), Path("/sys/fs/cgroup"), 2)
    assert found == dict.fromkeys(("memory", "pids", "cpu"), base)


def _kernel(folder: Path, name: str, *files: str) -> Path:
    group = folder / name
    group.mkdir(parents=True)
    for file in files:
        (group / file).touch()
    return group


def test_who_only_looks_makes_way_for_nothing_and_is_told_what_could_be_had(tmp_path: Path) -> None:
    proc, group = tmp_path / "proc", tmp_path / "group"
    proc.mkdir()
    group.mkdir()
    (proc / "mountinfo").write_text(f"30 24 0:26 / {group} rw - cgroup2 cgroup2 rw\n")
    (proc / "cgroup").write_text("0::/\n")
    (group / "cgroup.controllers").write_text("memory pids")
    (group / "cgroup.procs").write_text(str(os.getpid()))
    control = group / "cgroup.subtree_control"
    control.write_text("")
    with cgroups.only_looking():
        assert sorted(cgroups.bases(proc)) == ["memory", "pids"]
    assert control.read_text() == ""
    assert sorted(path.name for path in group.iterdir()) == [
        *("cgroup.controllers", "cgroup.procs", "cgroup.subtree_control"),
    ]
    cgroups.bases(proc)
    assert control.read_text() != "", "who does not only look makes way"


def test_limits_are_written_as_version_2_has_them(tmp_path: Path) -> None:
    group = _kernel(tmp_path, "g", "memory.max", "memory.swap.max", "pids.max", "cpu.max")
    base = Base(tmp_path, tmp_path, 2)
    limits = {"memory_bytes": 2.0**28, "processes": 64.0, "cpus": 1.5}
    made = cgroups.make("g", limits, dict.fromkeys(("memory", "pids", "cpu"), base))
    assert made.joins == [str(group / "cgroup.procs")], "one group, joined once"
    assert {path.name: path.read_text() for path in group.iterdir()} == {
        "memory.max": "268435456",
        "memory.swap.max": "0",
        "pids.max": "64",
        "cpu.max": "150000 100000",
    }


def test_limits_are_written_as_version_1_has_them(tmp_path: Path) -> None:
    bases = {each: Base(tmp_path / each, tmp_path / each, 1) for each in ("memory", "cpu", "pids")}
    for each in bases:
        _kernel(tmp_path / each, "g")
    made = cgroups.make("g", {"memory_bytes": 1e9, "processes": 9, "cpus": 0.5}, bases)
    assert len(made.joins) == 3
    assert (tmp_path / "memory/g/memory.limit_in_bytes").read_text() == "1000000000"
    assert (tmp_path / "cpu/g/cpu.cfs_quota_us").read_text() == "50000"
    assert (tmp_path / "pids/g/pids.max").read_text() == "9"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("memory.events", "low 0\nhigh 0\nmax 3\noom 2\noom_kill 2\n"),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
    ],
)
def test_what_was_killed_for_want_of_memory_is_counted(
    tmp_path: Path, file: str, text: str
) -> None:
    (tmp_path / file).write_text(text)
    assert Group({"memory": tmp_path}).out_of_memory() == 2
    assert Group().out_of_memory() == 0


def test_a_group_is_found_again_where_an_earlier_daemon_made_it(tmp_path: Path) -> None:
    earlier = _kernel(tmp_path, "old.service/g")
    now = _kernel(tmp_path, "new.service")
    assert cgroups.find("g", {"pids": Base(now, tmp_path, 2)}) == Group({"pids": earlier})
    assert cgroups.find("other", {"pids": Base(now, tmp_path, 2)}) == Group({})


def test_a_group_is_removed_once_and_again(tmp_path: Path) -> None:
    group = Group({"pids": _kernel(tmp_path, "g")})
    group.remove()
    group.remove()
    assert not (tmp_path / "g").exists()


def test_empty_groups_of_long_ago_are_swept_and_no_others(tmp_path: Path) -> None:
    name = "carpal-0123456789abcdef"
    full = _kernel(tmp_path, f"{name}00", "cgroup.procs")
    empty, fresh, other = (_kernel(tmp_path, each) for each in (name, f"{name}11", "somebody"))
    for each in (full, empty, other):
        os.utime(each, (0, 0))
    cgroups.sweep({"pids": Base(tmp_path, tmp_path, 2)})
    assert {path for path in (full, empty, fresh, other) if path.exists()} == {full, fresh, other}
