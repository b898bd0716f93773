"""The file tools, by a real supervisor: what they give, and what they refuse to reach."""

import os
from pathlib import Path
from typing import Any

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.inside.beneath import walk_open
from tests.hands.place import Place
from tests.pace import times

OK, ERROR = pb.OUTCOME_OK, pb.OUTCOME_ERROR


@pytest.fixture
def root(place: Place, hand: str) -> Path:
    """The hand's workspace, seen from outside."""
    return place.inventory.folder_of(hand) / "workspace"


async def test_what_is_written_is_read_back_byte_for_byte_h39(
    place: Place, hand: str, root: Path
) -> None:
    text = "one\r\ntwo\ttab é € 𝄞\n\x1b[0m no newline at the end"
    made = await place.run(hand, "write", file_path="a/b/c.txt", content=text)
    assert (made.outcome, made.content) == (OK, f"made a/b/c.txt: {len(text.encode())} bytes")
    assert (root / "a/b/c.txt").read_bytes() == text.encode()
    assert (await place.run(hand, "read", file_path="a/b/c.txt")).content == text
    again = await place.run(hand, "write", file_path=str(root / "a/b/c.txt"), content="x")
    assert again.content.startswith("replaced ")
    assert (root / "a/b/c.txt").read_text() == "x"


async def test_read_gives_the_lines_asked_for(place: Place, hand: str, root: Path) -> None:
    (root / "f").write_text("".join(f"{i}\n" for i in range(1, 11)))
    for view, expected in (([2, 3], "2\n3\n"), ([9, -1], "9\n10\n"), ([10, 99], "10\n")):
        result = await place.run(hand, "read", file_path="f", view_range=view)
        assert result.content == expected
    for view, words in (([0, 1], "1 <= first"), ([3, 2], "1 <= first"), ([11, -1], "only 10")):
        result = await place.run(hand, "read", file_path="f", view_range=view)
        assert result.outcome == ERROR
        assert words in result.content


async def test_an_empty_file_reads_as_something(place: Place, hand: str, root: Path) -> None:
    (root / "empty").touch()
    assert (await place.run(hand, "read", file_path="empty")).content == "[empty file]"


async def test_a_file_too_large_for_one_read_says_what_to_do(
    place: Place, hand: str, root: Path
) -> None:
    (root / "large").write_text("x" * 99 + "\n")
    with (root / "large").open("a") as file:
        file.write(("y" * 99 + "\n") * 10_000)
    result = await place.run(hand, "read", file_path="large")
    assert result.outcome == ERROR
    assert "view_range" in result.content
    assert (await place.run(hand, "read", file_path="large", view_range=[1, 1])).outcome == OK
    result = await place.run(hand, "read", file_path="large", view_range=[1, 9000])
    assert "ask for fewer" in result.content
    assert (
        "edit takes"
        in (
            await place.run(hand, "edit", file_path="large", old_string="x", new_string="z")
        ).content
    )


async def test_what_is_no_text_is_refused_with_a_way_out(
    place: Place, hand: str, root: Path
) -> None:
    (root / "bin").write_bytes(b"\x89PNG\r\n\x00\xff")
    (root / "ctl").write_bytes(b"\x01" * 200_000)
    for name in ("bin", "ctl"):
        result = await place.run(hand, "read", file_path=name)
        assert result.outcome == ERROR
        assert "not UTF-8 text; look at it with bash" in result.content


async def test_edit_replaces_a_unique_text_and_keeps_mode_and_links(
    place: Place, hand: str, root: Path
) -> None:
    (root / "run.sh").write_text("echo old\n")
    (root / "run.sh").chmod(0o755)
    os.link(root / "run.sh", root / "same")
    result = await place.run(
        hand, "edit", file_path="run.sh", old_string="old", new_string="brand new"
    )
    assert (result.outcome, result.content) == (OK, "edited run.sh: 1 replacement")
    assert (root / "same").read_text() == "echo brand new\n"
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o755


async def test_edit_says_why_it_changed_nothing(place: Place, hand: str, root: Path) -> None:
    (root / "f").write_text("a a\n")
    missing = await place.run(hand, "edit", file_path="f", old_string="b", new_string="c")
    assert (missing.outcome, "is not in f" in missing.content) == (ERROR, True)
    twice = await place.run(hand, "edit", file_path="f", old_string="a", new_string="c")
    assert (twice.outcome, "occurs 2 times" in twice.content) == (ERROR, True)
    assert (root / "f").read_text() == "a a\n"
    both = await place.run(
        hand, "edit", file_path="f", old_string="a", new_string="c", replace_all=True
    )
    assert (both.outcome, (root / "f").read_text()) == (OK, "c c\n")
    gone = await place.run(hand, "edit", file_path="nope", old_string="a", new_string="c")
    assert (gone.outcome, gone.content) == (ERROR, "nope does not exist; look with glob")


