"""File tools: what is written is read, and no path leads out of the workspace."""

import hashlib
from typing import Any

from carpal.v1 import hand_pb2 as pb
from carpal.verdict import equal, must
from hands.conformance.bench import Bench, number
from hands.conformance.group import Group
from hands.conformance.hand import Answer, HandAt

files = Group("files")

_FAST = 5.0
"""Seconds for a refusal."""
_TEXTS = (
    "",
    "no end",
    "two\nlines\n",
    "dos\r\n",
    "tab\tand €, 漢, 🜁\n",
    "\u2028\x1b[0m",
    "x" * 200_000,
)
_PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\0\0\0\0"
"""As far as anyone looks who does not show it."""
_TMP = "/tmp"  # noqa: S108 - to be kept out of
_PLAIN = "root:"
"""What /etc/passwd holds."""


async def _write(hand: HandAt, path: str, content: str) -> Answer:
    return await hand.run("write", {"file_path": path, "content": content})


async def _read(hand: HandAt, path: str) -> Answer:
    return await hand.run("read", {"file_path": path})


@files("h39")
async def round_trip(bench: Bench) -> None:
    """What is written is read back, to the byte, in folders that writing made."""
    hand = await bench.hand()
    for index, text in enumerate(_TEXTS):
        path = f"new/folder {index}/file"
        (await _write(hand, path, text)).ended(pb.OUTCOME_OK)
        answer = (await _read(hand, path)).ended(pb.OUTCOME_OK)
        if text:  # a result is never empty
            equal(f"text {index}", answer.text, text)


@files("h39", needs=("shell",))
async def same_files(bench: Bench) -> None:
    """Files are those that the shell sees, as they are, and as it changes them."""
    hand = await bench.hand()
    await _write(hand, "f", "one\r\ntwo")
    equal("its bytes", (await hand.sh("cat f")).output, b"one\r\ntwo")
    await hand.sh("mkdir d; printf three > d/g; chmod 755 d/g; cd d")
    equal("the other's", (await _read(hand, "d/g")).text, "three")
    await _write(hand, "d/g", "four")
    equal("its mode", (await hand.sh("stat -c %a g")).text, "755\n")


@files("h39")
async def edited(bench: Bench) -> None:
    """An edit replaces what occurs once; what does not is an error, and changes nothing."""
    hand = await bench.hand()
    await _write(hand, "f", "a b b")

    async def edit(old: str, new: str, **more: Any) -> Answer:
        given = {"file_path": "f", "old_string": old, "new_string": new, **more}
        return await hand.run("edit", given)

    (await edit("a", "A")).ended(pb.OUTCOME_OK)
    (await edit("b", "B")).fails()
    (await edit("none", "B")).fails()
    equal("the file", (await _read(hand, "f")).text, "A b b")
    (await edit("b", "B", replace_all=True)).ended(pb.OUTCOME_OK)
    equal("the file, then", (await _read(hand, "f")).text, "A B B")


@files("h39")
async def found(bench: Bench) -> None:
    """glob finds files by their names, and grep lines by what they hold."""
    hand = await bench.hand()
    await _write(hand, "src/one.py", "first\nneedle here\n")
    await _write(hand, "src/two.c", "needle\n")
    answer = await hand.run("glob", {"pattern": "**/*.py"})
    equal("glob", answer.ended(pb.OUTCOME_OK).text.split(), ["src/one.py"])
    answer = await hand.run("grep", {"pattern": "need.e", "path": "src"})
    lines = sorted(answer.ended(pb.OUTCOME_OK).text.splitlines())
    equal("grep", lines, ["src/one.py:2:needle here", "src/two.c:1:needle"])


@files("h46", needs=("shell",))
async def pictures(bench: Bench) -> None:
    """Of a picture that is read its bytes are no text: they are attached, or an error says why."""
    hand = await bench.hand()
    octal = "".join(f"\\{byte:03o}" for byte in _PICTURE)
    await hand.sh(f"printf '{octal}' >shot.png")
    result = (await _read(hand, "shot.png")).result
    must("\ufffd" not in result.content and "IHDR" not in result.content, "its bytes are text")
    if result.outcome == pb.OUTCOME_OK:
        must("image/png" in result.content, f"no text stands for it: {result.content!r}")
    for image in result.attachments:
        equal("its media type", image.media_type, "image/png")
        equal("its digest", image.digest, hashlib.sha256(_PICTURE).digest())


