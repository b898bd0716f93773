"""What happened in a session's newest turn: events → facts, none of what was said. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from carpal.operator.events import appender, data_of, object_in, time_of
from carpal.v1 import types_pb2

TYPES = (
    *("session.status_running", "session.status_idle", "session.error", "session.consent_required"),
    *("user.message", "user.interrupt", "user.tool_confirmation", "user.consent"),
    *("span.model_request_start", "span.model_request_end", "context.fallback_model"),
    *("context.tools", "session.updated"),
    *("agent.tool_use", "agent.tool_result", "hand.*"),
)
"""Event types that it is told by."""
_BEGINS = ("user.message", "session.status_running", "span.model_request_start")
_GOES_ON = ("requires_action", "budget_reached")
"""Stop reasons after which the same turn goes on, once somebody acts."""
_BY_DRIVER = ("span.", "agent.", "session.status_running")


@dataclass(frozen=True)
class Fact:
    """Something that happened: when, and the data of its event."""

    time: datetime
    data: dict[str, Any]
    id: str = ""
    position: int = 0


@dataclass
class Story:
    """The newest turn, and the hands there are."""

    begun: datetime | None = None
    asked: Fact | None = None
    """The model was asked and has not answered."""
    model_failures: list[Fact] = field(default_factory=list)
    """In a row, since it answered last."""
    answered: bool = False
    errors: list[Fact] = field(default_factory=list)
    calls: dict[str, Fact] = field(default_factory=dict)
    """Every call of the turn."""
    open_calls: dict[str, Fact] = field(default_factory=dict)
    decided: set[str] = field(default_factory=set)
    """Calls that a person decided on, and consents."""
    consents: dict[str, Fact] = field(default_factory=dict)
    """What was waited for of a user's consent, in the turn."""
    results: list[tuple[Fact, Fact]] = field(default_factory=list)
    """Calls that failed, with their results."""
    late: int = 0
    losses: list[Fact] = field(default_factory=list)
    not_made: list[Fact] = field(default_factory=list)
    not_saved: list[Fact] = field(default_factory=list)
    fallback: Fact | None = None
    interrupted: Fact | None = None
    idle: Fact | None = None
    """The newest end or pause of a turn; None while one goes on."""
    drivers: list[tuple[str, datetime]] = field(default_factory=list)
    """Brains that drove the turn, and since when."""
    hands: dict[str, str] = field(default_factory=dict)
    """Hands that are wanted, or there: name → daemon."""
    people: dict[str, Fact] = field(default_factory=dict)
    """Who is in a hand, by their tunnels."""
    forbidden: dict[str, Fact] = field(default_factory=dict)
    """Hands of whose tools the machine's owner forbids some: name → what was told of them."""
    plans: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Hands as the session names them: name → type, placement."""
    offering: set[str] = field(default_factory=set)
    """Hands whose tools were learned."""
    first: datetime | None = None


def read(events: Iterable[types_pb2.Event]) -> Story:
    """Fold events of `TYPES`, in the order of the log; it may begin anywhere before the turn."""
    story = Story()
    ended = True
    for event in events:
        data, time = data_of(event), time_of(event)
        story.first = story.first or time
        if ended and event.type in _BEGINS:
            story = Story(
                begun=time,
                hands=story.hands,
                people=story.people,
                forbidden=story.forbidden,
                plans=story.plans,
                offering=story.offering,
                first=story.first,
            )
            ended = False
        fact = Fact(time, data, event.id, event.position)
        _take(story, event.type, fact)
        if event.type.startswith(_BY_DRIVER):
            role, name = appender(event)
            if role == "brain" and (not story.drivers or story.drivers[-1][0] != name):
                story.drivers.append((name, time))
        if event.type == "session.status_idle":
            ended = ended or object_in(data, "stop_reason").get("type") not in _GOES_ON
    return story


def _take(story: Story, kind: str, fact: Fact) -> None:
    if kind.startswith("hand."):
        _take_hand(story, kind, fact)
    elif kind.startswith(("span.", "agent.")):
        _take_work(story, kind, fact)
    else:
        _take_word(story, kind, fact)


def _take_word(story: Story, kind: str, fact: Fact) -> None:
    data = fact.data
    match kind:
        case "session.status_running" | "user.message":
            story.idle = None
        case "session.status_idle":
            story.idle = fact
        case "session.error":
            story.errors.append(fact)
        case "user.interrupt":
            story.interrupted = fact
        case "user.tool_confirmation":
            story.decided.add(str(data.get("tool_use_id")))
            story.idle = None
        case "session.consent_required":
            story.consents[fact.id] = fact
        case "user.consent":
            story.decided.add(str(data.get("consent_id")))
            story.idle = None
        case "context.fallback_model":
            story.fallback = fact
        case "context.tools":
            hand = str(data.get("hand"))
            story.offering.add(hand)
            story.forbidden.pop(hand, None)
            if isinstance(data.get("forbidden"), list):
                story.forbidden[hand] = fact
        case "session.updated" if "hands" in data:
            plans = object_in(data, "hands").items()
            story.plans = {name: plan for name, plan in plans if isinstance(plan, dict)}


def _take_work(story: Story, kind: str, fact: Fact) -> None:
    data = fact.data
    match kind:
        case "span.model_request_start":
            story.asked, story.idle = fact, None
        case "span.model_request_end":
            story.asked = None
            if not data.get("is_error"):
                story.model_failures, story.answered = [], True
            elif object_in(data, "error").get("type") != "interrupted":
                story.model_failures.append(fact)
        case "agent.tool_use":
            story.calls[fact.id] = story.open_calls[fact.id] = fact
        case "agent.tool_result":
            story.open_calls.pop(str(data.get("tool_use_id")), None)
            call = story.calls.get(str(data.get("tool_use_id")))
            if data.get("layer") and call is not None:
                story.results.append((call, fact))


def _take_hand(story: Story, kind: str, fact: Fact) -> None:
    name = str(fact.data.get("name"))
    if kind in ("hand.lost", "hand.released"):  # nobody is in a hand that is gone
        gone = fact.data.get("hand_id")
        people = story.people.items()
        story.people = {key: each for key, each in people if each.data.get("hand_id") != gone}
    match kind:
        case "hand.entered":
            story.people[str(fact.data.get("tunnel_id"))] = fact
        case "hand.left":
            story.people.pop(str(fact.data.get("tunnel_id")), None)
        case "hand.provision_requested" | "hand.provisioned":
            story.hands[name] = str(fact.data.get("daemon"))
            story.not_made = [each for each in story.not_made if each.data.get("name") != name]
            if isinstance(fact.data.get("tools"), list):  # the hand's own
                story.forbidden.pop(name, None)
                if isinstance(fact.data.get("forbidden"), list):
                    story.forbidden[name] = fact
        case "hand.released":
            story.hands.pop(name, None)
        case "hand.provision_failed":
            story.hands.pop(name, None)
            story.not_made.append(fact)
        case "hand.lost":
            story.hands.pop(name, None)
            story.losses.append(fact)
        case "hand.late_result":
            story.late += 1
        case "hand.save_failed":
            story.not_saved.append(fact)
