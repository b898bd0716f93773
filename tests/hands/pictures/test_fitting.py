"""A picture that leaves a hand is what the model takes, or a line says why it is none."""

import asyncio
import io
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from carpal import extras
from carpal.pictures import BYTES_MAX
from hands.pictures import fitting, scaler
from hands.pictures.fitting import Fitted, LeftOut, fitted, part
from tests.hands.pictures.test_header import made
from tests.pace import SCALE
from tests.png import BEGINS, chunk, head, lying, png


def opened(answer: Fitted | LeftOut) -> Image.Image:
    """The picture that came of it."""
    assert isinstance(answer, Fitted), answer
    image = Image.open(io.BytesIO(answer.data))
    image.load()
    assert f"image/{str(image.format).lower()}" == answer.media_type
    return image


def noise(width: int, height: int, form: str = "PNG", mode: str = "RGB", **more: Any) -> bytes:
    """A picture that hardly gets smaller."""
    out = io.BytesIO()
    count = len(Image.new(mode, (1, 1)).tobytes())
    Image.frombytes(mode, (width, height), os.urandom(width * height * count)).save(
        out, form, **more
    )
    return out.getvalue()


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP"])
async def test_one_that_the_model_takes_passes_as_it_is(form: str) -> None:
    data = made(form, 1280, 800)
    assert await fitted(data) == Fitted(data, f"image/{form.lower()}")


@pytest.mark.parametrize(
    ("form", "kind"), [("PNG", "PNG"), ("JPEG", "JPEG"), ("GIF", "PNG"), ("WEBP", "PNG")]
)
async def test_a_larger_one_is_scaled_and_the_remark_says_from_what_to_what(
    form: str, kind: str
) -> None:
    answer = await fitted(made(form, 1920, 1080))
    image = opened(answer)
    assert (image.size, image.format) == ((1456, 819), kind)
    assert isinstance(answer, Fitted)
    assert answer.remark == "scaled from 1920x1080 to 1456x819"
    red, green, blue = image.convert("RGB").getpixel((700, 400))  # type: ignore[misc]
    assert abs(blue - 128) < 9
    assert red + green < 18, "it is still navy"


async def test_of_a_kind_that_the_model_does_not_take_another_is_made() -> None:
    answer = await fitted(made("BMP", 300, 200))
    assert opened(answer).size == (300, 200)
    assert isinstance(answer, Fitted)
    assert answer.remark == "image/bmp of 180054 bytes, made image/png"


async def test_a_photograph_becomes_small_and_no_picture_has_too_many_bytes() -> None:
    data = noise(1250, 1100)
    assert len(data) > BYTES_MAX
    answer = await fitted(data)
    image = opened(answer)
    assert (image.format, image.size) == ("JPEG", (1176, 1035))
    assert isinstance(answer, Fitted)
    assert len(answer.data) < 1_300_000


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16", "CMYK"])
async def test_pictures_of_any_colours_are_scaled(mode: str) -> None:
    out = io.BytesIO()
    Image.new(mode, (2000, 2000)).save(out, "JPEG" if mode == "CMYK" else "PNG")
    assert opened(await fitted(out.getvalue())).size == (1092, 1092)


async def test_a_deep_grey_keeps_its_tones() -> None:
    out = io.BytesIO()
    Image.new("I;16", (2000, 2000), 0x8000).save(out, "PNG")
    assert opened(await fitted(out.getvalue())).getpixel((500, 500)) == 128


