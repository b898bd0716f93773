"""The tools that Claude knows as its text editor and its memory, by a real supervisor."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from carpal.v1 import hand_pb2 as pb
from tests.hands.place import Place

OK, ERROR = pb.OUTCOME_OK, pb.OUTCOME_ERROR
EDITOR, MEMORY = "str_replace_based_edit_tool", "memory"


@pytest.fixture
def root(place: Place, hand: str) -> Path:
    """The hand's workspace, seen from outside."""
    return place.inventory.folder_of(hand) / "workspace"


async def do(place: Place, hand: str, tool: str, command: str, **given: Any) -> tuple[int, str]:
    """A command's outcome and content."""
    result = await place.run(hand, tool, command=command, **given)
    return result.outcome, result.content


async def test_what_the_editor_creates_it_shows_with_numbered_lines(
    place: Place, hand: str, root: Path
) -> None:
    edit = partial(do, place, hand, EDITOR)
    text = "one\r\ntwo\x0c…\u2028still two\nno end"
    assert await edit("create", path="a/f.txt", file_text=text) == (
        OK,
        f"made a/f.txt: {len(text.encode())} bytes",
    )
    assert (root / "a/f.txt").read_bytes() == text.encode()
    shown = "     1\tone\r\n     2\ttwo\x0c…\u2028still two\n     3\tno end"
    assert await edit("view", path="a/f.txt") == (OK, shown)
    assert await edit("view", path=str(root / "a/f.txt"), view_range=[2, -1]) == (
        OK,
        shown.partition("\n")[2],
    )
    outcome, said = await edit("view", path="a/f.txt", view_range=[4, 5])
    assert (outcome, said) == (ERROR, "a/f.txt has only 3 lines")
    assert (await edit("create", path="a/f.txt", file_text=""))[1].startswith("replaced")
    assert await edit("view", path="a/f.txt") == (OK, "[empty file]")


async def test_a_folder_is_shown_two_levels_deep_and_no_link_of_it_is_followed(
    place: Place, hand: str, root: Path
) -> None:
    for name in ("b/deep/er/x", "b/y", "a.txt", ".git/config", "node_modules/m/i.js"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "out").symlink_to("/etc")
    assert await do(place, hand, EDITOR, "view", path=".") == (
        OK,
        "., 2 levels deep, without hidden ones and node_modules; bytes and name:\n"
        "5\ta.txt\n-\tb/\n-\tb/deep/\n3\tb/y\n4\tout",
    )
    (root / "many").mkdir()
    for number in range(1003):
        (root / f"many/{number}").touch()
    _, said = await do(place, hand, EDITOR, "view", path="many")
    assert said.endswith("[more than 1000 entries; view a folder below]")
    assert said.count("\n") == 1001
    outcome, said = await do(place, hand, EDITOR, "view", path="b", view_range=[1, 2])
    assert (outcome, said) == (ERROR, "b is a folder: view it without view_range")


async def test_a_text_that_is_there_once_is_replaced_and_the_lines_around_are_shown(
    place: Place, hand: str, root: Path
) -> None:
    edit = partial(do, place, hand, EDITOR)
    (root / "f").write_text("".join(f"line {i}\n" for i in range(1, 21)))
    (root / "f").chmod(0o755)
    outcome, said = await edit("str_replace", path="f", old_str="line 10\n", new_str="ten\nten\n")
    assert outcome == OK
    assert said.splitlines()[0] == "edited f, which now reads:"
    assert said.splitlines()[1] == "     7\tline 7"
    assert "    10\tten\n    11\tten\n    12\tline 11\n" in said
    assert await edit("str_replace", path="f", old_str="line 20\n") == (
        OK,
        "edited f, which now reads:\n    18\tline 17\n    19\tline 18\n    20\tline 19",
    )
    assert (root / "f").read_text().endswith("line 19\n")
    assert (root / "f").stat().st_mode & 0o777 == 0o755
    large = "x" * 20_000
    _, said = await edit("str_replace", path="f", old_str="line 19", new_str=large)
    assert said == "edited f, which has 20 lines now"


async def test_a_text_that_is_not_there_once_changes_nothing_and_says_where_it_is(
    place: Place, hand: str, root: Path
) -> None:
    replace = partial(do, place, hand, EDITOR, "str_replace", path="f", new_str="x")
    before = b"aaa\r\nb\r\nb\r\n"
    (root / "f").write_bytes(before)
    for old, words in {
        "no": "old_str is not in f; view the file and copy it exactly",
        "b\nb": "old_str is not in f; its lines end in CRLF; view the file and copy it exactly",
        "b": "old_str occurs 2 times in f, on lines 2, 3; give more of the text around it",
        "aa": "old_str occurs 2 times in f, on lines 1, 1; give more of the text around it",
    }.items():
        assert await replace(old_str=old) == (ERROR, words)
    assert (root / "f").read_bytes() == before


