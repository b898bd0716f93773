"""`carpal dev` lets who runs it into its hands, unless they said otherwise."""

from pathlib import Path

from carpal.dev_policy import allowing
from hands.owner.policy_file import PolicyFile


def test_who_runs_it_may_enter_its_hands(tmp_path: Path) -> None:
    told = allowing(tmp_path, {}, tmp_path / "none")
    policy = PolicyFile(Path(told["CARPAL_POLICY"])).policy
    for kind in ("shell", "copy", "forward", "view", "control"):
        policy.check_entry(kind)
    assert policy.types is None, "nothing else is said"


def test_a_policy_that_is_there_takes_its_place(tmp_path: Path) -> None:
    there = tmp_path / "theirs.toml"
    there.write_text("people = []\n")
    assert allowing(tmp_path, {}, there) == {}
    assert allowing(tmp_path, {"CARPAL_POLICY": "x"}, tmp_path / "none") == {}
    assert not (tmp_path / "policy.toml").exists()


def test_a_policy_that_the_daemons_own_settings_name_takes_its_place(tmp_path: Path) -> None:
    none, settings = tmp_path / "none", tmp_path / "hand.toml"
    settings.write_text('policy = "/etc/mine.toml"\n')
    assert allowing(tmp_path, {}, none, settings) == {}
    for text in ('[sockets]\nledger = "/run/ledger.sock"\n', "nonsense"):
        settings.write_text(text)
        assert "CARPAL_POLICY" in allowing(tmp_path, {}, none, settings)
