"""Downloads that a page begins without end: what is kept of them until a call tells it."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from hands.api import Context
from hands.browser import downloads, state
from hands.browser.chromium import Download
from hands.browser.downloads import Downloads


class Began:
    """One that is whole at once."""

    def __init__(self, file: Path, url: str = "http://a.example/f") -> None:
        self.url = url
        self.suggested_filename = file.name
        self._file = file

    async def failure(self) -> str | None:
        """It did not."""
        return None

    async def path(self) -> Path:
        """Where it came."""
        return self._file

    async def cancel(self) -> None:
        """It is over anyway."""

    async def delete(self) -> None:
        """Its file stays: it is the next one's too."""


async def stopped(_: str) -> None:
    """Nothing comes any more."""


def begun(them: Downloads, file: Path, url: str = "http://a.example/f") -> None:
    them.begun(cast(Download, Began(file, url)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """What each of them is."""
    coming = tmp_path / "coming"
    coming.mkdir()
    (coming / "f").write_bytes(b"")
    return coming / "f"


def context(tmp_path: Path) -> Context:
    """Of a call that asks."""
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    return Context(workspace)


async def test_of_downloads_between_two_calls_the_newest_are_kept_and_of_an_address_its_begin(
    tmp_path: Path, file: Path
) -> None:
    them = Downloads(tmp_path, file.parent, None)
    for number in range(300):
        begun(them, file, f"data:,{number}" + "x" * 100_000)
    changes, lines = await them.settled(context(tmp_path))
    assert [each["download_id"] for each in changes] == [f"d{at}" for at in range(251, 301)]
    assert max(len(each["url"]) for each in changes) <= state.URL_MAX + 1
    assert state.line([], changes).count("off in this hand") == 50
    assert not lines
    assert (
        "…"
        in json.loads(state.line([], changes).removeprefix(state.BEGINS)[:-1])["state_changes"][0][
            "url"
        ]
    )


async def test_no_more_files_than_so_many_come_into_the_workspace_and_one_that_goes_makes_room(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "FILES_MAX", 15)
    them = Downloads(tmp_path, file.parent, stopped)
    told: list[Any] = []
    for _ in range(16):
        begun(them, file)
        told += (await them.settled(context(tmp_path)))[0]
    assert [each["type"] for each in told] == ["download_completed"] * 15 + [
        "download_started",
        "download_failed",
    ]
    assert "there are 15 of this hand's in the workspace" in told[-1]["error"]
    next((tmp_path / "downloads").iterdir()).unlink()
    begun(them, file)
    (last,), _ = await them.settled(context(tmp_path))
    assert last["type"] == "download_completed"


async def test_of_many_that_are_not_attached_a_few_lines_say_so(tmp_path: Path, file: Path) -> None:
    them = Downloads(tmp_path, file.parent, stopped)
    call = context(tmp_path)
    for number in range(20):
        call.attach(b"x", "text/plain", f"{number}")
    for _ in range(15):
        begun(them, file)
    changes, lines = await them.settled(call)
    assert len(changes) == 15
    assert len(lines) == 11
    assert lines[-1] == "[and 5 more were not attached]"
