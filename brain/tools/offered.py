"""Which tools the model is offered, and which hand a tool name means. Pure.

The default hand's tools keep their own names; another hand's are
`<hand>__<tool>`, and an MCP server's `<server>__<tool>`, so every name says where
it runs. Of very many only the default hand's are offered, and a search for the
others; what it found is offered from then on, at the end, so that what stands
before stays as it was.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from brain.offers import forbidden_of, tools_of
from brain.permissions import Permission, evaluate, is_offered
from brain.servers import servers
from brain.session.transcript import Transcript
from brain.tools import own as own_tools
from brain.tools import toolsets
from brain.tools.names import tool_name
from brain.tools.own import PREFIX
from carpal import browser_toolset
from carpal.agent import OWN_HAND
from carpal.status import Reason
from carpal.v1 import hand_pb2

Json = dict[str, Any]

_NAMES_MAX = 50
"""Names that a model which called a tool that is not there is told."""
LISTS_TOOLS = "lists_tools"
"""Capability of a type each of whose hands has tools of its own, known once it is made."""
DEFER_ABOVE = 40
"""Tools of all hands together that are offered at once, where the agent says nothing."""


@dataclass
class _Offer:
    """What was made already, as long as the log says nothing new of agent, hands and tools."""

    at: tuple[int, str]
    by_name: dict[str, tuple[str, Json]] | None = None
    tools: list[Json] | None = None


_offers: WeakKeyDictionary[Transcript, _Offer] = WeakKeyDictionary()
"""Every turn, and every call, asks for them, and fifty hands have hundreds."""


def _offer(transcript: Transcript) -> _Offer:
    offer = _offers.get(transcript)
    at = transcript.offering, toolsets.hand_of(transcript)
    if offer is None or offer.at != at:
        offer = _offers[transcript] = _Offer(at)
    return offer


def offered(transcript: Transcript) -> list[Json]:
    """Messages API tools, from the newest `context.tools` of each named hand, and the brain's own.

    Each name once. What the API would refuse is left out, for it refuses the whole request.
    """
    offer = _offer(transcript)
    if offer.tools is None:
        offer.tools = _offered(transcript)
    return list(offer.tools)


def _offered(transcript: Transcript) -> list[Json]:
    named = _allowed(transcript)
    held = deferred(transcript)
    tools = [_told(transcript, name, *named[name]) for name in named if name not in held]
    tools += own_tools.log_tools(transcript)
    if held:
        tools.append(own_tools.search_tool(list(dict.fromkeys(named[name][0] for name in held))))
        loaded = [name for name in transcript.loaded if name in held]
        tools += [_told(transcript, name, *named[name]) for name in loaded]
    return tools


def deferred(transcript: Transcript) -> dict[str, Json]:
    """Tools that the model must search for, by the names it is told, loaded ones too.

    None unless there are more than the agent has offered at once; the default hand's neither,
    unless they alone are.
    """
    # A toolset is one tool, however many members it has.
    whole = toolsets.hand_of(transcript)
    named = {name: told for name, told in _allowed(transcript).items() if told[0] != whole}
    said = (transcript.agent.get("tools") or {}).get("defer_above")
    most = said if type(said) is int else DEFER_ABOVE
    if len(named) <= most:
        return {}
    default = transcript.default_hand
    basic = {name for name, (hand, _) in named.items() if hand == default}
    if len(basic) > most:
        basic = set()
    return {name: tool for name, (_, tool) in named.items() if name not in basic}


def meant(transcript: Transcript, name: str) -> tuple[str, str]:
    """Hand and tool that a name the model used means.

    A name nobody offered means the default hand, unless `no_tool` knows better.
    """
    if name in (known := _by_name(transcript)):
        hand, told = known[name]
        return hand, str(told["name"])
    hand, separator, tool = name.partition("__")
    if separator and (hand in places(transcript) or hand == OWN_HAND):
        return hand, tool
    return transcript.default_hand, name


def permitted(transcript: Transcript, name: str) -> tuple[str, str, Permission]:
    """Hand and tool that a name the model used means, and what the agent's permissions say of it.

    They are of the name that the tool is offered by, whatever other name led to it: no way of
    writing a tool's name is a way around them.
    """
    hand, tool = meant(transcript, name)
    by_name = tool_name(transcript, hand, tool)
    told = evaluate(transcript.agent, by_name, hand, of_server=is_server(transcript, hand))
    if told == "allow" and tool in transcript.tools.get(hand, {}).get("changed", ()):
        # The server says something else of it than when the session first saw it: whoever allowed
        # it, allowed another.
        told = "ask"
    return hand, tool, told


def places(transcript: Transcript) -> list[str]:
    """What has tools: hands, then MCP servers, by name."""
    hands = transcript.hand_specs
    return [*hands, *(name for name in servers(transcript.agent) if name not in hands)]


def is_server(transcript: Transcript, name: str) -> bool:
    """Whether the agent has an MCP server by this name, and no hand."""
    return name not in transcript.hand_specs and name in servers(transcript.agent)


def no_tool(transcript: Transcript, name: str) -> tuple[str, Reason] | None:
    """What the model is told of a name that is no tool's, and the cause; None when it may be one's.

    While it is not known what a hand has, that hand is asked.
    """
    known = _by_name(transcript)
    hand, tool = meant(transcript, name)
    there = {(each, str(told["name"])) for each, told in known.values()}
    unsure = transcript.hand_specs.keys() - transcript.tools.keys()
    if (hand, tool) in there or hand == OWN_HAND or unsure:
        return None
    forbidden = transcript.tools.get(hand, {}).get("forbidden")
    if isinstance(forbidden, list) and tool in forbidden:
        told = f"the owner of the machine forbids tool {tool!r} of hand {hand!r}"
        return told, Reason.POLICY_FORBIDS
    names = sorted(each for each in known if is_offered(transcript.agent, each))
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    there_are = f"{', '.join(names[:_NAMES_MAX]) or 'none'}{more}"
    return f"there is no tool {name!r}; there are: {there_are}", Reason.TOOL_NOT_FOUND


def unknown_names(transcript: Transcript) -> list[str]:
    """Names in the agent's `permissions` and `offer` that no hand's tool has, if it is known.

    One that is misspelled protects nothing. Not patterns, and not what was told before.
    """
    if set(places(transcript)) - transcript.tools.keys():
        return []
    agent = transcript.agent
    said = [*((agent.get("permissions") or {}).get("tools") or ())]
    said += (agent.get("tools") or {}).get("offer") or ()
    known = _by_name(transcript).keys() | set(transcript.told_unknown)
    return [
        name
        for name in dict.fromkeys(said)
        if name not in known and not name.startswith(PREFIX) and not set("*?") & set(name)
    ]


def _told(transcript: Transcript, name: str, hand: str, tool: Json) -> Json:
    where = "" if hand == transcript.default_hand else f"On hand {hand!r}: "
    if is_server(transcript, hand):
        where = f"Of MCP server {hand!r}: "
    return {
        "name": name,
        "description": where + tool["description"],
        "input_schema": tool["input_schema"],
    }


def _allowed(transcript: Transcript) -> dict[str, tuple[str, Json]]:
    """Of those by name the ones that the agent has."""
    named = _by_name(transcript).items()
    return {name: told for name, told in named if is_offered(transcript.agent, name)}


def _by_name(transcript: Transcript) -> dict[str, tuple[str, Json]]:
    """Names as the model is told them → hand and tool. The brain's own names are no hand's."""
    offer = _offer(transcript)
    if offer.by_name is None:
        offer.by_name = _named(transcript)
    return offer.by_name


def _named(transcript: Transcript) -> dict[str, tuple[str, Json]]:
    default = transcript.default_hand
    # Names that are another hand's to give: a default hand that lists tools of its own could else
    # take the other's calls, and what its permissions allow.
    others = tuple(f"{hand}__" for hand in places(transcript) if hand != default)
    named: dict[str, tuple[str, Json]] = {}
    for hand in places(transcript):
        for tool in transcript.tools.get(hand, {}).get("tools", ()):
            name = tool_name(transcript, hand, tool["name"])
            if hand == default and name.startswith(others):
                continue
            if not (name.startswith(PREFIX) or toolsets.is_off(transcript, hand, tool["name"])):
                named.setdefault(name, (hand, tool))
    return named


def unlisted(transcript: Transcript, type_name: str, names: Iterable[str]) -> list[str]:
    """Those names of a type that lists tools for each hand, of which no hand has said any.

    A hand that is gone has said what the next one is taken to have, until that says otherwise.
    """
    known = transcript.tools
    return [
        name
        for name in names
        if not (name in known and "hand_id" in known[name] and known[name]["type"] == type_name)
    ]


def context_tools(hand: str, info: hand_pb2.HandTypeInfo) -> Json:
    """Data of the `context.tools` event for what a daemon says of a type.

    INVALID_FIELD when the type is no good.
    """
    told = {"hand": hand, "type": info.type, "tools": tools_of(info)}
    if browser_toolset.TOOLSET in info.capabilities:
        told["toolset"] = browser_toolset.TOOLSET
    forbidden = forbidden_of(info)
    return told | ({"forbidden": forbidden} if forbidden else {})
