"""Logs that chance makes, as drivers, people and hands may leave them; and what a driver asks."""

import random
from dataclasses import replace
from typing import Any

from brain.context.boundaries import boundaries
from brain.context.conversation import conversation
from brain.context.request import next_reply
from brain.context.window import next_cut
from brain.session.entries import COMPACTED
from brain.session.transcript import Transcript
from tests.brain.logs import AGENT, HANDS, Log

Json = dict[str, Any]
BRAIN = "spiffe://carpal.internal/brain/b1"
TOOL = {"name": "bash", "description": "d", "input_schema": {"type": "object"}}


class Chance:
    """Adds to a log what may come next."""

    def __init__(self, seed: int, inherited: int = 0) -> None:
        self.random = random.Random(seed)
        self.log = Log(inherited)
        self._hands = 0
        self._asked: str | None = None

    def grow(self, steps: int) -> Log:
        """So many steps, of which some say nothing."""
        steps_there_are = [getattr(self, name) for name in dir(self) if name.startswith("_do_")]
        for _ in range(steps):
            self.random.choice(steps_there_are)()
            if self.log.transcript.head == self.log.transcript.inherited:
                self._asked = None
        return self.log

    def _erased(self, kind: str, data: Json) -> None:
        """An event, whose data may be erased by now."""
        self.log.add(kind, data)
        if self.random.random() < 0.05:
            self.log.entries[-1] = replace(self.log.entries[-1], data={}, redacted=True)
            again = Transcript(self.log.transcript.inherited)
            for entry in self.log.entries:
                again.apply(entry)
            self.log.transcript = again

    def _do_say(self) -> None:
        self._erased("user.message", {"content": [{"type": "text", "text": self._word()}]})

    def _do_say_nonsense(self) -> None:
        self.log.add("user.message", {"content": self.random.choice(["no", None, [1]])})

    def _do_change(self) -> None:
        context = {"policy": self.random.choice(["whole", "trim", "compact", "reset", "retrieve"])}
        agent = AGENT | {"context": context, "limits": {"model_requests": 1000}}
        self.log.add("session.updated", {"agent": agent, "hands": HANDS})

    def _do_learn(self) -> None:
        self.log.add("context.tools", {"hand": "shell", "type": "process", "tools": [TOOL]})

    def _do_start(self) -> None:
        if not self.log.transcript.open_calls():
            through = self.log.transcript.head
            reserved = {"model_requests": 1, "input_tokens": 10}
            start = {"through": through, "reserved": reserved}
            if self.random.random() < 0.1:
                start["purpose"] = "aside"
            self._asked = self.log.add("span.model_request_start", start)

    def _do_end(self) -> None:
        asked, self._asked = self._asked, None
        if asked is None:
            return
        chance = self.random.random()
        if self.log.transcript.requests[asked].purpose != "reply":
            end = {"model_request_start_id": asked, "is_error": False, "reply": {"content": []}}
            self.log.add("span.model_request_end", end)
        elif chance < 0.15:
            error = {"type": self.random.choice(["model_overloaded_error", "interrupted"])}
            end = {"model_request_start_id": asked, "is_error": True, "error": error}
            self.log.add("span.model_request_end", end)
        else:
            calls = tuple(self._word() for _ in range(self.random.choice([0, 0, 1, 2, 5])))
            self.log.reply(asked, self._word(), calls=calls, hand=self._name())

    _do_end_too = _do_end

    def _do_settle(self) -> None:
        for call in self.log.transcript.open_calls():
            hand = self.log.transcript.hand_of(call)
            said: Json = {"hand_id": hand.hand_id, "sequence": 3} if hand is not None else {}
            if hand is not None and self.random.random() < 0.3:
                self.log.result(call.call_id, outcome="interrupted", given_up=True, **said)
            elif self.random.random() < 0.9:
                self.log.result(call.call_id, self._word(), **said)

    _do_settle_too = _do_settle

    def _do_hear(self) -> None:
        for call in list(self.log.transcript.calls.values()):
            if self.log.transcript.given_up(call) and self.random.random() < 0.5:
                result = call.result or {}
                content = [{"type": "text", "text": self._word()}]
                data = {"tool_use_id": call.call_id, "hand_id": result["hand_id"]}
                self.log.add("hand.late_result", data | {"content": content})

    def _do_want_hand(self) -> None:
        self._hands += 1
        self.log.request_hand(f"h{self._hands}", self._name())

    def _do_make_hand(self) -> None:
        self._hands += 1
        self.log.provision(f"h{self._hands}", self._name())

    def _do_end_hand(self) -> None:
        if hands := [h for h in self.log.transcript.hands.values() if h.state != "released"]:
            hand = self.random.choice(hands)
            kind = self.random.choice(["hand.lost", "hand.released", "hand.provision_failed"])
            data: Json = {"hand_id": hand.hand_id, "name": hand.name, "reason": "x"}
            if kind == "hand.lost" and self.random.random() < 0.5:
                data["given_up"] = True
            self.log.add(kind, data)

    def _do_interrupt(self) -> None:
        self.log.add("user.interrupt")

    def _do_save(self) -> None:
        saved = self.log.add("user.save", {"hand": self._name()})
        if self.random.random() < 0.5:
            self.log.add("hand.saved", {"save_id": saved, "name": "shell"})

    def _do_decide(self) -> None:
        calls = list(self.log.transcript.calls) or ["none"]
        data = {"tool_use_id": self.random.choice(calls), "result": "allow"}
        self.log.add("user.tool_confirmation", data)

    def _do_rest(self) -> None:
        through = self.random.choice([self.log.transcript.head, 0])
        kind = self.random.choice(["end_turn", "requires_action", "budget_reached"])
        data = {"stop_reason": {"type": kind}, "through": through}
        self.log.add("session.status_idle", data)

    def _do_run(self) -> None:
        self.log.add("session.status_running")
        self.log.add("context.harness", {"name": "tool_loop", "version": "1"})

    def _do_tell(self) -> None:
        error = {"type": "malformed_event_error", "message": "m"}
        data = {"error": error, "passed_over": self.log.transcript.head}
        self.log.add("session.error", data)

    def _do_cut(self) -> None:
        transcript = self.log.transcript
        if self._asked is not None:
            return
        places = boundaries(transcript, conversation(transcript))
        if places and transcript.head > 5:
            through = self.random.choice(places).through
            data = {"policy": "compact/1", "kind": "summary", "through": through, "text": "SUM"}
            self.log.add(COMPACTED, data)

    def _name(self) -> str:
        return self.random.choice(list(HANDS))

    def _word(self) -> str:
        return self.random.choice(["alpha", "beta", "gamma " * 30, "x" * 200, ""])


