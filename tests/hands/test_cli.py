"""`carpal hand` on bad input: one line that says what and what to do, and an exit code."""

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from carpal.identity import Role
from hands.enroll import Links, links_path
from hands.files import HandFiles
from tests.hands.place import PATIENCE
from tests.pki import Pki

ROOT = Path(__file__).parents[2]


def carpal(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command as a person does."""
    return subprocess.run(
        [sys.executable, "-m", "carpal", "hand", *arguments],
        cwd=ROOT,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


@pytest.mark.parametrize(
    ("arguments", "given", "code", "words"),
    [
        (("run",), "", 2, "carpal hand run --token-file FILE"),
        (("diagnose",), "", 2, "carpal hand run --token-file FILE"),
        (("retire", "--yes"), "", 2, "give its --state-dir"),
        (("run", "--label", "x"), "", 2, "KEY=VALUE"),
        (("run", "--config", "{tmp}/hand.toml"), "", 2, "unknown key 'hand_max'"),
        (("run", "--token-file", "{tmp}/nothing"), "", 2, "No such file"),
        (("run", "--token-file", "-"), "", 2, "empty"),
        (("enroll", "--token-file", "-"), "not a token\n", 2, "carpal1."),
        (("enroll",), "", 2, "--token-file"),
    ],
)
def test_bad_input_gets_one_line_and_a_documented_code(
    tmp_path: Path, arguments: tuple[str, ...], given: str, code: int, words: str
) -> None:
    (tmp_path / "hand.toml").write_text("hand_max = 3\n")
    filled = [one.replace("{tmp}", str(tmp_path)) for one in arguments]
    ran = carpal(*filled, "--state-dir", str(tmp_path / "state"), given=given)
    assert ran.returncode == code, ran.stderr
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith(("carpal: ", "Error: "))
    assert not (tmp_path / "state").exists(), "a mistyped folder is not made"


def test_a_journal_that_is_another_programs_is_refused_in_one_line(tmp_path: Path) -> None:
    files = HandFiles(tmp_path / "state")
    Pki(tmp_path / "pki").issue(Role.DAEMON, "d", directory=files.identity_dir)
    Links(("127.0.0.1:1",), "127.0.0.1:1").save(links_path(files.identity_dir))
    with contextlib.closing(sqlite3.connect(files.journal)) as other:
        other.execute("CREATE TABLE recipes (name TEXT)")
    ran = carpal("run", "--state-dir", str(tmp_path / "state"))
    assert ran.returncode == 2
    assert "another program" in ran.stderr
    assert "Traceback" not in ran.stderr
