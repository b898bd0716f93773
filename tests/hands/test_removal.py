"""Removing what commands made, and nothing else."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from hands.inside import removal, spool
from hands.inside.removal import remove_tree
from tests.hands.place import Place, open_place

DEEP = 1100
"""Levels: beyond what Python's calls, its descriptors and a path of the kernel go."""
CHAIN = f"import os\nfor _ in range({DEEP}):\n os.mkdir('d')\n os.chdir('d')\nopen('f', 'w')"


def chain(folder: Path) -> None:
    """A chain of folders, made by a process of its own."""
    folder.mkdir(parents=True)
    subprocess.run([sys.executable, "-I", "-S", "-c", CHAIN], cwd=folder, check=True)


def test_a_tree_of_any_depth_is_removed_with_few_descriptors(tmp_path: Path) -> None:
    chain(tmp_path / "tree/a")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (len([*Path("/proc/self/fd").iterdir()]) + 20, before[1])
    )
    try:
        remove_tree(tmp_path / "tree")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert list(tmp_path.iterdir()) == []


def test_no_symlink_is_followed_and_permissions_are_taken_back(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/kept").touch()
    inner = tmp_path / "tree/a/b/c"
    inner.mkdir(parents=True)
    (inner / "f").touch()
    for place in (inner, inner.parent, tmp_path / "tree"):
        (place / "out").symlink_to(tmp_path / "outside")
        (place / "dangling").symlink_to(tmp_path / "none")
        os.mkfifo(place / "fifo")
    for folder in (inner, inner.parent, inner.parent.parent, tmp_path / "tree"):
        folder.chmod(0)
    remove_tree(tmp_path / "tree")
    assert [p.name for p in tmp_path.rglob("*")] == ["outside", "kept"]
    assert (tmp_path / "outside").stat().st_mode & 0o777 != 0o700
    (tmp_path / "tree").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="tree"):
        remove_tree(tmp_path / "tree")
    with pytest.raises(FileNotFoundError):
        remove_tree(tmp_path / "none")
    assert (tmp_path / "outside/kept").exists()


def test_more_names_than_are_held_at_once_are_all_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "_AT_ONCE", 7)
    for number in range(60):
        (tmp_path / f"tree/{number % 3}").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"tree/{number % 3}/{number}").touch()
        (tmp_path / f"tree/{number}x").mkdir()
    remove_tree(tmp_path / "tree")
    assert list(tmp_path.iterdir()) == []


async def test_a_hand_that_nests_folders_without_end_is_released_and_ends_no_daemon_h45(
    tmp_path: Path,
) -> None:
    async with open_place(tmp_path / "state") as place:
        hand = await place.hand()
        folder = place.inventory.folder_of(hand)
        (folder / "workspace/chain.py").write_text(CHAIN)
        await place.sh(hand, "python3 -I -S chain.py; mkdir memories; mv d memories")
        note = "[not looked into folders more than 100 deep; pass path]"
        for tool in ("glob", "grep"):
            found = await place.run(hand, tool, pattern="nothing like it", path="memories")
            assert found.content == note
        deleted = await place.run(hand, "memory", command="delete", path="/memories/d")
        assert deleted.content == "deleted /memories/d"
        await place.sh(hand, "python3 -I -S chain.py")
        await _plant_in_spool(place, hand)
        assert await place.release(hand)
        assert not folder.exists()


async def _plant_in_spool(place: Place, hand: str) -> None:
    """A spool is freed when its call is acknowledged: that must not end the daemon either."""
    request = place.request(
        hand, command="cd; mkdir -p ../spool/c/x; mv ../workspace/d ../spool/c/x"
    )
    await place.steps(request)
    spool.remove(place.inventory.folder_of(hand) / "spool/c")
    assert (place.inventory.folder_of(hand) / "spool/c/x/d").exists(), "it goes with the hand"