async def test_a_camera_that_was_held_upright_makes_an_upright_picture() -> None:
    out, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    picture = Image.new("RGB", (3000, 2000), "black")
    picture.paste("white", (0, 0, 1500, 2000))
    picture.save(out, "JPEG", exif=exif)
    answer = await fitted(out.getvalue())
    image = opened(answer)
    assert image.size[0] < image.size[1]
    assert image.convert("L").getpixel((10, 10)) > 200  # type: ignore[operator]
    assert image.convert("L").getpixel((10, image.size[1] - 10)) < 50  # type: ignore[operator]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (png(10_000), "10000x10000 pixels, more than the 32000000 that are scaled"),
        (lying(60_000, 60_000), "60000x60000 pixels, more than"),
        (lying(2**31 - 1, 2**31 - 1), "pixels, more than"),
        (lying(4000, 3000), "it is damaged"),
        (png(3000, 2000)[:-200], "it is damaged"),
        (BEGINS + head(3000, 2000) + chunk(b"zTXt", b"k\0\0" + b"x" * 99), "it is damaged"),
        (made("JPEG", 3000, 2000)[:3000], "it is damaged"),
        (made("GIF", 3000, 2000)[:500], "it is damaged"),
        (made("WEBP", 3000, 2000)[:300], "it is damaged"),
        (b"light", "it is damaged, or no PNG, JPEG, GIF, WebP or BMP"),
        (b"", "it is damaged, or no"),
    ],
)
async def test_what_is_no_picture_or_too_large_a_one_is_left_out_and_says_why(
    data: bytes, why: str
) -> None:
    began = time.monotonic()
    answer = await fitted(data)
    assert isinstance(answer, LeftOut)
    assert why in answer.why
    assert time.monotonic() - began < 5 * SCALE


async def test_the_largest_that_is_scaled_is_scaled() -> None:
    data = png(8000, 4000)
    assert opened(await fitted(data)).size == (1568, 784)


async def test_the_loop_goes_on_while_pictures_of_a_hand_are_scaled_one_at_a_time() -> None:
    data = made("PNG", 4000, 3000)
    work = asyncio.gather(*(fitted(data, "h") for _ in range(3)))
    longest = 0.0
    scalers = 0
    while not work.done():
        began = time.monotonic()
        await asyncio.sleep(0.01)
        longest = max(longest, time.monotonic() - began)
        scalers = max(scalers, len(children()))
    assert all(isinstance(each, Fitted) for each in await work)
    assert longest < 0.5 * SCALE
    assert scalers == 1
    assert not children(), "none is left"


SLOW = """
import sys, time
old = sys.argv[1]
if old == "3000x3000":
    time.sleep(600)
sys.argv[0] = {scaler!r}
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"))
"""


async def test_a_hand_whose_pictures_take_long_holds_up_no_other_hands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "scaler.py"
    script.write_text(SLOW.format(scaler=scaler.__file__))
    monkeypatch.setattr(fitting, "_SCALER", script)
    slow = [asyncio.create_task(fitted(png(3000), "slow")) for _ in range(4)]
    try:
        await until_there_are_children()
        async with asyncio.timeout(5 * SCALE):
            for _ in range(2):
                assert isinstance(await fitted(png(2000), "quick"), Fitted)
        assert not any(each.done() for each in slow)
    finally:
        for each in slow:
            each.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
    assert not children()


async def test_one_whose_turn_does_not_come_is_left_out_for_that_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "scaler.py"
    script.write_text(SLOW.format(scaler=scaler.__file__))
    monkeypatch.setattr(fitting, "_SCALER", script)
    monkeypatch.setattr(fitting, "TURN_SECONDS", 0.2)
    slow = [asyncio.create_task(fitted(png(3000), hand)) for hand in ("a", "b")]
    try:
        await until_there_are_children(fitting.AT_ONCE)
        answer = await fitted(png(2000), "c")
    finally:
        for each in slow:
            each.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
    assert isinstance(answer, LeftOut)
    assert answer.why.startswith("pictures of other hands are being scaled, and its turn did not")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise SystemExit(6)", "Pillow, which scales it, cannot be loaded: "),
        ("import os; os.kill(os.getpid(), 24)", "it was not scaled within 10 s"),
        ("import os; os.kill(os.getpid(), 9)", "what scales it was killed: the machine has too"),
        ("raise SystemExit(99)", "what scales it ended by 99"),
    ],
)
async def test_a_scaler_that_ends_otherwise_does_not_call_the_picture_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    script = tmp_path / "scaler.py"
    script.write_text(code)
    monkeypatch.setattr(fitting, "_SCALER", script)
    answer = await fitted(png(2000))
    assert isinstance(answer, LeftOut)
    assert answer.why.startswith(why)


