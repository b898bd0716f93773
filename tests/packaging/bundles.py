"""What `scripts/bundle --deb` makes, once for all tests that install from it."""

import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Made:
    """What `scripts/bundle --deb` made, and the bundle unpacked."""

    deb: Path
    folder: Path


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Both, once."""
    out = tmp_path_factory.mktemp("bundle")
    done = subprocess.run(
        ["scripts/bundle", "--deb", "--python", debian_python(), "--out", out],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    packed, deb = (Path(line) for line in done.stdout.splitlines())
    with tarfile.open(packed) as tar:
        tar.extractall(out, filter="data")
    return Made(deb, out / packed.name.removesuffix(".tar.gz"))


def debian_python() -> str:
    """The Python of the Debian that the tests make, which is this machine's."""
    said = subprocess.run(
        ["/usr/bin/python3", "-V"], capture_output=True, text=True, timeout=30, check=True
    )
    return said.stdout.split()[1].rpartition(".")[0]