@files("h39")
async def missing(bench: Bench) -> None:
    """A file that is not there is an error that names it, and the hand stays usable."""
    hand = await bench.hand()
    answer = (await _read(hand, "not/there")).fails()
    must("not/there" in answer.text, f"it is not named: {answer.text!r}")
    await _write(hand, "f", "usable")
    equal("the next call", (await _read(hand, "f")).text, "usable")


@files("h39")
async def outside(bench: Bench) -> None:
    """No path leads out of the workspace: neither `..`, nor an absolute one."""
    hand = await bench.hand()
    name = f"carpal-{number()}"
    for path in ("/etc/passwd", "../../../../../../../../etc/passwd", "a/../../../../etc/passwd"):
        answer = (await _read(hand, path)).fails()
        must(_PLAIN not in answer.text, f"{path} was read")
    for path in (f"{_TMP}/{name}", f"../{name}", f"a/../../{name}"):
        (await _write(hand, path, "out")).fails()
    given = {"file_path": "/etc/passwd", "old_string": _PLAIN, "new_string": _PLAIN}
    (await hand.run("edit", given)).fails()
    answer = await hand.run("grep", {"pattern": _PLAIN, "path": "/etc"})
    must("/passwd:" not in answer.text, "grep read /etc")
    answer = await hand.run("glob", {"pattern": "passwd", "path": "/etc"})
    must("passwd" not in answer.text.split(), "glob looked into /etc")


@files("h39", "h16", needs=("shell",))
async def links_outside(bench: Bench) -> None:
    """No link leads out of the workspace, neither to read nor to write, nor one to nothing."""
    hand = await bench.hand()
    target = f"{_TMP}/carpal-{number()}"
    await hand.sh(f"ln -s /etc/passwd leak; ln -s {target} nothing; ln -s / root; ln -s .. up")
    for path in ("leak", "root/etc/passwd", "up/../../../../../etc/passwd"):
        answer = (await _read(hand, path)).fails()
        must(_PLAIN not in answer.text, f"{path} was read")
    for path in ("nothing", f"root{target}", f"up/carpal-{number()}"):
        (await _write(hand, path, "out")).fails()
    answer = await hand.run("grep", {"pattern": _PLAIN})
    must(_PLAIN not in answer.text, "grep followed a link")
    equal("written", (await hand.sh(f"[ -e {target} ] || echo nothing")).text, "nothing\n")


@files("h39", "h16", needs=("shell",))
async def swapped(bench: Bench) -> None:
    """A folder that becomes a link out while it is read gives nothing from outside."""
    hand = await bench.hand()
    await hand.sh("mkdir mine; echo mine > mine/passwd; ln -s /etc out")
    swapping = "while :; do ln -sfn mine d; ln -sfn /etc d; ln -sfn out d; done"
    await hand.sh(f"({swapping}) >/dev/null 2>&1 & :")
    for _ in range(40):
        must(_PLAIN not in (await _read(hand, "d/passwd")).text, "what is outside was read")


@files("h39", "h16", needs=("shell",))
async def swapped_to_write(bench: Bench) -> None:
    """A folder that becomes a link out while it is written to has nothing written outside."""
    hand = await bench.hand()
    out = f"{_TMP}/carpal-{number()}"
    await hand.sh(f"mkdir mine {out}; ln -s mine d")
    swapping = f"while :; do ln -sfn mine d; ln -sfn {out} d; done"
    await hand.sh(f"({swapping}) >/dev/null 2>&1 & :")
    for index in range(40):
        await _write(hand, f"d/{index}", "x")
    written = await hand.sh(f"ls {out} | wc -l; rm -r {out}")
    equal("files outside", written.text.split()[0], "0")


@files("h39", needs=("shell",), alone=True)
async def no_plain_file(bench: Bench) -> None:
    """A pipe, a device or a folder is refused at once, to read and to write."""
    hand = await bench.hand()
    await hand.sh("mkfifo pipe; mkdir folder; ln -s /dev/zero zero")
    for path in ("pipe", "folder", "zero"):
        (await _read(hand, path)).fails().within(bench.slow(_FAST))
        (await _write(hand, path, "x")).fails().within(bench.slow(_FAST))
