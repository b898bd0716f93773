"""What a provider lacks is found in a request, and the rest of the request goes on without it."""

import copy
from typing import Any

import pytest

from brain.models import features

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
LINKED = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
CACHED = {"cache_control": {"type": "ephemeral"}}
BASH: dict[str, Any] = {"name": "bash", "input_schema": {"type": "object"}}
SEARCH: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
RICH: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "s"} | CACHED],
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
    "tools": [BASH | {"defer_loading": True} | CACHED, SEARCH],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE, LINKED]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {
                    "type": "tool_use",
                    "id": "c1",
                    "name": "bash",
                    "input": {"cache_control": "mine", "content": [{"cache_control": "mine"}]},
                },
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [IMAGE]} | CACHED],
        },
    ],
}


def test_what_a_request_uses_is_told_by_name() -> None:
    assert features.used(RICH) == {
        "thinking",
        "thinking_blocks",
        "output_config",
        "cache_control",
        "images",
        "media:url",
        "tool:web_search",
        "tool_field:defer_loading",
    }
    assert features.used({"model": "m", "max_tokens": 1, "messages": [], "tools": [BASH]}) == set()


def test_what_a_kind_of_provider_is_known_to_lack_is_only_told_where_it_is_used() -> None:
    assert features.lacking("bedrock", (), RICH) == ["media:url", "tool:web_search"]
    assert features.lacking("vertex", (), RICH) == ["media:url"]
    assert features.lacking("anthropic", (), RICH) == []
    assert features.lacking("anthropic", ("thinking", "temperature"), RICH) == ["thinking"]


@pytest.mark.parametrize("feature", sorted(features.used(RICH)))
def test_a_request_without_a_feature_uses_it_no_more_and_is_otherwise_the_same(
    feature: str,
) -> None:
    before = copy.deepcopy(RICH)
    made = features.without(RICH, [feature])
    assert before == RICH, "the request that was given is not changed"
    left = features.used(RICH) - features.used(made)
    also = {"thinking": {"thinking_blocks"}, "images": {"media:url"}}.get(feature, set())
    assert left == {feature} | also
    assert made["model"] == "m"
    assert len(made["messages"]) == 3
    assert all(message["content"] for message in made["messages"])


def test_what_a_tool_was_given_is_never_touched() -> None:
    made = features.without(RICH, features.used(RICH))
    given = made["messages"][1]["content"][-1]["input"]
    assert given == {"cache_control": "mine", "content": [{"cache_control": "mine"}]}


def test_an_image_that_cannot_be_shown_has_a_note_in_its_place() -> None:
    made = features.without(RICH, ["images"])
    texts = [block["text"] for block in made["messages"][0]["content"]]
    assert texts[0] == "look"
    assert "image cannot be shown" in texts[1]
    assert "image cannot be shown" in made["messages"][2]["content"][0]["content"][0]["text"]


def test_without_any_tool_left_there_is_no_choice_of_one() -> None:
    request = {"model": "m", "messages": [], "tools": [SEARCH], "tool_choice": {"type": "any"}}
    made = features.without(request, ["tool:web_search"])
    assert made == {"model": "m", "messages": []}


def test_what_no_request_can_do_without_stays() -> None:
    assert features.without(RICH, ["messages", "model", "max_tokens", "system", "tools"]) == RICH


@pytest.mark.parametrize(
    ("message", "feature"),
    [
        ("thinking: Extra inputs are not permitted", "thinking"),
        ("adaptive thinking is not supported on this model", "thinking"),
        (
            "tools.0.custom.defer_loading: Extra inputs are not permitted",
            "tool_field:defer_loading",
        ),
        ("system.0.cache_control: Extra inputs are not permitted", "cache_control"),
        ("messages.2.content.0.tool_result.cache_control: not supported", "cache_control"),
        (
            "tools.1: Input tag 'web_search_20250305' found using 'type' does not match any of the "
            "expected tags: 'custom'",
            "tool:web_search",
        ),
        ("output_config.effort: Extra inputs are not permitted", "output_config"),
        ("messages.0.content.2.image.source.url: URL sources are not supported", "media:url"),
        ("This model does not support image input", "images"),
        ("messages.1.content.0: Invalid `signature` in `thinking` block", "thinking_blocks"),
        (
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
            "`tool_use`. When `thinking` is enabled, a final `assistant` message must start with a "
            "thinking block",
            "thinking",
        ),
        ("temperature: Extra inputs are not permitted", ""),
        ("max_tokens: 9000 > 8192, which is the maximum allowed", ""),
        ("thinking.budget_tokens: Input should be greater than or equal to 1024", ""),
        ("prompt is too long: 2 tokens > 1 maximum", ""),
        ("messages: roles must alternate", ""),
    ],
)
def test_a_refusal_that_names_a_feature_in_use_is_understood(message: str, feature: str) -> None:
    assert features.named(message, RICH) == feature