def asked_of(transcript: Transcript) -> Json:
    """Every question that a driver, its helpers and a harness ask."""
    hands = list(transcript.live_hands()) + list(transcript.may_return())
    calls = transcript.open_calls()
    answers: Json = {
        "head": (transcript.head, transcript.last_time, transcript.inherited),
        "agent": (transcript.agent, transcript.hand_specs, transcript.tools, transcript.harness),
        "open": calls,
        "waiting": [call.call_id for call in transcript.waiting_calls()],
        "hand of": [transcript.hand_of(call) for call in calls],
        "stopped": [transcript.stopped(call) for call in calls],
        "not inherited": [transcript.not_inherited(call) for call in calls],
        "work": (transcript.wants_model(), transcript.has_work(), transcript.running),
        "positions": (transcript.interrupted, transcript.idle_through, transcript.told),
        "rest": (transcript.rested, transcript.changed, transcript.failures),
        "answered": transcript.answered_through(),
        "dead request": getattr(transcript.open_request(), "request_id", None),
        "last stop": getattr(transcript.last_reply, "stop_reason", None),
        "live": transcript.live_hands(),
        "unreleased": transcript.unreleased_hands(),
        "may return": transcript.may_return(),
        "requested": [transcript.requested_hand(name) for name in transcript.hand_specs],
        "given up": [transcript.given_up_calls(hand) for hand in hands],
        "to free": [[c.call_id for c in transcript.settled_calls(hand)] for hand in hands],
        "saves": transcript.saves,
        "budget": transcript.budget,
        "window": transcript.window,
        "unknown": [entry.position for entry in transcript.unknown],
        # What of it is malformed, and what merely decides nothing, is told in the same way.
        "passed over": sorted(
            entry.position
            for entry in [*transcript.malformed, *(entry for entry, _ in transcript.moot)]
            if entry.position > transcript.told
        ),
    }
    if not calls:
        answers["request"] = next_reply(transcript)
        answers["cut"] = next_cut(transcript)
    return answers
