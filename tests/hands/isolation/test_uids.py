"""A user id for each hand."""

import os
from pathlib import Path

import pytest

from hands.contract import ProvisionFailed
from hands.isolation import uids

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")


def _folder(below: Path, name: str) -> Path:
    folder = below / name
    folder.mkdir(mode=0o700)
    return folder


def test_hands_beside_each_other_have_users_of_their_own_found_again_by_the_folder(
    tmp_path: Path,
) -> None:
    folders = [_folder(tmp_path, name) for name in "abc"]
    given = [uids.own(folder) for folder in folders]
    assert len(set(given)) == 3
    assert [uids.owner(folder) for folder in folders] == given
    folders[1].rmdir()
    assert uids.own(_folder(tmp_path, "d")) == given[1], "a freed one is taken again"


def test_a_hand_that_no_user_id_is_left_for_is_not_made(tmp_path: Path) -> None:
    uids.own(_folder(tmp_path, "a"), count=1)
    with pytest.raises(ProvisionFailed, match="taken"):
        uids.own(_folder(tmp_path, "b"), count=1)
