"""`carpal hand new` and `carpal hand call`, as somebody who writes a hand type uses them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import ROOT, SECONDS, Command
from tests.hands.plugins.found import installed
from tests.pace import SCALE
from tests.png import png

LIGHT = png()
PICTURE = f"""
from hands.api import Context, HandType, tool

class Lamp(HandType):
    'A lamp.'
    @tool()
    def look(self, context: Context) -> str:
        'Look.'
        context.attach({LIGHT!r}, 'image/png', 'lamp.png')
        return 'it shines'
"""


def ran(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A module of this Python, run as a program."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, **environ, "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=50 * SCALE,
    )


async def made(command: Command, tmp_path: Path) -> Path:
    """A new type's folder."""
    ended = await command("hand", "new", "lamp", "--in", str(tmp_path))
    assert (ended.code, ended.stderr) == (0, "")
    assert "next: pip install -e" in ended.stdout
    command.environ["PYTHONPATH"] += os.pathsep + installed(tmp_path / "lamp", tmp_path)
    command.environ["CARPAL_SANDBOX"] = "off"
    return tmp_path / "lamp"


async def test_a_new_type_is_one_short_file_that_passes_its_test_and_runs_its_calls(
    tmp_path: Path,
) -> None:
    command = Command(tmp_path)
    folder = await made(command, tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == [
        "lamp.py",
        "pyproject.toml",
        "test_lamp.py",
    ]
    assert len((folder / "lamp.py").read_text().splitlines()) < 40
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert "dependencies" not in project  # a registry's `carpal` would not be this one
    tested = ran("pytest", "-q", "-p", "no:cacheprovider", str(folder), **command.environ)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "4 passed" in tested.stdout
    ended = await command("hand", "call", "lamp", "greet", '{"whom": "Ada"}')
    assert (ended.code, ended.stdout) == (0, "Welcome, Ada.\n")
    assert ended.stderr.splitlines() == ["It is kind to whoever is greeted."]


async def test_what_is_wrong_with_a_call_is_said_with_its_exit_code(tmp_path: Path) -> None:
    command = Command(tmp_path)
    await made(command, tmp_path)
    for code, says, arguments in [
        (1, "say whom to greet: the name is empty", ("lamp", "greet", '{"whom": ""}')),
        (2, "whom: is required", ("lamp", "greet")),
        (2, "JSON: must be a JSON object", ("lamp", "greet", "[]")),
        (5, "a lamp hand has no tool 'sing'; it has greet, count", ("lamp", "sing")),
        (5, "no hand type 'lantern' is installed here", ("lantern", "greet")),
        (
            2,
            "config.manner: must be one of kind, curt",
            ("lamp", "greet", '{"whom": "A"}', "--hand-config", '{"manner": "rude"}'),
        ),
        (
            1,
            "[timed out after 0.5 s; stopped]",
            ("lamp", "count", '{"to": 1000}', "--time-limit", "0.5"),
        ),
    ]:
        ended = await command("hand", "call", *arguments)
        assert ended.code == code, (arguments, ended)
        assert says in ended.stdout + ended.stderr, arguments
        assert "Traceback" not in ended.stderr


async def test_output_comes_to_standard_error_and_the_result_to_standard_output(
    tmp_path: Path,
) -> None:
    command = Command(tmp_path)
    ended = await command(
        *("hand", "call", "process", "bash", '{"command": "echo out; exit 3"}'),
        *("--sandbox", "off", "--json"),
    )
    assert ended.code == 1
    assert "out\n" in ended.stderr
    shown = json.loads(ended.stdout)
    assert (shown["outcome"], shown["exit_code"]) == ("error", 3)
    assert shown["content"] == "out\n[exit code 3]"


async def test_what_is_attached_is_saved_by_its_name_and_nothing_is_written_over(
    tmp_path: Path,
) -> None:
    command = Command(tmp_path)
    folder = await made(command, tmp_path)
    (folder / "lamp.py").write_text(PICTURE)
    saved = tmp_path / "saved"
    call = ("hand", "call", "lamp", "look", "--save", str(saved))
    ended = await command(*call, "--json")
    (one,) = json.loads(ended.stdout)["attachments"]
    assert one == {
        "name": "lamp.png",
        "media_type": "image/png",
        "size": len(LIGHT),
        "file": str(saved / "lamp.png"),
    }
    assert (saved / "lamp.png").read_bytes() == LIGHT
    (saved / "lamp.png").write_bytes(b"mine")
    again = await command(*call)
    assert f"saved {saved}/lamp-2.png (image/png, {len(LIGHT)} bytes)" in again.stderr
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == {
        "lamp.png": b"mine",
        "lamp-2.png": LIGHT,
    }


async def test_a_folder_that_cannot_be_made_is_told_before_there_is_any_hand(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    ended = await Command(tmp_path)(
        *("hand", "call", "process", "bash", '{"command": "echo made >&2"}'),
        *("--sandbox", "off", "--save", str(tmp_path / "file/under")),
    )
    assert (ended.code, "made\n" in ended.stderr) == (2, False)
    assert f"--save: {tmp_path}/file/under cannot be made" in ended.stderr


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Children take SIGINT, also when a script runs the tests with `&`: its shell ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
async def test_a_call_that_is_interrupted_leaves_no_hand(tmp_path: Path) -> None:
    command = Command(tmp_path)
    await made(command, tmp_path)
    async with command.start("hand", "call", "lamp", "count", '{"to": 6000}') as process:
        assert process.stderr is not None
        async with asyncio.timeout(SECONDS):
            while b"2\n" not in (line := await process.stderr.readline()):
                assert line, "it ended before it was interrupted"
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
    mine = b"lamp:Lamp"
    left = [
        path
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if mine in _read(path) and str(tmp_path).encode() in _read(path.with_name("environ"))
    ]
    assert left == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Lamp", "is not 1 to 40 of a-z"),
        ("../x", "is not 1 to 40 of a-z"),
        ("class", "is not 1 to 40 of a-z"),
        ("json", "is the name of a Python package"),
        ("hands", "is the name of a Python package"),
        ("process", "there is a hand type 'process' here already"),
        ("there", "is there already: remove it"),
    ],
)
async def test_a_name_that_cannot_be_is_refused_and_nothing_is_written(
    name: str, says: str, tmp_path: Path
) -> None:
    where = tmp_path / "where"
    (where / "there").mkdir(parents=True)
    ended = await Command(tmp_path)("hand", "new", name, "--in", str(where))
    assert ended.code == 2
    assert says in ended.stderr
    assert sorted(path.name for path in where.rglob("*")) == ["there"]


@pytest.mark.slow
async def test_what_new_writes_is_a_package_that_pip_builds(tmp_path: Path) -> None:
    folder = await made(Command(tmp_path), tmp_path)
    built = ran(
        *("pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index"),
        *("--wheel-dir", str(tmp_path / "wheels"), str(folder)),
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        entries = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "lamp = lamp:Lamp" in archive.read(entries).decode()
        assert "lamp.py" in archive.namelist()


def test_what_an_author_imports_is_there_at_once_and_brings_no_grpc() -> None:
    program = (
        "import sys, time; began = time.process_time(); import hands.api; "
        "print(time.process_time() - began); "
        "print([each for each in sys.modules if each.split('.')[0] in "
        "('grpc', 'google', 'msgspec', 'click', 'carpal', 'cryptography')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=30 * SCALE,
    )
    seconds, modules = done.stdout.splitlines()
    assert float(seconds) <= 0.3
    assert modules == "[]"
    assert len((ROOT / "hands" / "api.py").read_text().splitlines()) <= 150
