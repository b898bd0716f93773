"""`carpal hand` on bad input: one line that says what and what to do, and an exit code."""

import contextlib
import os
import pty
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
        (("run",), "", 2, "carpal hand enroll --token-file FILE"),
        (("diagnose",), "", 2, "carpal hand enroll --token-file FILE"),
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


def test_a_person_who_enrols_is_asked_for_the_token(tmp_path: Path) -> None:
    terminal, stdin = pty.openpty()
    try:
        os.write(terminal, b"carpal1.not-whole\n")
        ran = subprocess.run(
            [sys.executable, "-m", "carpal", "hand", "enroll", "--token-file", "-"],
            cwd=ROOT, env={**os.environ, "CARPAL_STATE": str(tmp_path)}, stdin=stdin,
            capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
    finally:
        os.close(terminal)
        os.close(stdin)
    assert ran.stderr.startswith("paste the token, and Enter:\ncarpal: ")
    assert ran.returncode == 2


def test_a_token_that_a_service_manager_hands_over_is_used_and_none_is_no_token(
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text("none")
    environ = {**os.environ, "CREDENTIALS_DIRECTORY": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "carpal",
        "hand",
        "run",
        "--state-dir",
        str(tmp_path / "state"),
    ]

    def said() -> str:
        return subprocess.run(
            command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False,
            timeout=PATIENCE,
        ).stderr  # fmt: skip

    assert "this machine is not enrolled" in said()
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    assert said() == "carpal: the token is not text: paste the whole line again\n"
    (tmp_path / "token").write_text("carpal1.not-whole\n")
    assert "token" in said()
    assert "not enrolled" not in said()
