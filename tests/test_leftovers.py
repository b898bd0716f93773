"""What is left behind is found: else no test of leftovers could fail."""

from pathlib import Path

import pytest

from tests.leftovers import own_cgroups


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("0::/user.slice/carpal", "user.slice/carpal"),
        ("0::/user.slice/carpal", "unified/user.slice/carpal"),
        ("4:memory:/user/carpal", "memory/user/carpal"),
        ("2:cpu,cpuacct:/carpal", "cpu,cpuacct/carpal"),
        ("1:name=systemd:/carpal", "systemd/carpal"),
    ],
)
def test_a_control_group_that_came_below_our_own_is_found_of_either_version(
    tmp_path: Path, line: str, own: str
) -> None:
    told = tmp_path / "cgroup"
    told.write_text(f"9:freezer:/\n{line}\n")
    root = tmp_path / "root"
    (root / own / "there").mkdir(parents=True)
    (root / "freezer/of somebody else").mkdir(parents=True)
    before = own_cgroups(root, told)
    assert before == {root / own / "there"}
    (root / own / "hand/inner").mkdir(parents=True)
    assert own_cgroups(root, told) - before == {root / own / "hand", root / own / "hand/inner"}
