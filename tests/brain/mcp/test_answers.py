"""What a server answers becomes text and files, and what is none of them a line that says so."""

import base64

import pytest

from brain.mcp.answers import ATTACHED_MAX, EMPTY, Attached, Json, rendered

DATA = base64.b64encode(b"bytes").decode()
PICTURE: Json = {"type": "image", "data": DATA, "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({}, EMPTY),
        ({"content": []}, EMPTY),
        ({"content": "no list"}, EMPTY),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": [], "structuredContent": {"n": 1}}, '{"n": 1}'),
        ({"content": [{"type": "text", "text": "a"}], "structuredContent": {"n": 1}}, "a"),
        ({"content": [{"type": "film"}]}, "[a part of the answer of the kind film: left out]"),
        ({"content": [{"type": "fi\nlm"}]}, "[a part of the answer of the kind fi lm: left out]"),
        (
            {"content": [{"type": "resource_link", "name": "n", "uri": "file:///a"}]},
            "[a link to a resource: n, file:///a]",
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "t"}}]},
            "[resource a:b]\nt",
        ),
        ({"content": [{"type": "resource"}]}, "[a resource that is none]"),
        (
            {"content": [{**PICTURE, "data": "%%"}]},
            "[an image, image/png: it is no base64, and left out]",
        ),
        ({"content": [{**PICTURE, "data": ""}]}, "[an image, image/png: it is empty]"),
    ],
)
def test_each_kind_of_answer_has_its_text(result: Json, text: str) -> None:
    assert rendered(result) == (text, [])


def test_pictures_sounds_and_files_are_attached_and_each_has_a_line() -> None:
    blob = {"uri": "file:///a/report.pdf", "blob": DATA, "mimeType": "application/pdf"}
    sound = {"type": "audio", "data": DATA, "mimeType": "audio/wav"}
    text, attached = rendered({"content": [PICTURE, sound, {"type": "resource", "resource": blob}]})
    assert text.splitlines() == [
        "[an image, image/png, 5 bytes: attached]",
        "[an audio, audio/wav, 5 bytes: attached]",
        "[resource file:///a/report.pdf, application/pdf, 5 bytes: attached]",
    ]
    assert attached == [
        Attached(b"bytes", "image/png", "image"),
        Attached(b"bytes", "audio/wav", "audio"),
        Attached(b"bytes", "application/pdf", "report.pdf"),
    ]


def test_of_too_many_files_the_first_are_attached() -> None:
    text, attached = rendered({"content": [PICTURE] * (ATTACHED_MAX + 1)})
    assert len(attached) == ATTACHED_MAX
    assert text.endswith("5 bytes: left out: there are 20 before it]")
