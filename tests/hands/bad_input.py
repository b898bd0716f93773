"""What people and models get wrong of a hand, and what each is told: of every type the same."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from carpal.errors import CarpalError
from carpal.status import SPECS, Reason
from carpal.v1 import hand_pb2 as pb
from tests.hands.place import Place

CALLS: list[tuple[str, dict[str, Any], Reason, str, str]] = [
    ("teleport", {}, Reason.TOOL_NOT_FOUND, "name", "it has bash, read, write"),
    ("bash", {"command": 7}, Reason.INPUT_INVALID, "command", "must be a string"),
    ("bash", {"comand": "true"}, Reason.INPUT_INVALID, "comand", "known are command"),
    ("bash", {"command": "x", "timeout_ms": -1}, Reason.INPUT_INVALID, "timeout_ms", "at least 0"),
    ("read", {}, Reason.INPUT_INVALID, "file_path", "is required"),
    ("read", {"file_path": "a", "view_range": 3}, Reason.INPUT_INVALID, "view_range", "a list"),
    ("memory", {"command": "fly"}, Reason.INPUT_INVALID, "command", "view, create"),
]
"""Tool, input → reason, field, and words of what would be right."""
PATHS: list[tuple[str, dict[str, Any], str]] = [
    ("read", {"file_path": "/etc/passwd"}, "outside the workspace"),
    ("write", {"file_path": "../out", "content": "x"}, "leads out of the workspace"),
    ("glob", {"pattern": "../*"}, "must be relative"),
    ("grep", {"pattern": "x", "path": "/etc"}, "outside the workspace"),
    ("read", {"file_path": "none"}, "none"),
    ("read", {"file_path": "."}, "is a folder"),
    ("grep", {"pattern": "("}, "not a Python regular expression"),
]
"""Tool, input → words of a result, which is an error."""
ORDERS: list[tuple[dict[str, Any], Reason, str, str]] = [
    ({"type": "spaceship"}, Reason.HAND_TYPE_NOT_FOUND, "type", "there is"),
    ({"limits": {"memory_bytes": 5}}, Reason.INVALID_FIELD, "limits.memory_bytes", "at least"),
    ({"limits": {"cpus": -1}}, Reason.INVALID_FIELD, "limits.cpus", "above 0"),
    (
        {"limits": {"memory_bytes": 128 << 20, "disk_bytes": 512 << 20}},
        *(Reason.LIMIT_NOT_ENFORCEABLE, "limits.disk_bytes", "disk_bytes"),
    ),
    ({"config": {"nope": 1}}, Reason.INVALID_FIELD, "config.nope", "known are"),
    ({"config": {"env": 3}}, Reason.INVALID_FIELD, "config.env", "must be an object"),
    ({"config": {"workspace": "here"}}, Reason.INVALID_FIELD, "config.workspace", "absolute"),
    ({"mount": ("git:ftp://x", "r")}, Reason.INVALID_FIELD, "mounts[0].source_ref", "https://"),
    ({"mount": ("text:x", "../r")}, Reason.INVALID_FIELD, "mounts[0].mount_path", "'..'"),
    ({"mount": ("tar:12", "r")}, Reason.INVALID_FIELD, "mounts[0].source_ref", "64"),
    (
        {"mount": ("git:https://127.0.0.1:1/r.git", "r")},
        *(Reason.MOUNT_NOT_FOUND, "mounts[0].source_ref", "mounts[0] (r)"),
    ),
]
"""What is asked for → reason, field, and words of what would be right."""


async def each_is_told_and_the_hand_stays_usable(
    place: Place, kind: str, config: Mapping[str, Any]
) -> None:
    """Everything that is wrong, tried one after the other beside one hand of a type."""
    hand = await place.hand(type=kind, **config)
    for tool, given, reason, field, words in CALLS:
        _told(await _refusal(place.steps(place.request(hand, tool, **given))), reason, field, words)
        await _works(place, hand)
    for tool, given, words in PATHS:
        result = await place.run(hand, tool, **given)
        assert result.outcome == pb.OUTCOME_ERROR, result
        assert words in result.content
        await _works(place, hand)
    for asked, reason, field, words in ORDERS:
        request = _order(place, kind, {**config, **asked.get("config", {})}, asked)
        _told(await _refusal(place.provision(request)), reason, field, words)
        await _works(place, hand)
    assert place.inventory.count == 1, "what was refused left no hand"
    await place.release(hand)
    gone = await _refusal(place.steps(place.request(hand, "bash", command="true")))
    _told(gone, Reason.HAND_NOT_FOUND, "hand_id", hand)
    other = await place.hand(type=kind, **config)
    await _works(place, other)


async def _works(place: Place, hand: str) -> None:
    assert (await place.sh(hand, "echo on")).content == "on\n"


async def _refusal(answer: Any) -> CarpalError:
    with pytest.raises(CarpalError) as caught:
        await answer
    return caught.value


def _told(error: CarpalError, reason: Reason, field: str, words: str) -> None:
    """It names the field, says what would be right, and what to do."""
    assert (error.reason, error.fields.get("field")) == (reason, field), error
    assert words in error.message
    assert SPECS[reason].action


def _order(
    place: Place, kind: str, config: Mapping[str, Any], asked: Mapping[str, Any]
) -> pb.ProvisionRequest:
    request = pb.ProvisionRequest(
        driver=place.driver(),
        hand_id=place.new_id("h"),
        type=asked.get("type", kind),
        config=json.dumps(config).encode(),
        limits=pb.Limits(**asked.get("limits", {})),
    )
    if mount := asked.get("mount"):
        request.mounts.add(source_ref=mount[0], mount_path=mount[1])
    return request