async def test_no_path_leads_out_of_the_workspace_h16_h39(
    place: Place, hand: str, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "sub").mkdir()
    (root / "link").symlink_to(outside / "secret")
    (root / "folder").symlink_to(outside)
    (root / "relative").symlink_to("../../../../outside/secret")
    (root / "dangling").symlink_to(outside / "made")
    (root / "proc").symlink_to("/proc/self/root/etc/passwd")
    for path in (
        *("link", "folder/secret", "relative", "dangling", "folder/made", "proc"),
        *("../x", "sub/../../x", "/etc/passwd", str(outside / "secret"), f"{root}/../x"),
        f"{root}x",
    ):
        for name, given in (
            ("read", {}),
            ("write", {"content": "pwned"}),
            ("edit", {"old_string": "secret", "new_string": "pwned"}),
        ):
            result = await place.run(hand, name, file_path=path, **given)
            assert result.outcome == ERROR, (name, path)
            assert "workspace" in result.content, (name, path, result.content)
    assert [entry.name for entry in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "secret"


async def test_a_folder_swapped_for_a_symlink_in_the_middle_leads_nowhere_h39(
    place: Place, hand: str, root: Path, tmp_path: Path
) -> None:
    """As fast as a command can swap it, the folder is now one of the workspace, now outside."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "old").write_text("secret")
    swap = (
        "import os\n"
        "while True:\n"
        "    os.rename('d', 'e'); os.rename('l', 'd'); os.rename('d', 'l'); os.rename('e', 'd')\n"
    )
    await place.sh(
        hand, f"mkdir d memories; echo mine > d/old; ln -s {outside} l; ln -s ../d memories/d"
    )
    (root / "swap.py").write_text(swap)
    assert (await place.sh(hand, "python3 -I -S swap.py & true")).background
    given: list[tuple[str, dict[str, Any]]] = [
        ("read", {"file_path": "d/old"}),
        ("write", {"file_path": "d/new", "content": "x"}),
        ("write", {"file_path": "d/sub/new", "content": "x"}),
        ("edit", {"file_path": "d/old", "old_string": "s", "new_string": "pwned"}),
        ("grep", {"pattern": "secret", "path": "d"}),
        ("memory", {"command": "rename", "old_path": "/memories/d", "new_path": "/memories/x"}),
        ("memory", {"command": "delete", "path": "/memories/d/old"}),
        ("str_replace_based_edit_tool", {"command": "view", "path": "d"}),
    ]
    outcomes = set()
    for number in range(times(80, 4000)):
        tool, more = given[number % len(given)]
        result = await place.run(hand, tool, **more)
        outcomes.add(result.outcome)
        assert "secret" not in result.content
    assert outcomes == {OK, ERROR}
    assert [(p.name, p.read_text()) for p in outside.iterdir()] == [("old", "secret")]


async def test_a_symlink_that_stays_inside_is_followed(place: Place, hand: str, root: Path) -> None:
    (root / "a").mkdir()
    (root / "a/f").write_text("in")
    (root / "b").symlink_to("a")
    assert (await place.run(hand, "read", file_path="b/f")).content == "in"
    assert (await place.run(hand, "write", file_path="b/g", content="y")).outcome == OK
    assert (root / "a/g").read_text() == "y"


async def test_fifos_devices_sockets_and_folders_are_refused_at_once_h39(
    place: Place, hand: str, root: Path
) -> None:
    os.mkfifo(root / "fifo")
    (root / "folder").mkdir()
    kinds = {"fifo": "a FIFO", "folder": "a folder"}
    if os.geteuid() == 0:
        os.mknod(root / "null", 0o600 | 0o020000, os.makedev(1, 3))
        kinds["null"] = "a device"
    for name, words in kinds.items():
        for tool, given in (("read", {}), ("write", {"content": "x"})):
            result = await place.run(hand, tool, file_path=name, **given)
            assert result.outcome == ERROR
            assert words in result.content


def test_without_openat2_no_symlink_is_followed_at_all_h39(tmp_path: Path) -> None:
    (tmp_path / "root/a").mkdir(parents=True)
    (tmp_path / "root/a/f").write_text("in")
    (tmp_path / "root/b").symlink_to("a")
    (tmp_path / "root/out").symlink_to(tmp_path)
    (tmp_path / "root/l").symlink_to("a/f")
    root = os.open(tmp_path / "root", os.O_PATH)
    with os.fdopen(walk_open(root, "a/./f", os.O_RDONLY)) as file:
        assert file.read() == "in"
    os.close(walk_open(root, ".", os.O_RDONLY | os.O_DIRECTORY))
    for name in ("b/f", "out", "l", "a/../a/f", "../root/a/f"):
        with pytest.raises(OSError, match=r"cross-device|symbolic links|Not a directory"):
            walk_open(root, name, os.O_PATH)
    made = walk_open(root, "a/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.close(made)
    os.close(root)


async def test_glob_lists_the_newest_first(place: Place, hand: str, root: Path) -> None:
    for age, name in enumerate(("src/a.py", "src/deep/b.py", "c.py", "src/d.txt", ".git/e.py")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
        os.utime(root / name, (1_000_000 - age, 1_000_000 - age))
    (root / "loop").symlink_to(".")
    for pattern, expected in {
        "**/*.py": ["src/a.py", "src/deep/b.py", "c.py"],
        "*.py": ["c.py"],
        "src/**": ["src/a.py", "src/deep/b.py", "src/d.txt"],
        "src/*.{py,txt}": ["src/a.py", "src/d.txt"],
        "**/[bc].py": ["src/deep/b.py", "c.py"],
        "s?c/a.py": ["src/a.py"],
    }.items():
        result = await place.run(hand, "glob", pattern=pattern)
        assert result.content.split("\n") == expected, pattern
    assert (await place.run(hand, "glob", pattern="*.py", path="src")).content == "src/a.py"
    assert (await place.run(hand, "glob", pattern="*.md")).content == "[no file matches]"
    for pattern in ("/etc/*", "../*"):
        assert (await place.run(hand, "glob", pattern=pattern)).outcome == ERROR
    assert (await place.run(hand, "glob", pattern="*", path="..")).outcome == ERROR


async def test_glob_gives_two_hundred_and_counts_the_rest(
    place: Place, hand: str, root: Path
) -> None:
    for number in range(203):
        (root / f"f{number:03}").touch()
    lines = (await place.run(hand, "glob", pattern="*")).content.split("\n")
    assert len(lines) == 201
    assert lines[-1] == "[3 more not shown; narrow the pattern]"


async def test_grep_gives_path_line_and_text(place: Place, hand: str, root: Path) -> None:
    (root / "a.txt").write_text("alpha\nbeta 1\n")
    (root / "b.txt").write_text("x" * 5000 + "beta 2\nbeta 3\n")
    (root / "bin").write_bytes(b"beta 4\0")
    (root / "out").symlink_to("/etc/passwd")
    os.mkfifo(root / "fifo")
    result = await place.run(hand, "grep", pattern=r"beta \d|root:")
    assert result.content == "a.txt:2:beta 1\nb.txt:2:beta 3"
    assert (await place.run(hand, "grep", pattern="al", path="a.txt")).content == "a.txt:1:alpha"
    assert (await place.run(hand, "grep", pattern="zz")).content == "[no line matches]"
    bad = await place.run(hand, "grep", pattern="(")
    assert (bad.outcome, "not a Python regular expression" in bad.content) == (ERROR, True)


async def test_grep_is_cut_at_its_limit(place: Place, hand: str, root: Path) -> None:
    (root / "a").write_text(("x" * 1000 + "\n") * 200)
    result = await place.run(hand, "grep", pattern="x")
    assert result.content.endswith("[cut at 102400 bytes; narrow the search]")
    assert len(result.content) < 103_000


async def test_a_pattern_that_backtracks_for_ever_is_cancelled_like_any_call(
    place: Place, hand: str, root: Path
) -> None:
    (root / "a").write_text("a" * 60 + "b\n")
    result = await place.run(hand, "grep", pattern="(a+)+$", limit=0.3)
    assert result.outcome == pb.OUTCOME_TIMED_OUT
    assert (await place.sh(hand, "echo on")).content == "on\n"


async def test_a_workspace_that_is_gone_is_an_answer_not_a_crash(
    place: Place, hand: str, root: Path
) -> None:
    root.rmdir()
    result = await place.run(hand, "read", file_path="f")
    assert result.outcome == ERROR
    assert "does not exist" in result.content
    assert (await place.sh(hand, "true")).outcome == ERROR


async def test_file_names_of_any_bytes_come_back_as_text(
    place: Place, hand: str, root: Path
) -> None:
    Path(os.fsdecode(os.fsencode(root) + b"/\xff.txt")).touch()
    assert (await place.run(hand, "glob", pattern="*.txt")).content == "\ufffd.txt"