async def test_inserted_text_is_lines_of_its_own(place: Place, hand: str, root: Path) -> None:
    for before, line, added, after in (
        ("a\nb\n", 0, "new", "new\na\nb\n"),
        ("a\nb\n", 1, "new\n", "a\nnew\nb\n"),
        ("a\nb\n", 2, "x\ny", "a\nb\nx\ny\n"),
        ("a\nb", 2, "new", "a\nb\nnew\n"),
        ("a\nb", 1, "", "a\n\nb"),
        ("", 0, "new", "new\n"),
    ):
        (root / "f").write_text(before)
        given = {"path": "f", "insert_line": line, "insert_text": added}
        outcome, said = await do(place, hand, EDITOR, "insert", **given)
        assert (outcome, (root / "f").read_text()) == (OK, after)
        assert f"{line + 1:6}\t{added.partition(chr(10))[0]}" in said


async def test_a_line_that_is_not_there_is_told_with_those_that_are(
    place: Place, hand: str, root: Path
) -> None:
    (root / "f").write_text("a\n")
    given = {"path": "f", "insert_line": 2, "insert_text": "x"}
    assert await do(place, hand, EDITOR, "insert", **given) == (
        ERROR,
        "insert_line must be 0 to 1: f has 1 line",
    )


async def test_what_is_too_large_to_show_or_edit_says_what_to_do(
    place: Place, hand: str, root: Path
) -> None:
    (root / "lines").write_text("\n" * 200_000)
    (root / "large").write_text("y\n" * 200_000)
    outcome, said = await do(place, hand, EDITOR, "view", path="lines")
    assert (outcome, "200000 lines to number; pass view_range" in said) == (ERROR, True)
    outcome, said = await do(place, hand, EDITOR, "view", path="large")
    assert (outcome, "pass view_range" in said) == (ERROR, True)
    assert (await do(place, hand, EDITOR, "view", path="lines", view_range=[1, 9]))[0] == OK
    given = {"path": "large", "insert_line": 0, "insert_text": "x"}
    outcome, said = await do(place, hand, EDITOR, "insert", **given)
    assert (outcome, "use bash" in said) == (ERROR, True)


async def test_memories_are_kept_in_the_workspace_and_edited_by_claudes_own_commands(
    place: Place, hand: str, root: Path
) -> None:
    memory = partial(do, place, hand, MEMORY)
    head = "/memories, 2 levels deep, without hidden ones; bytes and name:\n"
    assert await memory("view", path="/memories") == (OK, f"{head}[nothing]")
    assert await memory("create", path="/memories/a/likes.md", file_text="coffee\n") == (
        OK,
        "made /memories/a/likes.md: 7 bytes",
    )
    assert (root / "memories/a/likes.md").read_text() == "coffee\n"
    assert await memory("view", path="/memories/") == (
        OK,
        head.replace("/memories", "/memories/", 1) + "-\t/memories/a/\n7\t/memories/a/likes.md",
    )
    likes = {"path": "/memories/a/likes.md"}
    assert (await memory("str_replace", **likes, old_str="coffee", new_str="tea"))[0] == OK
    assert (await memory("insert", **likes, insert_line=1, insert_text="cake"))[0] == OK
    assert await memory("view", **likes) == (OK, "     1\ttea\n     2\tcake")
    moved = {"old_path": "/memories/a", "new_path": "/memories/b/c"}
    assert await memory("rename", **moved) == (OK, "renamed /memories/a to /memories/b/c")
    assert (root / "memories/b/c/likes.md").read_text() == "tea\ncake\n"
    assert await memory("delete", path="/memories/b") == (OK, "deleted /memories/b")
    itself = "/memories itself cannot be deleted; delete what is in it"
    assert await memory("delete", path="/memories") == (ERROR, itself)
    assert await memory("delete", path="/memories/") == (ERROR, itself)
    assert list((root / "memories").iterdir()) == []


