"""The environment and the workspace that a hand's config asks for, kept or refused by the field."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from hands.builtin.process import ProcessType
from hands.isolation import probe
from tests.hands.place import Place, open_place

_PROBLEM = probe.problem()
boxed = pytest.param(
    "required", marks=pytest.mark.skipif(bool(_PROBLEM), reason=_PROBLEM or "none")
)


@pytest.fixture(params=["off", boxed])
async def box(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    process = ProcessType(sandbox=request.param)
    async with open_place(tmp_path / "state", process=process) as place:
        yield place


async def test_path_is_what_the_config_says(box: Place) -> None:
    hand = await box.hand(env={"PATH": "/opt/own:/usr/bin:/bin"})
    assert (await box.sh(hand, "echo $PATH")).content == "/opt/own:/usr/bin:/bin\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [("A", 1), ("A", "a\0b"), ("CARPAL_X", "x"), ("LD_PRELOAD", "x")],
)
async def test_a_variable_that_cannot_be_is_refused_by_its_field(
    name: str, value: object, box: Place
) -> None:
    with pytest.raises(CarpalError) as caught:
        await box.hand(env={name: value})
    assert caught.value.reason is Reason.INVALID_FIELD
    assert caught.value.fields["field"] == f"config.env.{name}"


@pytest.mark.parametrize(
    ("env", "field"),
    [
        ({"SMALL": "x", "BIG": "x" * 200_000}, "config.env.BIG"),
        ({"BIG": "é" * 70_000}, "config.env.BIG"),
        ({f"A{n}": "x" * 60_000 for n in range(12)}, "config.env"),
    ],
)
async def test_an_environment_no_program_starts_with_is_refused_by_its_field(
    env: dict[str, str], field: str, box: Place
) -> None:
    with pytest.raises(CarpalError) as caught:
        await box.hand(env=env)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert caught.value.fields["field"] == field
    assert "bytes" in caught.value.message


async def test_the_largest_environment_that_may_be_is_had_by_every_call(box: Place) -> None:
    hand = await box.hand(env={f"A{n}": "x" * 120_000 for n in range(4)})
    for _ in range(2):
        assert (await box.sh(hand, "env | grep -c ^A")).content == "4\n"


@pytest.mark.skipif(bool(_PROBLEM), reason=_PROBLEM or "none")
async def test_a_variable_that_leads_to_the_forwarder_is_refused_by_its_field(
    tmp_path: Path,
) -> None:
    process = ProcessType(sandbox="required")
    async with open_place(tmp_path / "state", process=process) as place:
        with pytest.raises(CarpalError) as caught:
            await place.hand(env={"HTTP_PROXY": "http://127.0.0.1:1"})
    assert caught.value.fields["field"] == "config.env.HTTP_PROXY"
    assert "egress" in caught.value.message


async def test_a_workspace_that_cannot_be_is_refused_and_says_which_it_is(
    box: Place, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for given, said in {
        str(tmp_path / "nope"): "is not there: make the folder on the daemon's machine",
        "nope": "is not an absolute path",
        str(tmp_path / "file"): "is no folder",
        "/a\0b": "cannot be used",
    }.items():
        with pytest.raises(CarpalError) as caught:
            await box.hand(workspace=given)
        assert caught.value.fields["field"] == "config.workspace"
        assert said in caught.value.message
