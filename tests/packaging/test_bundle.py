"""What a machine installs from without a registry, at a bare Debian that has no network."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import debian_root
from tests.engine import engine, missing
from tests.images import DEBIAN, add_debian
from tests.packaging.bundles import Made

ROOT = Path(__file__).parent.parent.parent
CONTAINER_DEADLINE = 240

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare Debian that no test changes."""
    if os.geteuid() != 0:
        pytest.skip("a bare Debian's files need root")
    return debian_root.make(tmp_path_factory.mktemp("debian") / "root")


@pytest.fixture
def root(clean: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it."""
    copy = tmp_path / "root"
    subprocess.run(["cp", "-a", "--reflink=auto", clean, copy], check=True, timeout=120)
    yield copy
    shutil.rmtree(copy)


def test_the_bundle_installs_with_no_registry_and_again_in_its_own_place(
    made: Made, root: Path
) -> None:
    bound = {"/mnt": made.folder}
    for _ in range(2):
        done = debian_root.run(root, "/mnt/install", bound=bound)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "next: carpal hand enroll --token-file FILE"
    assert_a_hand_is_called(root)


def test_a_bundle_that_was_changed_is_refused_and_installs_nothing(
    made: Made, root: Path, tmp_path: Path
) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(made.folder, changed)
    with next((changed / "wheels").glob("carpal-*")).open("ab") as wheel:
        wheel.write(b"\0")
    done = debian_root.run(root, "/mnt/install", bound={"/mnt": changed})
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "install: this bundle is not as it was made; get it again"
    )
    assert not (root / "opt/carpal").exists()


def test_the_bundle_does_not_install_over_what_is_something_else(made: Made, root: Path) -> None:
    (root / "opt/carpal").mkdir()
    (root / "opt/carpal/kept").write_text("mine")
    done = debian_root.run(root, "/mnt/install", bound={"/mnt": made.folder})
    assert done.returncode == 2
    assert done.stderr == (
        "install: /opt/carpal is there and is something else; name another folder\n"
    )
    assert (root / "opt/carpal/kept").read_text() == "mine"


def test_a_system_without_a_library_that_is_needed_is_told_which(made: Made, root: Path) -> None:
    for library in root.glob("usr/lib/*/libstdc++.so*"):
        library.unlink()
    done = debian_root.run(root, "/mnt/install", bound={"/mnt": made.folder})
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("a bare Debian needs: apt-get install libstdc++6")
    done = debian_root.run(root, "/opt/carpal/bin/carpal", "hand", "doctor")
    assert done.returncode == 2
    assert done.stderr == (
        "carpal: this system has no library libstdc++.so.6: apt-get install libstdc++6\n"
    )


def test_the_debian_package_holds_all_it_installs_and_leaves_nothing(
    made: Made, root: Path
) -> None:
    done = debian_root.run(
        root, "dpkg", "-i", "/tmp/carpal.deb", bound={"/tmp/carpal.deb": made.deb}
    )
    assert done.returncode == 0, done.stderr
    assert_a_hand_is_called(root)
    verified = debian_root.run(root, "dpkg", "--verify", "carpal")
    assert (verified.returncode, verified.stdout) == (0, "")
    done = debian_root.run(root, "dpkg", "-r", "carpal")
    assert done.returncode == 0, done.stderr
    assert not (root / "opt/carpal").exists()
    assert not (root / "usr/bin/carpal").is_symlink()


def assert_a_hand_is_called(root: Path) -> None:
    """What is installed makes a process hand, and the hand answers."""
    asked = ("hand", "call", "process", "bash", '{"command": "echo from here"}')
    done = debian_root.run(root, "carpal", *asked)
    assert (done.returncode, done.stdout.strip()) == (0, "from here"), done.stderr


def test_the_container_file_is_built_on_a_base_of_debians_packages_and_runs(
    made: Made, tmp_path: Path
) -> None:
    if why := missing():
        pytest.skip(why)
    shutil.copy(made.deb, tmp_path / "carpal.deb")
    shutil.copy(ROOT / "deploy/Containerfile", tmp_path)
    with engine() as private:
        add_debian(private.client)
        image, _ = private.client.images.build(
            path=str(tmp_path),
            dockerfile="Containerfile",
            buildargs={"BASE": DEBIAN, "DEB": "carpal.deb"},
            network_mode="none",
            timeout=CONTAINER_DEADLINE,
        )
        try:
            said = private.client.containers.run(image.id, ["--help"], network_mode="none")
            assert "Run the daemon" in said.decode()
            unknown = private.client.containers.run(
                image.id, ["status"], network_mode="none", detach=True
            )
            assert unknown.wait(timeout=CONTAINER_DEADLINE)["StatusCode"] == 3
            assert b"carpal hand run" in unknown.logs()
        finally:
            private.client.images.remove(image.id, force=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--python", "3.9"], "bundle: --python 3.9: 3.11 or newer"),
        (["--machine", "riscv64"], "bundle: --machine riscv64: x86_64 or aarch64"),
        (["--out"], "bundle: --out needs a value"),
        (["--wat"], "usage: scripts/bundle"),
    ],
)
def test_a_wrong_argument_of_the_bundle_is_said(arguments: list[str], said: str) -> None:
    done = subprocess.run(
        ["scripts/bundle", *arguments],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(said)