def test_a_library_that_cannot_be_loaded_is_that(tmp_path: Path) -> None:
    broken = "import sys; sys.modules['PIL'] = None; sys.path[0:0] = [sys.argv[1]]; import scaler; "
    command = f"{broken}sys.exit(scaler.main('1x1', '1x1', '99'))"
    ended = subprocess.run(
        [sys.executable, "-c", command, str(Path(scaler.__file__).parent)],
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    assert ended.returncode == scaler.NO_LIBRARY


async def test_a_picture_of_which_a_library_only_warns_is_shown() -> None:
    odd = made("JPEG", 2000, 2000)
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x09" + b"\xff" * 7  # says nine values, and has none
    segment = b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif
    assert opened(await fitted(odd[:2] + segment + odd[2:])).size == (1092, 1092)


async def test_a_bitmap_of_the_oldest_kind_is_shown() -> None:
    rows = b"\x80\0\0" * 300 * 200
    head = b"BM" + (26 + len(rows)).to_bytes(4, "little") + bytes(4) + b"\x1a\0\0\0\x0c\0\0\0"
    sizes = b"".join(each.to_bytes(2, "little") for each in (300, 200, 1, 24))
    assert opened(await fitted(head + sizes + rows)).size == (300, 200)


async def test_one_that_takes_too_long_is_left_out_and_its_process_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fitting, "SECONDS", 0.01)
    answer = await fitted(made("PNG", 4000, 3000))
    assert answer == LeftOut("it was not scaled within 0.01 s")
    assert not children()


async def test_who_does_not_wait_any_more_leaves_no_process() -> None:
    work = asyncio.create_task(fitted(made("PNG", 4000, 3000)))
    await until_there_are_children()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert not children()
    assert isinstance(await fitted(made("PNG", 1600, 1600)), Fitted), "the next has its turn"


async def test_without_pillow_small_pictures_pass_and_for_others_one_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fitting, "find_spec", lambda name: None)
    assert isinstance(await fitted(png(40)), Fitted)
    answer = await fitted(png(3000))
    assert isinstance(answer, LeftOut)
    assert "no more than 1092x1092 of its 3000x3000 pixels" in answer.why
    assert extras.how("images") in answer.why
    answer = await fitted(made("BMP", 20, 20))
    assert isinstance(answer, LeftOut)
    assert "no image/bmp of 1254 bytes" in answer.why


async def until_there_are_children(count: int = 1) -> None:
    async with asyncio.timeout(10 * SCALE):
        while len(children()) < count:  # noqa: ASYNC110 - a process's start is nobody's event
            await asyncio.sleep(0.005)


def children() -> list[int]:
    """Processes of ours that scale a picture."""
    found = []
    for each in Path("/proc").iterdir():
        if not each.name.isdecimal():
            continue
        try:
            said = (each / "stat").read_text().rpartition(")")[2].split()
            line = (each / "cmdline").read_bytes()
        except OSError:
            continue
        if int(said[1]) == os.getpid() and b"scaler.py" in line:
            found.append(int(each.name))
    return found


async def test_a_part_of_one_is_a_picture_of_the_size_that_is_asked_for() -> None:
    image = Image.new("RGB", (200, 100), "white")
    image.paste("navy", (100, 50, 200, 100))
    out = io.BytesIO()
    image.save(out, "PNG")
    navy = opened(await part(out.getvalue(), (100, 50, 200, 100), 400, 200)).convert("RGB")
    assert (navy.size, navy.getpixel((0, 0))) == ((400, 200), (0, 0, 128))
    white = opened(await part(out.getvalue(), (0, 0, 100, 50), 50, 50)).convert("RGB")
    assert (white.size, white.getpixel((49, 49))) == ((50, 50), (255, 255, 255))


async def test_a_part_of_what_is_no_picture_or_too_large_is_left_out() -> None:
    assert await part(b"none", (0, 0, 1, 1), 1, 1) == LeftOut(
        "it is damaged, or no PNG, JPEG, GIF, WebP or BMP"
    )
    whole = made("PNG", 100, 100)
    assert await part(whole[:-30], (0, 0, 9, 9), 9, 9) == LeftOut("it is damaged")
    large = await part(lying(20_000, 20_000), (0, 0, 9, 9), 9, 9)
    assert isinstance(large, LeftOut)
    assert "more than the 32000000 that are scaled" in large.why
