"""The agent a session is created with: what its file or document says, then flags. Pure."""

import json
from collections.abc import Callable, Sequence

import msgspec

from carpal import mounts
from carpal.agent import Agent, HandPlan, Json, check, read_agent, session_parts
from carpal.cli import extra
from carpal.errors import CarpalError, invalid, refuse
from carpal.ids import check_name
from carpal.mistake import Mistake
from carpal.status import Reason

DEFAULT_HANDS = ("shell=process",)


def agent_of(text: str, source: str) -> Agent:
    """The agent of a person's YAML; CONFIG_INVALID names `source`, the line and the key."""
    return checked_agent(text, source)[0]


def checked_agent(
    text: str, source: str, check_said: Callable[[Json], None] = lambda _: None
) -> tuple[Agent, Json]:
    """The agent of a person's YAML, and what that says; CONFIG_INVALID as of `agent_of`.

    `check_said` raises a Mistake for what is wrong with what it says besides.
    """
    with extra("brain"):  # the base install is what a daemon needs, and no daemon reads YAML
        from carpal.yaml_in import read_mapping
    try:
        read = read_mapping(text)
    except Mistake as mistake:
        raise bad(source, mistake) from None
    try:
        if "version" in read.data:
            raise Mistake("is no key: sessiond counts an agent's versions", key="version")
        agent = read_agent(read.data)
        check_said(read.data)
        return agent, read.data
    except Mistake as mistake:
        mistake.line = read.line_of(mistake.key) or 1
        raise bad(source, mistake) from None


def bad(source: str, mistake: Mistake) -> CarpalError:
    """The refusal of an agent, naming where it was found."""
    return refuse(Reason.CONFIG_INVALID, f"{source}: {mistake}", action="correct the agent")


def with_flags(agent: Agent, model: str | None, hands: tuple[str, ...]) -> Agent:
    """The agent after `--model` and each `--hand NAME=TYPE`, which replaces one of that name."""
    plans = dict(agent.hands)
    for flag in hands or (() if plans else DEFAULT_HANDS):
        name, equals, kind = flag.partition("=")
        if not equals or not kind:
            raise invalid("--hand", f"{flag!r} is not NAME=TYPE, such as shell=process")
        check_name(name, "--hand")
        check_name(kind, "--hand")
        plans[name] = HandPlan(type=kind)
    changed = msgspec.structs.replace(agent, model=model or agent.model, hands=plans)
    try:
        check(changed)
    except Mistake as mistake:
        raise invalid("--hand", str(mistake)) from None
    return changed


def with_mounts(agent: Agent, mounted: Sequence[tuple[str, str, str]]) -> Agent:
    """The agent after each `--mount`: the name of a hand, empty for the default one, source, path.

    INVALID_FIELD for a hand that there is not.
    """
    plans = dict(agent.hands)
    for name, source, path in mounted:
        hand = name or next(iter(plans))
        if hand not in plans:
            there = ", ".join(plans)
            raise invalid("--mount", f"there is no hand {hand!r}; there is {there}")
        mounts.parse(source, path, "--mount")
        resources = [*(plans[hand].resources or ()), (source, path)]
        plans[hand] = msgspec.structs.replace(plans[hand], resources=resources)
    return msgspec.structs.replace(agent, hands=plans)


def session_data(agent: Agent, user: str = "") -> bytes:
    """Data of the session's first event, `session.updated`: {agent, hands}, and whom it is for."""
    said = session_parts(agent) | ({"user": user} if user else {})
    return json.dumps(said, ensure_ascii=False).encode()


def message_data(text: str) -> bytes:
    """Data of a `user.message` that is one text."""
    content = [{"type": "text", "text": text}]
    return json.dumps({"content": content}, ensure_ascii=False).encode()
