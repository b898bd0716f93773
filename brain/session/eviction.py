"""What a transcript forgets when the window was cut: what nobody asks of it any more. Pure.

The log keeps everything. The transcript keeps what a driver decides by: open
calls, hands, what is to be answered, what a hand may still tell. So it does
not grow with the log, and a checkpoint of it is small.
"""

from dataclasses import replace
from typing import Any, Protocol

from brain.session.entries import Call, Entry, Hand, ModelRequest, Window

Json = dict[str, Any]

SETTLED_MAX = 1000
"""Settled calls of one hand that stay, the newest: a new driver tells the hand that it may free
their output, if the one before it could not. Of older ones that is so by now, or does no harm."""


class Folded(Protocol):
    """What is asked of a transcript here."""

    window: Window | None
    inputs: list[Entry]
    calls: dict[str, Call]
    hands: dict[str, Hand]
    requests: dict[str, ModelRequest]
    malformed: list[Entry]
    moot: list[tuple[Entry, str]]
    told: int
    interrupted: int
    idle_through: int

    def answered_through(self) -> int:
        """See Transcript."""

    def given_up(self, call: Call) -> bool:
        """See Transcript."""


def read_window(entry: Entry, transcript: Folded) -> Window:
    """The cut that an event says; ValueError, KeyError or TypeError for one that is none."""
    data = entry.data
    through, text, before = data["through"], data["text"], transcript.window
    if not isinstance(through, int) or not isinstance(text, str) or not text.strip():
        raise TypeError("a cut has a position and a text")
    if not (before.through if before is not None else 0) < through < entry.position:
        raise ValueError("a cut is after the last one, and before its event")
    if any(r.position <= through < r.ended for r in transcript.requests.values()):
        raise ValueError("a cut is not inside a reply")
    late = {e.data["tool_use_id"] for e in transcript.inputs if _is_result_after(e, through)}
    calls = transcript.calls.values()
    if any(c.position <= through and (c.result is None or c.call_id in late) for c in calls):
        raise ValueError("a cut is not between a call and its result")
    return Window(entry.position, through, text, str(data.get("kind", "")))


def _is_result_after(entry: Entry, through: int) -> bool:
    return entry.type == "agent.tool_result" and entry.position > through


def evict(transcript: Folded, through: int) -> None:
    """Forget what stands up to `through`, but for what is still asked."""
    seen = max(transcript.answered_through(), transcript.interrupted, transcript.idle_through)
    transcript.inputs = [
        entry if entry.position > through else _husk(entry)
        for entry in transcript.inputs
        if entry.position > min(through, seen)
    ]
    _evict_calls(transcript, through)
    for hand in list(transcript.hands.values()):
        if hand.state == "released" and hand.ended <= through:
            del transcript.hands[hand.hand_id]
    for request in list(transcript.requests.values()):
        if request.position <= through:
            request.blocks, request.answer = [], None
    _evict_requests(transcript, through)
    told = transcript.told
    transcript.malformed = [_husk(e) for e in transcript.malformed if e.position > told]
    transcript.moot = [(_husk(e), why) for e, why in transcript.moot if e.position > told]


def _evict_calls(transcript: Folded, through: int) -> None:
    asked = {entry.data.get("tool_use_id") for entry in transcript.inputs}
    # Whatever the log says of one, it may say that it was lost, and was not: until its release.
    live = {each.hand_id for each in transcript.hands.values() if each.state != "released"}
    kept: dict[str, int] = {}
    for call in reversed(list(transcript.calls.values())):
        if call.position > through or call.result is None or transcript.given_up(call):
            continue
        hand = (call.late or call.result).get("hand_id", "")
        kept[hand] = kept.get(hand, 0) + (hand in live)
        if call.call_id not in asked and not 0 < kept[hand] <= SETTLED_MAX:
            del transcript.calls[call.call_id]
        else:
            _strip(call)


def _strip(call: Call) -> None:
    call.input = {}
    hand = (call.result or {}).get("hand_id")
    call.result = {"hand_id": hand} if hand else {"outcome": ""}
    if call.late is not None:
        call.late = {"hand_id": call.late.get("hand_id", "")}


def _evict_requests(transcript: Folded, through: int) -> None:
    asked = {entry.data.get("tool_use_id") for entry in transcript.inputs}
    needed = {
        call.request_id
        for call in transcript.calls.values()
        if call.call_id in asked or transcript.given_up(call) or call.position > through
    }
    for request in list(transcript.requests.values()):
        done = request.done and request.request_id not in needed
        if request.position <= through and done:
            del transcript.requests[request.request_id]


def _husk(entry: Entry) -> Entry:
    """An event that still counts, but is not read any more."""
    call = entry.data.get("tool_use_id")
    return replace(entry, data={"tool_use_id": call} if call else {}, source="")
