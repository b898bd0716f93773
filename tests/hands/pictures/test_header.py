"""A picture's size is read from its first bytes, whatever else they are."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hands.pictures.header import Header, read
from tests.png import BEGINS, lying, png

_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
_SIZES = st.integers(1, 700)


def made(form: str, width: int, height: int, **more: object) -> bytes:
    """A picture by a library that many use."""
    out = io.BytesIO()
    Image.new("RGB", (width, height), "navy").save(out, form, **more)
    return out.getvalue()


@given(st.sampled_from(_FORMATS), _SIZES, _SIZES)
def test_the_size_is_what_the_library_made(form: str, width: int, height: int) -> None:
    assert read(made(form, width, height)) == Header(f"image/{form.lower()}", width, height)


@pytest.mark.parametrize(
    ("form", "more"),
    [
        ("JPEG", {"progressive": True}),
        ("JPEG", {"exif": b"Exif\0\0" + b"x" * 9000, "comment": b"hi" * 300}),
        ("WEBP", {"lossless": True}),
        ("WEBP", {"exif": b"Exif\0\0x", "lossless": True}),
    ],
)
def test_the_size_is_found_behind_what_else_there_is(form: str, more: dict[str, object]) -> None:
    assert read(made(form, 300, 20, **more)) == Header(f"image/{form.lower()}", 300, 20)


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"",
            b"light",
            BEGINS,
            BEGINS + b"x" * 40,
            b"GIF89a",
            b"BM",
            b"BM" + bytes(60),
            b"<svg/>",
        ),
        *(b"\xff\xd8\xff", b"\xff\xd8\xff\xe0\xff", b"\xff\xd8\xff\xe0\0\0" * 99),
        *(b"RIFF\0\0\0\0WEBPVP9 " + b"x" * 30, lying(0, 9)),
    ],
)
def test_what_has_no_size_is_no_picture(data: bytes) -> None:
    assert read(data) is None


def test_a_size_that_a_picture_only_says_is_said() -> None:
    assert read(lying(10_000, 10_000)) == Header("image/png", 10_000, 10_000)


@given(st.sampled_from([*_FORMATS, ""]), st.binary(max_size=200), st.integers(0, 200))
def test_no_bytes_are_more_than_it_can_bear(form: str, data: bytes, upto: int) -> None:
    whole = made(form, 30, 20) if form else b""
    read(whole[:upto] + data)


def test_the_pictures_of_our_tests_are_pictures() -> None:
    assert read(png(40, 30)) == Header("image/png", 40, 30)
