"""The kit's checks of a screen: types that have one pass, and one that has it wrongly is told."""

from pathlib import Path

import pytest

from hands.conformance.changes import CHANGES
from hands.conformance.subject import subject_at
from hands.owner.gate import Gate
from hands.owner.policy_file import PolicyFile
from hands.serving import HandServicer
from tests.hands.browser.parts import needs_browser
from tests.hands.conformance.test_claims import daemons, judged
from tests.hands.conformance.test_cli import checked
from tests.hands.plugins.written import Plugins

LAMP = """
import struct, zlib

class It(HandType):
    'A lamp.'
    lit, waits = False, 0.0

    def view(self):
        VIEW

    def control(self, event):
        CONTROL

    @tool()
    def ring(self) -> str:
        'Rings.'
        return 'done'

def picture(wide=2, kind=b'IHDR'):
    def chunk(kind, data):
        end = struct.pack('>I', zlib.crc32(kind + data))
        return struct.pack('>I', len(data)) + kind + data + end
    head = struct.pack('>IIBBBBB', wide, 2, 8, 0, 0, 0, 0)
    rows = zlib.compress(b''.join(b'\\\\0' + bytes(wide) for _ in range(2)))
    return PNG + chunk(kind, head) + chunk(b'IDAT', rows) + chunk(b'IEND', b'')

PNG = bytes([137]) + b'PNG' + bytes([13, 10, 26, 10])
"""
SHOWS = "return picture(), 'image/png'"
SCREEN = (
    "shows_itself",
    "shows_the_next_once_seen",
    "calls_go_on_beside",
    "nobody_watches_no_hand",
)
IN_CONTROL = ("waits_for_control", "odd_events")


def lamp(view: str = SHOWS, control: str = "self.lit = True") -> str:
    return LAMP.replace("VIEW", view).replace("CONTROL", control)


async def verdict_of(
    name: str,
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[HandServicer] = HandServicer,
) -> tuple[str, str, str]:
    """What came of one check of such a type."""
    policy = tmp_path / "policy.toml"
    policy.write_text('people = ["view", "control"]\n')
    plugins = Plugins(tmp_path / "plugins", monkeypatch)
    written = plugins.write("lamp", source)
    async with (
        plugins.place(written, gate=Gate(PolicyFile(policy))) as place,
        daemons(place.inventory, kind) as at,
    ):
        verdict = await judged(name, await subject_at(at, "lamp", {}, None, ("ring", {})))
    return verdict.verdict, verdict.detail, verdict.change


@pytest.mark.parametrize("name", [*SCREEN, *IN_CONTROL])
async def test_a_type_with_a_screen_passes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await verdict_of(name, lamp(), tmp_path, monkeypatch) == ("pass", "", "")


@pytest.mark.parametrize(
    ("view", "detail", "change"),
    [
        ("raise ToolError('it is out')", "it shows nothing, and says: it is out", "Send a frame"),
        ("return b'light', 'image/png'", "what it shows is no image/png", "Give the picture as"),
        ("return picture(), 'image/jpeg'", "what it shows is no image/jpeg", "Give the picture as"),
        ("return picture(20_000), 'image/png'", "it shows 20000x2 pixels", "Give the picture as"),
        ("return None", "it shows nothing, and says: its `view` gave no pair", "Send a frame"),
    ],
)
async def test_a_screen_that_shows_no_picture_is_told_what_to_change(
    view: str, detail: str, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await verdict_of("shows_itself", lamp(view), tmp_path, monkeypatch)
    assert found[0] == "fail"
    assert detail in found[1]
    assert found[2].startswith(change)


async def test_a_hand_that_dies_of_an_event_is_told_what_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = lamp(control="import os; os._exit(1)")
    verdict, detail, change = await verdict_of("odd_events", source, tmp_path, monkeypatch)
    assert verdict == "fail"
    assert "lost" in detail or "what ended it: " in detail
    assert change == CHANGES["odd_events"]


@needs_browser
@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_browsers_screen_passes_them(tmp_path: Path) -> None:
    flags = ("--type", "browser", "--only", "view", "--only", "control")
    code, (*verdicts, _), _ = await checked(tmp_path, *flags)
    assert [one["verdict"] for one in verdicts] == ["pass"] * len([*SCREEN, *IN_CONTROL])
    assert code == 0
