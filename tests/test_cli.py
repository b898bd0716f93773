"""The `carpal` command finds its parts where it is installed, and nowhere else."""

import subprocess
import sys
from pathlib import Path

from carpal.process import interpreter
from tests.command import ROOT, Command

SECONDS = 30.0


def test_a_folder_of_the_users_with_the_name_of_a_part_is_not_taken_for_it(
    tmp_path: Path,
) -> None:
    for name in ("vault", "carpal", "brain"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('not this one')\n")
    ended = subprocess.run(
        [*interpreter(), "vault", "--help"],
        cwd=tmp_path,
        env=Command(tmp_path).environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "certificate authority" in ended.stdout


def test_without_an_installation_one_line_says_so(tmp_path: Path) -> None:
    none = "import importlib.metadata as m; m.entry_points = lambda **_: []; "
    for arguments in ("['--help']", "['run', 'x']"):
        code = f"import sys; sys.argv[1:] = {arguments}; {none}import carpal.cli as c; c.main()"
        ended = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith("carpal: carpal is not installed, so it has no commands: ")
        assert ended.stderr.count("\n") == 1
