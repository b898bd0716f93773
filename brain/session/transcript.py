"""The transcript: what a session's log says, folded as events come. Pure.

One pass, in order of position. It answers what a driver needs to know: what
the agent is, which calls are open and on which hand, whether the model has
something to answer. It holds no truth of its own: fold the same events again
and you get the same answers.
"""

from dataclasses import replace
from typing import Any, Literal

from brain.budget import Budget, read_amounts
from brain.permissions import read_permission
from brain.session import model_kinds as kinds
from brain.session import own_tools, unasked
from brain.session.awaited import Awaited
from brain.session.consents import Consent
from brain.session.entries import (
    KNOWN_TYPES,
    Call,
    Entry,
    Hand,
    ModelRequest,
    Save,
    Window,
    check_content,
)
from brain.session.eviction import evict, read_window
from brain.session.model_standing import Standing

Json = dict[str, Any]

RESTS = ("requires_action", "budget_reached")
"""Stop reasons of a turn that is not over: it goes on once a person decided, or raised a limit."""


class Transcript(Awaited):
    """The fold of one session's log."""

    def __init__(self, inherited: int = 0) -> None:  # noqa: PLR0915 - one a fact
        """`inherited`: the last position that was another session's, on forks and imports."""
        self.inherited = inherited
        self.head = 0
        self.agent: Json = {}
        self.budget = Budget()
        self.harness = ("", "")
        """Name and version of the harness that drove last."""
        self.hand_specs: dict[str, Json] = {}
        """Name → type, config, placement; the first is the default hand."""
        self.tools: dict[str, Json] = {}
        """Hand name → `type, tools`, of which the model can be told; with `hand_id` its own."""
        self.offering = 0
        """Position of the newest event that may change what tools the model is offered."""
        self.loaded: list[str] = []
        """Deferred tools that the model asked for, by the names it was told, oldest first."""
        self.calls: dict[str, Call] = {}
        self.hands: dict[str, Hand] = {}
        self.requests: dict[str, ModelRequest] = {}
        self.models = Standing()
        """What is known of the models, and how their newest call failed."""
        self.saves: dict[str, Save] = {}
        """Saves that were asked for and are not answered, oldest first."""
        self.inputs: list[Entry] = []
        """User and system messages, and tool results, in order of position."""
        self.interrupted = 0
        """Position of the newest interrupt."""
        self.running = False
        """The newest status says that it runs."""
        self.told = 0
        """Events up to here that were passed over have been told."""
        self.idle_through = 0
        """Inputs up to here are settled: answered, or given up with a reason."""
        self.rested = 0
        """Position of the newest idle, if it waits for a person, or for a higher limit."""
        self.changed = 0
        """Position of the newest event that may end such a rest without deciding a call."""
        self.failures = 0
        """Model calls that failed since the last that did not."""
        self.told_unknown: list[str] = []
        """Names in the agent that are no tool's, and of which that has been told."""
        self.unknown: list[Entry] = []
        """Events that must be understood and are not."""
        self.malformed: list[Entry] = []
        """Events whose data is not what their type says; they are passed over."""
        self.moot: list[tuple[Entry, str]] = []
        """Confirmations that decide nothing, and why."""
        self.last_reply: ModelRequest | None = None
        """The newest reply of the model."""
        self._asked: ModelRequest | None = None
        """The newest call of the model."""
        self._open: dict[str, Call] = {}
        self._given_up: dict[str, Call] = {}
        self.consents: dict[str, Consent] = {}
        """MCP server's name → what was waited for last of a user's consent."""
        self.window: Window | None = None
        """Where the context window was cut last; None while nobody did."""
        self.people: dict[str, str] = {}
        """Tunnels of people who are in a hand → the hand's id."""
        self.last_time = 0.0

    def apply(self, entry: Entry) -> None:
        """Take the next event."""
        if entry.position != self.head + 1:
            raise ValueError(f"event {entry.position} came after {self.head}")
        self.head = entry.position
        self.last_time = entry.time
        handle = getattr(self, "_on_" + entry.type.replace(".", "_"), None)
        try:
            if handle is not None:
                handle(entry)
            self.models.apply(entry.type, entry.data)
        except (AttributeError, KeyError, TypeError, ValueError):
            # Anyone may append an inbox event, and nobody checked its data before.
            if not entry.redacted:
                self.malformed.append(entry)
        if handle is None and entry.must_understand and entry.type not in KNOWN_TYPES:
            self.unknown.append(entry)
        if self.head == self.inherited:
            self.leave_behind()

    def leave_behind(self) -> None:
        """The log goes on as this session's own: the hands it spoke of are another's."""
        self.running, self.rested = False, 0
        self.budget.spent.clear()
        self._given_up.clear()
        self.saves.clear()
        self.people.clear()
        self.consents.clear()
        for hand in self.hands.values():
            hand.state, hand.ended = "released", hand.ended or self.inherited

    # What a driver asks.

    @property
    def default_hand(self) -> str:
        """Name of the hand whose tools have no prefix; empty without hands."""
        return next(iter(self.hand_specs), "")

    def open_calls(self) -> list[Call]:
        """Calls without a result, oldest first."""
        return list(self._open.values())

    def not_inherited(self, call: Call) -> bool:
        """Whether the call was open where this log parted: it is the other session's."""
        return call.position <= self.inherited

    def open_request(self) -> ModelRequest | None:
        """A model call that an earlier driver did not finish."""
        return self._asked if self._asked is not None and not self._asked.done else None

    def asked_at(self) -> int:
        """Position of the newest call of the model; 0 without one."""
        return self._asked.position if self._asked is not None else 0

    def stopped(self, call: Call) -> bool:
        """Whether a person interrupted after what the call answers.

        So also when the interrupt came while the model was still writing it.
        """
        request = self.requests.get(call.request_id)
        return request is not None and self.interrupted > request.through

    def answered_through(self) -> int:
        """Position up to which the model has seen everything."""
        return self.last_reply.through if self.last_reply is not None else 0

    def wants_model(self) -> bool:
        """Whether something came that the model has not answered.

        What stood before an interrupt wants nothing any more, and neither do
        the results of calls that were made before it.
        """
        seen = max(self.answered_through(), self.interrupted, self.idle_through)
        for entry in reversed(self.inputs):
            if entry.position <= seen:
                return False
            call = self.calls.get(entry.data.get("tool_use_id", ""))
            if call is None or not self.stopped(call):
                return True
        return False

    def paused(self) -> bool:
        """Whether the service paused the newest reply, which then goes on where it stands."""
        reply = self.last_reply
        if reply is None or reply.stop_reason != "pause_turn":
            return False
        return reply.position > max(self.interrupted, self.idle_through)

    def has_work(self) -> bool:
        """Whether a driver has anything to do.

        Not while all that is open waits for a person, or the budget is reached, and nothing new
        was said.
        """
        if self.running or len(self._open) > len(self.waiting_calls()):
            return True
        return self.wants_model() and not self.rested > self.changed

    def hand_of(self, call: Call) -> Hand | None:
        """The hand a call belongs to: a function of the log (design §5).

        The hand its name meant at the call's position, else the first that
        was provisioned for the name afterwards. It never moves to another.
        Of a call that a person allowed, the position is that of their word:
        it was sent nowhere before.
        """
        named = [h for h in self.hands.values() if h.name == call.hand and h.provisioned]
        for hand in reversed(named):
            if hand.provisioned < call.since and not (0 < hand.ended < call.since):
                return hand
        return next((h for h in named if h.provisioned > call.since), None)

    def requested_hand(self, name: str) -> Hand | None:
        """A hand that was asked for and has no outcome yet."""
        for hand in self.hands.values():
            if hand.name == name and hand.state == "requested":
                return hand
        return None

    def live_hands(self) -> list[Hand]:
        """Hands that exist as far as the log knows."""
        return [hand for hand in self.hands.values() if hand.state == "live"]

    def unreleased_hands(self) -> list[Hand]:
        """Hands of which something may be left: of one lost, its folder and what it kept."""
        return [h for h in self.hands.values() if h.state != "released" and not h.given_up]

    def given_up_calls(self, hand: Hand) -> list[Call]:
        """Calls of a hand that were settled without its word, and of which it said nothing yet."""
        return [
            call
            for call in self._given_up.values()
            if call.result and call.result.get("hand_id") == hand.hand_id
        ]

    def given_up(self, call: Call) -> bool:
        """Whether nobody knows what became of it, and its hand may still tell."""
        return call.call_id in self._given_up

    def settled_calls(self, hand: Hand) -> list[Call]:
        """Calls of a hand of which the log has all it will ever have: it may free them."""
        return [
            call
            for call in self.calls.values()
            if call.result
            and call.result.get("hand_id") == hand.hand_id
            and call.call_id not in self._given_up
        ]

    def may_return(self) -> list[Hand]:
        """Hands the log lost that may still have something to tell, to free, or to be ended."""
        lost = [hand for hand in self.hands.values() if hand.state == "lost"]
        told = {call.late["hand_id"] for call in self.calls.values() if call.late}
        return [h for h in lost if h.given_up or h.hand_id in told or self.given_up_calls(h)]

    # One method an event type.

    def _on_session_updated(self, entry: Entry) -> None:
        agent = dict(entry.data.get("agent", self.agent))
        hands = {
            name: dict(spec) for name, spec in entry.data.get("hands", self.hand_specs).items()
        }
        if not all(isinstance(spec["type"], str) for spec in hands.values()):
            raise ValueError("a hand without a type")
        if "agent" in entry.data:
            self.budget.agree(agent.get("limits"))
        if "limits" in entry.data:
            self.budget.change(entry.data["limits"])
        self.agent, self.hand_specs = agent, hands
        self.changed = self.offering = entry.position

    def _on_session_status_running(self, entry: Entry) -> None:
        self.running = True

    def _on_session_status_idle(self, entry: Entry) -> None:
        self.running = False
        self.idle_through = max(self.idle_through, entry.data.get("through", 0))
        rests = entry.data.get("stop_reason", {}).get("type") in RESTS
        self.rested = entry.position if rests else 0

    def _on_session_error(self, entry: Entry) -> None:
        self.told = max(self.told, entry.data.get("passed_over", 0))
        if isinstance(names := entry.data.get("no_tools"), list):
            self.told_unknown += [name for name in names if isinstance(name, str)]

    def _on_user_message(self, entry: Entry) -> None:
        self._on_system_message(entry)
        self.failures = 0

    def _on_system_message(self, entry: Entry) -> None:
        check_content(entry.data["content"])
        self.inputs.append(entry)
        self.changed = entry.position

    def _on_user_interrupt(self, entry: Entry) -> None:
        self.give_up_consents()
        self.interrupted = self.changed = entry.position

    def _on_user_save(self, entry: Entry) -> None:
        hand = entry.data.get("hand", "")
        if not isinstance(hand, str):
            raise TypeError("a hand's name is no text")
        self.saves[entry.id] = Save(entry.id, entry.position, hand)

    def _on_context_harness(self, entry: Entry) -> None:
        self.harness = (str(entry.data["name"]), str(entry.data["version"]))

    def _on_context_tools(self, entry: Entry) -> None:
        tools = entry.data["tools"]
        if not isinstance(tools, list):
            raise ValueError("tools is not a list")
        self._offer(entry.data["hand"], {**entry.data, "tools": tools}, entry)
        self._consented(str(entry.data["hand"]))

    def _offer(self, name: str, told: Json, entry: Entry) -> None:
        before = next(reversed(self.tools.values()), {}).get("tools")
        # Hands of one type have the same, and each is looked at once.
        tools = told["tools"]
        fit = before if tools == before else own_tools.fit(told)
        self.tools[name] = {**told, "tools": fit}
        self.offering = entry.position

    def _on_context_tools_loaded(self, entry: Entry) -> None:
        names = entry.data["names"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("names is no list of texts")
        self.loaded += [name for name in dict.fromkeys(names) if name not in self.loaded]
        self.offering = entry.position

    def _on_span_model_request_start(self, entry: Entry) -> None:
        if stale := self.open_request():
            # Its driver died before an outcome; a new call takes its place.
            stale.done = stale.failed = True
            self.failures += 1
        through = int(entry.data["through"])
        purpose = str(entry.data.get("purpose", "reply"))
        reserved = read_amounts(entry.data.get("reserved") or {})
        request = ModelRequest(entry.id, entry.position, through, purpose, reserved)
        request.covers = int(entry.data.get("covers") or 0)
        self.budget.reserve(reserved)
        self._asked = self.requests[entry.id] = request

    def _on_span_model_request_end(self, entry: Entry) -> None:
        request = self.requests[entry.data["model_request_start_id"]]
        if not request.done:
            self.budget.settle(entry.data, request.reserved)
        request.done = True
        request.ended = entry.position
        request.failed = bool(entry.data.get("is_error"))
        request.error = dict(entry.data.get("error") or {}) if request.failed else None
        request.usage = dict(entry.data.get("model_usage") or {})
        request.stop_reason = entry.data.get("stop_reason") or ""
        request.stop_sequence = entry.data.get("stop_sequence")
        request.stop_details = entry.data.get("stop_details")
        if not request.failed:
            self.failures = 0
            if request.purpose == "reply":
                self.last_reply = request
            else:
                request.answer = dict(entry.data.get("reply") or {})
        elif entry.data.get("error", {}).get("type") not in kinds.NOT_COUNTED:
            self.failures += 1

    def _on_agent_message(self, entry: Entry) -> None:
        check_content(entry.data["content"])
        self._add_block(entry)

    def _add_block(self, entry: Entry) -> None:
        self.requests[entry.data["model_request_start_id"]].blocks.append(entry)

    _on_agent_thinking = _on_agent_message

    def _on_agent_tool_use(self, entry: Entry) -> None:
        data = entry.data
        if not isinstance(data["name"], str):
            raise TypeError("a tool's name is no text")
        call = Call(
            call_id=entry.id,
            position=entry.position,
            name=data["name"],
            hand=data.get("hand", ""),
            input=data["input"],
            request_id=data["model_request_start_id"],
            server=str(data.get("mcp_server_name") or ""),
            permission=read_permission(data.get("evaluated_permission")),
        )
        self._add_block(entry)
        self.calls[entry.id] = self._open[entry.id] = call

    def _on_agent_tool_result(self, entry: Entry) -> None:
        call = self.calls.get(entry.data["tool_use_id"])
        if call is None or call.result is not None:
            return
        check_content(entry.data["content"])
        call.result = entry.data
        del self._open[call.call_id]
        if entry.data.get("given_up"):
            self._given_up[call.call_id] = call
        self.inputs.append(entry)
        hand = self.hands.get(entry.data.get("hand_id", ""))
        if hand is not None:
            hand.sequence = max(hand.sequence, entry.data.get("sequence", 0))

    def _on_agent_thread_context_compacted(self, entry: Entry) -> None:
        if "through" in entry.data:  # elsewhere such an event says nothing
            self.window = read_window(entry, self)
            evict(self, self.window.through)

    def _on_hand_late_result(self, entry: Entry) -> None:
        check_content(entry.data["content"])
        call = self._given_up.pop(entry.data["tool_use_id"], None)
        if call is not None:
            call.late = entry.data
            self.inputs.append(entry)
            self.changed = entry.position

    def _on_hand_event(self, entry: Entry) -> None:
        data = entry.data
        if "event_id" in data and unasked.wanted(
            self.hand_specs.get(data["name"], {}), data["kind"]
        ):
            self._hear(entry, unasked.told(data))
            self.changed = entry.position

    def _on_hand_provision_requested(self, entry: Entry) -> None:
        data = entry.data
        self.hands[data["hand_id"]] = Hand(
            hand_id=data["hand_id"],
            name=data["name"],
            type=data["type"],
            daemon=data["daemon"],
            config=data.get("config", {}),
            resources=[(str(source), str(path)) for source, path in data.get("resources", ())],
            limits=data.get("limits", {}),
            orphan_deadline=data["orphan_deadline"],
            requested=entry.position,
        )

    def _on_hand_provisioned(self, entry: Entry) -> None:
        hand = self.hands[entry.data["hand_id"]]
        hand.state = "live"
        hand.provisioned = entry.position
        hand.journal_id = entry.data["journal_id"]
        hand.boot_id = entry.data["boot_id"]
        hand.sequence = entry.data["sequence"]
        if isinstance(tools := entry.data.get("tools"), list):
            told = {"hand": hand.name, "type": hand.type, "tools": tools, "hand_id": hand.hand_id}
            self._offer(hand.name, {**told, "forbidden": entry.data.get("forbidden")}, entry)
        if isinstance(changed := entry.data.get("tools_changed"), dict):
            hand.outdated = own_tools.outdated(changed)
            self._hear(entry, own_tools.told_changes(hand.name, changed))

    def _on_hand_provision_failed(self, entry: Entry) -> None:
        self._end(entry, "failed")
        if entry.data.get("tools_unknown"):
            why = str(entry.data.get("message", ""))
            self._hear(entry, own_tools.told_failure(str(entry.data["name"]), why))

    def _hear(self, entry: Entry, content: list[Json]) -> None:
        """Have the model told of it, when it is asked next."""
        self.inputs.append(replace(entry, data=entry.data | {"content": content}))

    def _on_hand_lost(self, entry: Entry) -> None:
        self._end(entry, "lost")
        self.hands[entry.data["hand_id"]].given_up = bool(entry.data.get("given_up"))

    def _on_hand_released(self, entry: Entry) -> None:
        self._end(entry, "released")
        for call in self.given_up_calls(self.hands[entry.data["hand_id"]]):
            del self._given_up[call.call_id]

    def _on_hand_saved(self, entry: Entry) -> None:
        self.saves.pop(entry.data["save_id"], None)

    _on_hand_save_failed = _on_hand_saved

    def _on_hand_entered(self, entry: Entry) -> None:
        self.people[str(entry.data["tunnel_id"])] = str(entry.data["hand_id"])

    def _on_hand_left(self, entry: Entry) -> None:
        self.people.pop(str(entry.data["tunnel_id"]), None)

    def _end(self, entry: Entry, state: Literal["failed", "lost", "released"]) -> None:
        hand = self.hands[entry.data["hand_id"]]
        hand.state = state
        # A hand that is lost, and released later, means nothing from the first on.
        hand.ended = hand.ended or entry.position
        self.people = {t: at for t, at in self.people.items() if at != hand.hand_id}
