"""Which folders of the machine a hand may have as its workspace, and that it gets that very one."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from hands.builtin.bound import bound
from hands.contract import Order, ProvisionFailed
from tests.hands.place import Place


@pytest.fixture
def theirs() -> Iterator[int]:
    """A process of another user, when this one is root."""
    user = {"user": 65533, "group": 65533} if os.geteuid() == 0 else {}
    process = subprocess.Popen(["/bin/sleep", "60"], **user)  # type: ignore[call-overload]
    yield process.pid
    process.kill()
    process.wait()


def asked(tmp_path: Path, workspace: object) -> Order:
    folder = tmp_path / "state/hands/h"
    folder.mkdir(parents=True, exist_ok=True)
    return Order("h", folder, {"workspace": str(workspace)}, {}, 60.0)


def refused(tmp_path: Path, workspace: object) -> str:
    with pytest.raises(CarpalError) as error:
        bound(asked(tmp_path, workspace))
    assert error.value.reason is Reason.INVALID_FIELD
    assert error.value.fields["field"] == "config.workspace"
    return error.value.message


def test_what_is_the_kernels_is_no_workspace(tmp_path: Path, theirs: int) -> None:
    for path in (f"/proc/{theirs}", f"/proc/{theirs}/task", "/proc", "/dev/shm", "/dev", "/sys"):
        assert "no folder of files" in refused(tmp_path, path), path
    refused(tmp_path, f"/proc/{theirs}/root/etc")
    refused(tmp_path, f"/proc/{theirs}/cwd")


def test_what_is_the_daemons_own_is_no_workspace_nor_what_holds_it(tmp_path: Path) -> None:
    other = tmp_path / "state/hands/other/workspace"
    other.mkdir(parents=True)
    for path in (other, f"/{other}", f"{other}/../workspace", tmp_path / "state", tmp_path, "/"):
        refused(tmp_path, path)


def test_no_symlink_leads_to_a_workspace(tmp_path: Path) -> None:
    (tmp_path / "real/below").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    for path in ("link", "link/below"):
        assert str(tmp_path / "link") in refused(tmp_path, tmp_path / path)
    found = bound(asked(tmp_path, tmp_path / "real/below/"))
    assert found is not None
    assert found.path == tmp_path / "real/below"
    for path in ("none", "real/below/none", "\0"):
        refused(tmp_path, tmp_path / path)
    refused(tmp_path, "relative")


def test_a_folder_that_was_exchanged_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    found = bound(asked(tmp_path, tmp_path / "mine"))
    assert found is not None
    monkeypatch.setattr("hands.builtin.bound.bwrap.WORKSPACE", str(tmp_path / "mine"))
    found.check(os.getpid())
    (tmp_path / "mine").rename(tmp_path / "moved")
    (tmp_path / "mine").mkdir()
    with pytest.raises(ProvisionFailed, match="exchanged"):
        found.check(os.getpid())


async def test_another_hands_folder_is_refused_to_a_hand(place: Place) -> None:
    other = await place.hand()
    with pytest.raises(CarpalError, match="the daemon's own"):
        await place.hand(workspace=str(place.inventory.folder_of(other) / "workspace"))
