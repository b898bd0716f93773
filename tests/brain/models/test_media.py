"""An image that was refused is known by its source, wherever it stands, and is left out."""

from typing import Any

import pytest

from brain.effects import Failed
from brain.models import failures, media
from brain.session import model_kinds as kinds


def image(name: str) -> dict[str, Any]:
    """An image block."""
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": name}}


def result(*content: dict[str, Any]) -> dict[str, Any]:
    """A tool's result."""
    return {"type": "tool_result", "tool_use_id": "c", "content": list(content)}


TEXT = {"type": "text", "text": "t"}
REQUEST: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "user", "content": [TEXT, image("old")]},
        {"role": "assistant", "content": [TEXT]},
        {"role": "user", "content": [result(TEXT, image("shot")), TEXT, image("new")]},
    ],
}


def digests(*names: str) -> list[str]:
    return [media.source_digest(image(name)) for name in names]


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6 > 5", ["old"]),
        (
            "messages.2.content.0.tool_result.content.1.image.source.base64.data: At least one of "
            "the image dimensions exceed max allowed size: 8000 pixels",
            ["shot"],
        ),
        ("messages.2.content.2.image.source.base64.media_type: Input should be 'x'", ["new"]),
        ("Could not process image", ["shot", "new"]),
        ("too many images: 101 > 100", ["old"]),
        ("messages.2.content.1.text: image of a text", []),
        ("messages: roles must alternate", []),
    ],
)
def test_which_image_a_refusal_is_about(message: str, names: list[str]) -> None:
    assert media.refused(message, REQUEST) == digests(*names)


def test_where_no_new_image_came_any_may_be_meant() -> None:
    request = {**REQUEST, "messages": REQUEST["messages"][:2]}
    assert media.refused("Could not process image", request) == digests("old")


def test_an_image_left_out_has_a_note_with_the_reason_and_the_others_stay() -> None:
    made = media.without(REQUEST, dict.fromkeys(digests("shot"), "too large"))
    content = made["messages"][2]["content"]
    note = content[0]["content"][1]["text"]
    assert note == "[left out: the model's service refused this image: too large]"
    assert content[2] == image("new")
    assert made["messages"][0] == REQUEST["messages"][0]
    assert media.without(REQUEST, {}) is REQUEST
    assert media.without(REQUEST, {"other": "x"}) is REQUEST


def test_a_refused_image_is_a_failure_to_try_again_without_it() -> None:
    failed = failures.of_status(400, "invalid_request_error", "Could not process image", REQUEST)
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.retryable) == (kinds.MEDIA, True)
    assert list(failed.media) == digests("shot", "new")


def test_a_model_that_takes_no_images_at_all_lacks_a_feature() -> None:
    failed = failures.of_status(400, "", "images are not supported by this model", REQUEST)
    assert (failed.kind, failed.feature) == (kinds.FEATURE, "images")
