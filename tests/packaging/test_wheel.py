"""The built wheel, installed alone: what an editable install would hide.

The base install is what a daemon's machine gets, so it must be small, must serve
`carpal hand`, and must say what to install for the rest.
"""

import os
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from carpal import extras

ROOT = Path(__file__).parent.parent.parent
MAX_BASE_BYTES = 50_000_000
"""The base install as its wheels unpack, dependencies included: no pip, no byte code."""
MAX_BYTE_CODE = 15_000_000
"""What pip adds to it by compiling every file."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Install:
    """A virtual environment that holds the wheel and its base dependencies."""

    directory: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One program of the environment, away from the checkout."""
        program, *rest = arguments
        return subprocess.run(
            [self.directory / "bin" / program, *rest],
            check=False,
            cwd=self.directory,
            env={"PATH": os.environ["PATH"], "HOME": str(self.directory)},
            capture_output=True,
            text=True,
            timeout=60,
        )


def command(*arguments: str | Path) -> None:
    """Run a tool of this environment; its output is the failure's message."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist as a release would be."""
    out = tmp_path_factory.mktemp("dist")
    command("build", "--no-isolation", "--outdir", out, ROOT)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Install:
    """`pip install carpal`, in an environment of its own."""
    directory = tmp_path_factory.mktemp("base")
    command("venv", "--without-pip", directory)
    command("pip", "--python", directory / "bin" / "python", "install", "--quiet", wheel)
    return Install(directory)


def test_the_wheel_holds_every_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    packages = ("carpal", "brain", "hands", "sessiond", "vault")
    sources = {
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyi"
    }
    protos = {
        f"carpal/protos/{path.relative_to(ROOT / 'proto').as_posix()}"
        for path in (ROOT / "proto").rglob("*.proto")
    }
    assert packed == sources | protos


def test_the_base_install_is_small_enough_for_any_machine(base: Install) -> None:
    site = base.directory / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    files = [path for path in site.rglob("*") if path.is_file()]
    made = sum(path.lstat().st_size for path in files if path.suffix == ".pyc")
    used = sum(path.lstat().st_size for path in files) - made
    assert used <= MAX_BASE_BYTES, f"{used / 1e6:.1f} MB"
    assert 0 < made <= MAX_BYTE_CODE, f"{made / 1e6:.1f} MB of byte code"


def test_the_base_install_imports_from_the_wheel_and_not_from_the_checkout(base: Install) -> None:
    done = base.run("python", "-c", "import carpal, hands; print(carpal.__file__, hands.__file__)")
    assert done.returncode == 0, done.stderr
    assert all(path.startswith(str(base.directory)) for path in done.stdout.split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["hand", "--help"]])
def test_the_base_install_serves_the_hand_command(base: Install, arguments: list[str]) -> None:
    done = base.run("carpal", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ("brain run --name b", "brain"),
        ("practice serve", "brain"),
        ("sessiond run", "sessiond"),
        ("vault init", "vault"),
        ("vault run", "vault"),
    ],
)
def test_a_command_of_a_missing_extra_says_what_to_install(
    base: Install, arguments: str, extra: str, tmp_path: Path
) -> None:
    state = [] if arguments.startswith("practice") else ["--state-dir", str(tmp_path / "state")]
    done = base.run("carpal", *arguments.split(), *state)
    assert done.returncode == 2, done.stdout + done.stderr
    assert extras.how(extra) in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_base_install_writes_the_contract_for_other_languages(
    base: Install, tmp_path: Path
) -> None:
    done = base.run("carpal", "proto", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    for path in (ROOT / "proto").rglob("*.proto"):
        written = tmp_path / path.relative_to(ROOT / "proto")
        assert written.read_bytes() == path.read_bytes()
    assert (tmp_path / "google" / "rpc" / "error_details.proto").exists()


def test_the_base_install_writes_a_hand_type_and_calls_it(base: Install, tmp_path: Path) -> None:
    assert base.run("carpal", "hand", "new", "lamp", "--in", str(tmp_path)).returncode == 0
    wheels = tmp_path / "wheels"
    # By this environment's builder: there is none in that one, and no registry is asked for one.
    building = ("--no-build-isolation", "--no-deps", "--wheel-dir", wheels)
    command("pip", "wheel", "--quiet", *building, tmp_path / "lamp")
    python = base.directory / "bin" / "python"
    command("pip", "--python", python, "install", "--quiet", "--no-deps", *wheels.glob("*.whl"))
    done = base.run("carpal", "hand", "call", "lamp", "greet", '{"whom": "Ada"}')
    assert (done.returncode, done.stdout) == (0, "Welcome, Ada.\n"), done.stderr
