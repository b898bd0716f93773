"""Process hands of a daemon that is an ordinary user: what is left to it is used, and no more said.

The tests may be root's, as in CI; here a daemon runs as a user that nobody is.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hands.isolation import cgroups
from tests.hands.unprivileged import LIMITS
from tests.pace import SCALE

_REPOSITORY = Path(__file__).resolve().parents[2]
_FIRST = 710_000
"""Users that no machine has; each process of the tests takes another."""


@pytest.fixture
def user() -> int:
    """An ordinary one: the tests' own, or one that only this process of them is."""
    return os.geteuid() or _FIRST + os.getpid() % 10_000


@pytest.fixture
def state(user: int) -> Iterator[Path]:
    """A daemon's folder, of that user's."""
    with tempfile.TemporaryDirectory(prefix="carpal-user-", dir="/tmp") as name:
        os.chown(name, user, user if os.geteuid() == 0 else -1)
        yield Path(name) / "state"


@pytest.fixture
def delegated(user: int) -> Iterator[Path]:
    """A control group for processes that is the user's own, in which to start a daemon."""
    base = cgroups.seen().get("pids")
    if os.geteuid() != 0 or base is None or base.version != 1:
        pytest.skip("to delegate a control group needs root, and its version 1")
    folder = base.folder / f"carpal-test-{user}"
    folder.mkdir()
    try:
        for path in (folder, *folder.iterdir()):
            os.chown(path, user, user)
        yield folder / "cgroup.procs"
    finally:
        folder.rmdir()


def used(user: int, state: Path, sandbox: str, group: Path | None = None) -> dict[str, Any]:
    """What a daemon of that user's makes of process hands."""
    python = _python(user)
    join = [*("sh", "-c", 'echo 0 >"$1" && shift && exec "$@"', "sh", str(group))] if group else []
    ran = subprocess.run(
        [
            *([*join, *_as(user)] if os.geteuid() == 0 else []),
            *(python, "-m", "tests.hands.unprivileged", str(state), sandbox),
        ],
        cwd=_REPOSITORY,
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(state.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join([str(_REPOSITORY), sysconfig.get_path("purelib")]),
        },
        capture_output=True,
        text=True,
        timeout=50 * SCALE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def _as(user: int) -> list[str]:
    # By another program: setpriv itself still finds what is in a folder of root's.
    return ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", "env"]


def _python(user: int) -> str:
    """One that this user can start, of this very version: ours may be in a folder of root's."""
    if os.geteuid() != 0:
        return sys.executable
    plain = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for each in (sys.executable, shutil.which(plain, path="/usr/local/bin:/usr/bin")):
        if (
            each
            and not subprocess.run(
                [*_as(user), each, "-c", ""], capture_output=True, check=False, timeout=20 * SCALE
            ).returncode
        ):
            return each
    pytest.skip(f"no {plain} here that another user may start")


def test_a_daemon_that_is_not_root_uses_what_is_left_and_says_and_refuses_what_it_cannot_keep(
    user: int, state: Path
) -> None:
    told = used(user, state, "auto")
    assert told["uid"] == user
    assert told["ready"]
    assert told["cannot"] == sorted(LIMITS), "said by Probe"
    if not told["isolated"]:
        pytest.skip(f"no sandbox for another user here: {told['not_enforced']}")
    assert told["description"].endswith("in a sandbox.")
    assert told["not_enforced"] == [
        "runs as the daemon's user: it has no user of its own",
        "the number of its processes is not limited",
    ]
    assert told["said"] == f"{user}\nhi\n/workspace\n"
    for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"):
        assert line in told["status"]
    assert "Seccomp:\t2" in told["status"]
    assert told["seen"].count("No such file") == 3, "of the machine, its programs alone"
    assert told["owner"] == user
    assert told["refused"] == {name: ["LIMIT_NOT_ENFORCEABLE", f"limits.{name}"] for name in LIMITS}
    assert told["released"]
    assert told["left"] == []


def test_a_daemon_that_is_not_root_and_has_no_sandbox_says_so_and_refuses_every_limit(
    user: int, state: Path
) -> None:
    told = used(user, state, "off")
    assert told["ready"]
    assert not told["isolated"]
    assert told["description"].endswith("without a sandbox.")
    assert told["cannot"] == sorted(LIMITS)
    assert "without a sandbox" in told["not_enforced"][0]
    assert any("network" in each for each in told["not_enforced"])
    assert told["said"].startswith(f"{user}\nhi\n{state}/")
    assert told["refused"] == {name: ["LIMIT_NOT_ENFORCEABLE", f"limits.{name}"] for name in LIMITS}
    assert told["left"] == []


def test_a_control_group_that_is_delegated_to_a_daemon_that_is_not_root_is_used_and_no_other(
    user: int, state: Path, delegated: Path
) -> None:
    told = used(user, state, "auto", delegated)
    if not told["isolated"]:
        pytest.skip(f"no sandbox for another user here: {told['not_enforced']}")
    assert told["cannot"] == ["cpus", "disk_bytes", "memory_bytes"]
    assert told["not_enforced"] == ["runs as the daemon's user: it has no user of its own"]
    assert sorted(told["refused"]) == ["cpus", "disk_bytes", "memory_bytes"]
    assert "Resource temporarily unavailable" in told["processes"]