async def test_memory_makes_nothing_over_what_is_there_and_says_what_is_not(
    place: Place, hand: str, root: Path
) -> None:
    memory = partial(do, place, hand, MEMORY)
    for name in ("a", "b"):
        await memory("create", path=f"/memories/{name}", file_text=name)
    for command, given, words in (
        ("create", {"path": "/memories/a", "file_text": "x"}, "/memories/a is there already"),
        ("create", {"path": "/memories/a/x", "file_text": "x"}, "is not a folder"),
        ("create", {"path": "/memories", "file_text": "x"}, "/memories is not the path of"),
        ("rename", {"old_path": "/memories/a", "new_path": "/memories/b"}, "is there already"),
        ("rename", {"old_path": "/memories/c", "new_path": "/memories/d"}, "does not exist"),
        ("rename", {"old_path": "/memories", "new_path": "/memories/d"}, "is not the path of"),
        ("delete", {"path": "/memories/c"}, "/memories/c does not exist"),
        ("delete", {"path": "/memories"}, "/memories itself cannot be deleted"),
        ("view", {"path": "/memories/c"}, "/memories/c does not exist"),
    ):
        outcome, said = await memory(command, **given)
        assert (outcome, words in said) == (ERROR, True), said
    assert sorted(p.name for p in (root / "memories").iterdir()) == ["a", "b"]
    assert [(root / "memories" / name).read_text() for name in "ab"] == ["a", "b"]
    (root / "memories/f").mkdir()
    outcome, said = await memory("rename", old_path="/memories/f", new_path="/memories/f/g")
    assert (outcome, said) == (ERROR, "/memories/f cannot be moved into itself")


async def test_no_path_of_editor_or_memory_leads_out_h16_h39(
    place: Place, hand: str, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "secret").write_text("secret")
    (root / "memories").mkdir()
    for folder in (root, root / "memories"):
        (folder / "link").symlink_to(outside / "secret")
        (folder / "folder").symlink_to(outside)
        (folder / "dangling").symlink_to(outside / "made")
        (folder / "up").symlink_to("..")
        (folder / "proc").symlink_to("/proc/self/root/etc/passwd")
    paths = ("link", "folder/secret", "dangling", "folder/made", "up/../x", "../x", "proc")
    given: dict[str, dict[str, Any]] = {
        "view": {},
        "create": {"file_text": "pwned"},
        "str_replace": {"old_str": "secret", "new_str": "pwned"},
        "insert": {"insert_line": 0, "insert_text": "pwned"},
    }
    for tool, start in ((EDITOR, ""), (MEMORY, "/memories/")):
        more = ("up/secret", "../secret") if tool == MEMORY else ("/etc/passwd", f"{root}/../x")
        for path in (*paths, *more):
            where = path if path[0] == "/" else start + path
            for command, rest in given.items():
                outcome, said = await do(place, hand, tool, command, path=where, **rest)
                assert outcome == ERROR, (tool, command, where, said)
                assert "\tsecret" not in said
    for path in ("folder/secret", "up/secret", "../secret"):
        for command, rest in (
            ("delete", {"path": f"/memories/{path}"}),
            ("rename", {"old_path": f"/memories/{path}", "new_path": "/memories/got"}),
        ):
            assert (await do(place, hand, MEMORY, command, **rest))[0] == ERROR
    # A link itself may go; what it leads to stays.
    assert (await do(place, hand, MEMORY, "delete", path="/memories/folder"))[0] == OK
    assert [(p.name, p.read_text()) for p in outside.iterdir()] == [("secret", "secret")]
    assert (root / "secret").read_text() == "secret"


async def test_a_folder_of_memories_that_is_a_link_out_is_not_used_h16_h39(
    place: Place, hand: str, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (root / "memories").symlink_to(tmp_path / "outside")
    given = {"path": "/memories/f", "file_text": "x"}
    outcome, said = await do(place, hand, MEMORY, "create", **given)
    assert (outcome, "leads out" in said) == (ERROR, True)
    assert not list((tmp_path / "outside").iterdir())


async def test_fifos_and_devices_are_refused_at_once_by_editor_and_memory_h39(
    place: Place, hand: str, root: Path
) -> None:
    (root / "memories").mkdir()
    for folder in (root, root / "memories"):
        os.mkfifo(folder / "fifo")
    for tool, start in ((EDITOR, ""), (MEMORY, "/memories/")):
        for command, rest in (("view", {}), ("insert", {"insert_line": 0, "insert_text": "x"})):
            outcome, said = await do(place, hand, tool, command, path=f"{start}fifo", **rest)
            assert (outcome, "is a FIFO" in said) == (ERROR, True)
    outcome, _ = await do(place, hand, MEMORY, "delete", path="/memories/fifo")
    assert outcome == OK
