"""What a harness asks for is checked, field by field, before any of it is in the log."""

from collections.abc import Iterator
from typing import Any

import pytest

from brain.effect_check import Wrong, check
from brain.effects import CallModel, Effect, Emit, Execute, Finish, Provision, ReadEvents, Sleep
from brain.session.entries import COMPACTED
from tests.brain.logs import Log

GOOD = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
CYCLE: dict[str, Any] = {}
CYCLE["self"] = CYCLE


def asks(**changed: Any) -> CallModel:
    """A call of the model with this of its request changed."""
    return CallModel({**GOOD, **changed}, "given/1", 0)


def deep(levels: int) -> dict[str, Any]:
    """Objects within each other."""
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


WRONG: list[tuple[Any, str]] = [
    (Finish("end_turn", through=10**6), "Finish.through"),
    (Finish("end_turn", through="x"), "Finish.through"),  # type: ignore[arg-type]
    (Finish("end_turn", through=True), "Finish.through"),
    (Finish("end_turn", through=-7), "Finish.through"),
    (Finish({"a": 1}), "Finish.stop_reason"),  # type: ignore[arg-type]
    (Finish("\ud800"), "Finish.stop_reason"),
    (Finish("x" * 5_000), "Finish.stop_reason"),
    (Finish("end_turn", details={"a": float("nan")}), "Finish.details"),
    (Finish("requires_action", reason_more={"type": "end_turn"}), "Finish.reason_more"),
    (Finish("end_turn", settled=1), "Finish.settled"),  # type: ignore[arg-type]
    (Execute(("nope",)), "Execute.call_ids"),
    (Execute("abc"), "Execute.call_ids"),  # type: ignore[arg-type]
    (Execute((None,)), "Execute.call_ids"),  # type: ignore[arg-type]
    (Provision("nope"), "Provision.hand"),
    (Provision(None), "Provision.hand"),  # type: ignore[arg-type]
    (CallModel({}, "given/1", 0), "CallModel.request: model"),
    (CallModel([], "given/1", 0), "CallModel.request"),  # type: ignore[arg-type]
    (CallModel(GOOD, "", 0), "CallModel.policy"),
    (CallModel(GOOD, "given/1", 10**30), "CallModel.through"),
    (CallModel(GOOD, "given/1", 0, covers=-1), "CallModel.covers"),
    (CallModel(GOOD, "given/1", 0, purpose="odd"), "CallModel.purpose"),  # type: ignore[arg-type]
    (CallModel(GOOD, "given/1", 0, provider="a\n"), "CallModel.provider"),
    (asks(max_tokens=-(10**9)), "CallModel.request: max_tokens"),
    (asks(max_tokens=10**30), "CallModel.request: max_tokens"),
    (asks(max_tokens="many"), "CallModel.request: max_tokens"),
    (asks(max_tokens=float("inf")), "CallModel.request"),
    (asks(temperature=object()), "CallModel.request: is not JSON"),
    (asks(temperature=CYCLE), "CallModel.request: is not JSON"),
    (asks(metadata=deep(100_000)), "CallModel.request: is nested too deeply"),
    (asks(system="\ud800"), "CallModel.request: is not JSON"),
    (asks(messages=[{"type": "base64", "data": 7}]), "CallModel.request: messages"),
    (Sleep(float("nan")), "Sleep.seconds"),
    (Sleep(float("inf")), "Sleep.seconds"),
    (Sleep(-1), "Sleep.seconds"),
    (Sleep("x"), "Sleep.seconds"),  # type: ignore[arg-type]
    (ReadEvents(after=10**30), "ReadEvents.after"),
    (ReadEvents(after="x"), "ReadEvents.after"),  # type: ignore[arg-type]
    (ReadEvents(before=-1), "ReadEvents.before"),
    (ReadEvents(limit=10**9), "ReadEvents.limit"),
    (ReadEvents(limit=0), "ReadEvents.limit"),
    (ReadEvents(types=("",)), "ReadEvents.types"),
    (ReadEvents(types="user.*"), "ReadEvents.types"),  # type: ignore[arg-type]
    (Emit("x.note", {"a": float("nan")}), "Emit.data"),
    (Emit("x.note", {"a": object()}), "Emit.data"),
    (Emit("x.note", {"a": "x" * 2**21}), "Emit.data"),
    (Emit("x.note", deep(200)), "Emit.data"),
    (Emit("ty/pe"), "Emit.type"),
    (Emit("session.error", {}), "Emit.data: error"),
    (Emit("session.error", {"error": {"type": "a", "message": 7}}), "Emit.data: error.message"),
    (
        Emit("session.error", {"error": {"type": "a", "message": "b"}, "through": 10**6}),
        "Emit.data: through",
    ),
    (
        Emit("session.error", {"error": {"type": "a", "message": "b"}, "passed_over": 9}),
        "Emit.data: passed_over",
    ),
    (Emit(COMPACTED, {"through": 10**6, "text": "a"}), "Emit.data: a cut"),
    (Emit(COMPACTED, {}), "Emit.data"),
    *(
        (Emit(kind), "is not for a harness to write")
        for kind in (
            "user.message",
            "agent.tool_use",
            "agent.tool_result",
            "session.status_idle",
            "session.updated",
            "span.model_request_end",
            "hand.lost",
            "system.message",
        )
    ),
]


@pytest.mark.parametrize(("effect", "says"), WRONG, ids=[says for _, says in WRONG])
def test_what_cannot_be_performed_is_refused_by_effect_and_field(effect: Any, says: str) -> None:
    with pytest.raises(Wrong) as caught:
        check(effect, Log().transcript)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 500


def good() -> Iterator[Effect]:
    """What harnesses do yield."""
    yield CallModel(GOOD, "given/1", 0, purpose="aside", provider="other", calls_prefix="mcp__")
    yield CallModel({"model": "m", "messages": []}, "given/1", 0)
    yield ReadEvents(before=7, newest_first=True, limit=1_000, types=("user.*", "session.error"))
    yield Emit("context.note", {"text": "x"})
    yield Emit("nightly.report", {"lines": [1, 2.5, None]})
    yield Emit("session.error", {"error": {"type": "a", "message": "b"}, "through": 0})
    yield Sleep(0)
    yield Sleep(30.0)
    yield Execute(())
    yield Finish("end_turn", {"type": "empty_reply"}, through=0)
    yield Finish("requires_action", settled=False, reason_more={"event_ids": ["sevt_1"]})


@pytest.mark.parametrize("effect", list(good()), ids=lambda value: str(value)[:60])
def test_what_can_be_performed_is_let_through(effect: Effect) -> None:
    check(effect, Log().transcript)
