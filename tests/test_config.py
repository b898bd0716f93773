"""Flag beats variable beats file beats default, and what is wrong is named with its source."""

import os
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from carpal.config import load, state_dir
from carpal.errors import BadInput, CarpalError
from carpal.status import Reason


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some."""

    name: str = "default"
    lease_term: float = 10.0
    folder: Path = Path("/x")
    labels: dict[str, str] = {}
    places: dict[str, Path] = {}


class Needed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One without a default."""

    lease_term: float


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "brain.toml"
    path.write_text('name = "file"\nlease_term = 3\nfolder = "/f"\n')
    return path


def filled(file: Path, environ: dict[str, str], **flags: Any) -> Settings:
    """The settings."""
    return load(Settings, "brain", flags, file, environ)


def refused(kind: type[Any], flags: dict[str, Any], file: Path | None, **environ: str) -> str:
    """The line of a refusal."""
    with pytest.raises(CarpalError) as caught:
        load(kind, "nothing-of-that-name", flags, file, environ)
    assert caught.value.reason is Reason.CONFIG_INVALID
    assert isinstance(caught.value, BadInput) or caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_each_layer_beats_the_next(file: Path) -> None:
    assert load(Settings, "nothing-of-that-name", {}, None, {}).name == "default"
    assert filled(file, {}).name == "file"
    assert filled(file, {"CARPAL_NAME": "variable"}).name == "variable"
    assert filled(file, {"CARPAL_NAME": "variable"}, name="flag").name == "flag"
    assert filled(file, {"CARPAL_NAME": "variable"}, name=None).name == "variable"


def test_a_word_that_is_none_of_those_there_are_is_refused_with_them() -> None:
    class Worded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        sandbox: Literal["auto", "off"] = "auto"

    said = refused(Worded, {}, None, CARPAL_SANDBOX="bogus")
    assert said.startswith("CARPAL_SANDBOX: sandbox: ")
    assert said.endswith(": use one of: auto, off")


def test_variables_are_read_as_the_fields_type(file: Path) -> None:
    made = filled(file, {"CARPAL_LEASE_TERM": "2.5", "CARPAL_FOLDER": "/v"})
    assert (made.lease_term, made.folder) == (2.5, Path("/v"))


def test_other_variables_are_nobodys_business(file: Path) -> None:
    assert filled(file, {"CARPAL_STATE": "/s", "NAME": "x"}).name == "file"


def test_an_unknown_key_is_named_with_its_file_and_what_there_is(file: Path) -> None:
    file.write_text('nmae = "x"\n')
    line = refused(Settings, {}, file)
    assert f"{file}: unknown key 'nmae'" in line
    assert "folder, labels, lease_term, name" in line


@pytest.mark.parametrize(
    ("flags", "environ", "source"),
    [
        ({"lease_term": "soon"}, {}, "--lease-term"),
        ({}, {"CARPAL_LEASE_TERM": "soon"}, "CARPAL_LEASE_TERM"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_where_it_came_from(
    file: Path, flags: dict[str, Any], environ: dict[str, str], source: str
) -> None:
    line = refused(Settings, flags, file, **environ)
    assert source in line
    assert "lease_term" in line


def test_a_value_of_the_wrong_type_in_a_file_is_named_with_the_file(file: Path) -> None:
    file.write_text("labels = 3\n")
    assert f"{file}: labels: " in refused(Settings, {}, file)


@pytest.mark.parametrize("line", ["folder = 3", "[places]\na = 3", "folder = []"])
def test_what_should_be_a_path_and_is_none_is_named_too(tmp_path: Path, line: str) -> None:
    written = tmp_path / "hand.toml"
    written.write_text(f"{line}\n")
    key = line.strip("[").split("]")[0].split(" ")[0]
    assert f"{written}: {key}: expected `str`, got `" in refused(Settings, {}, written)


def test_what_must_be_set_and_is_not_says_how() -> None:
    line = refused(Needed, {}, None)
    assert "lease_term is not set" in line
    assert "--lease-term" in line
    assert "CARPAL_LEASE_TERM" in line


def test_a_file_that_was_named_must_be_there_and_be_toml(tmp_path: Path) -> None:
    assert "no such file" in refused(Settings, {}, tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("name = \n")
    assert "not TOML" in refused(Settings, {}, tmp_path / "bad.toml")
    (tmp_path / "bytes.toml").write_bytes(b"name = '\xff'\n")
    assert "not TOML" in refused(Settings, {}, tmp_path / "bytes.toml")
    assert "readable" in refused(Settings, {}, tmp_path)


def test_the_state_folder_is_the_flags_the_variables_or_the_users(tmp_path: Path) -> None:
    assert state_dir(tmp_path, {"CARPAL_STATE": "/v"}) == tmp_path
    assert state_dir(None, {"CARPAL_STATE": "/v"}) == Path("/v")
    ours = state_dir(None, {"XDG_STATE_HOME": "/xdg"})
    assert ours == (Path("/var/lib/carpal") if os.geteuid() == 0 else Path("/xdg/carpal"))
