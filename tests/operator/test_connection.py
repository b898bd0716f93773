"""Flag beats environment beats the state folder, and the state of `carpal dev` is found."""

import os
from pathlib import Path

import pytest

from carpal.errors import BadInput
from carpal.operator.connection import find, operator_dir
from tests.operator.fakes import House


@pytest.fixture
def here(tmp_path: Path) -> House:
    house = House(tmp_path)
    house.address = "127.0.0.1:1000"
    house.write_config(vault="127.0.0.1:2000")
    return house


def test_the_state_folder_says_who_and_where(here: House) -> None:
    found = find(state=here.state, environ={})
    assert (found.sessiond, found.vault) == ("127.0.0.1:1000", "127.0.0.1:2000")
    assert found.files.directory == here.state / "operator" / "identity"


def test_the_environment_beats_the_file_and_a_flag_beats_both(here: House) -> None:
    environ = {"CARPAL_STATE": str(here.state), "CARPAL_SESSIOND": "a:1", "CARPAL_VAULT": "b:1"}
    found = find(vault="c:1", environ=environ)
    assert (found.sessiond, found.vault) == ("a:1", "c:1")


def test_an_unknown_key_in_the_file_is_named(here: House) -> None:
    with (here.state / "operator" / "operator.toml").open("a") as file:
        file.write("brain = 1\n")
    with pytest.raises(BadInput, match="unknown key 'brain'"):
        find(state=here.state, environ={})


@pytest.mark.parametrize("address", ["here", "here:", ":1", "here:port", "here:0", "here:70000"])
def test_an_address_that_is_none_is_refused(here: House, address: str) -> None:
    with pytest.raises(BadInput, match="not host:port"):
        find(state=here.state, sessiond=address, environ={})


def test_the_state_of_dev_is_used_when_it_is_the_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # root's usual place is the machine's own
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    usual = tmp_path / "carpal" / "operator"
    dev = tmp_path / "carpal" / "dev" / "operator"
    assert operator_dir(None, environ) == usual
    dev.mkdir(parents=True)
    assert operator_dir(None, environ) == dev
    usual.mkdir()
    assert operator_dir(None, environ) == usual


def test_a_state_folder_that_is_named_is_meant(tmp_path: Path) -> None:
    (tmp_path / "dev" / "operator").mkdir(parents=True)
    assert operator_dir(tmp_path, {}) == tmp_path / "operator"
    assert operator_dir(None, {"CARPAL_STATE": str(tmp_path)}) == tmp_path / "operator"
