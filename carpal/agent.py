"""What an agent says, and every mistake in it by its key. Pure.

The same wherever it stands: in a person's file, in a document of sessiond, and
in the first event of a session. The reference is docs/agents.md.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from carpal import mounts
from carpal.agent_context import Context, check_context, check_settings
from carpal.agent_mistakes import converted
from carpal.errors import CarpalError
from carpal.link_terms import ORPHAN_DEADLINE
from carpal.mistake import Mistake

Json = dict[str, Any]

DEFAULT_MODEL = "claude-sonnet-5-5"
DEFAULT_HARNESS = "tool_loop"
MAX_TOKENS = 8192
OWN_HAND = "brain"
"""Name of the hand whose tools are the brain's own: no agent may name one so."""
HANDS_MAX = 64
SERVERS_MAX, VAULTS_MAX = 20, 50
ORPHAN_DEADLINE_MAX = 30 * 24 * 3600

Text = Annotated[str, Meta(min_length=1, max_length=256)]
Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")]
Tool = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_*?-]{1,128}\Z")]
"""A tool as the model is told it, such as `bash` or `web__click`; `*` and `?` stand for others."""
Count = Annotated[int, Meta(ge=1, le=2**53)]
Kind = Annotated[str, Meta(pattern=r"^[a-z0-9._-]{1,64}\Z")]
"""Of what a hand says unasked."""
Url = Annotated[str, Meta(min_length=1, max_length=2048)]
Policy = Literal["always_allow", "always_ask"]


class Placement(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Where a hand may be; everything given must match."""

    pool: str = ""
    daemon: str = ""
    labels: dict[str, str] = {}


class HandLimits(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a hand may take; one that cannot be kept where it is placed refuses the hand."""

    memory_bytes: Annotated[int, Meta(gt=0)] | UnsetType = UNSET
    disk_bytes: Annotated[int, Meta(gt=0)] | UnsetType = UNSET
    processes: Annotated[int, Meta(gt=0)] | UnsetType = UNSET
    cpus: Annotated[float, Meta(gt=0, le=65536)] | UnsetType = UNSET


class HandPlan(Struct, forbid_unknown_fields=True):
    """One named hand, provisioned at its first use."""

    type: Name
    config: dict[str, Any] = {}
    resources: list[tuple[str, str]] | UnsetType = UNSET
    """Source and path of each mount."""
    limits: HandLimits | UnsetType = UNSET
    placement: Placement = msgspec.field(default_factory=Placement)
    orphan_deadline: float | UnsetType = UNSET
    """Seconds without a brain until it ends itself, 1 to `ORPHAN_DEADLINE_MAX`."""
    events: bool | Annotated[list[Kind], Meta(max_length=64)] | UnsetType = UNSET
    """Kinds of what it says unasked that wake the session, or true for all."""


class Thinking(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """As the Messages API has it."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: Annotated[int, Meta(ge=1024)] | UnsetType = UNSET
    display: Literal["summarized", "omitted"] | UnsetType = UNSET


class Tools(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which of its hands' tools the model is offered."""

    offer: Annotated[list[Tool], Meta(min_length=1, max_length=256)] | UnsetType = UNSET
    """Those that one of these fits; all when it is not said."""
    defer_above: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    """With more tools than this the model gets a search for them instead."""
    session_log: bool | UnsetType = UNSET
    """Whether it may search and read its session's log; when it is not said, where the context
    policy does not show it the whole of it."""


class Permissions(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which calls a person must allow."""

    default: Policy | UnsetType = UNSET
    """Of what `tools` does not name; not said: hands' tools need nobody, MCP servers' a person."""
    tools: dict[Tool, Policy] = {}
    """A name beats a pattern, and a pattern those after it."""


class McpServer(Struct, forbid_unknown_fields=True):
    """A remote MCP server, reached through the vault."""

    name: Name
    """Its tools are `NAME__TOOL` to the model."""
    url: Url
    credential: Literal["shared", "user"] | UnsetType = UNSET
    """Whose credential it is used with: one that sessions share, or the session's end user's."""


class Limits(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a session may spend on the model."""

    model_requests: Count | UnsetType = UNSET
    input_tokens: Count | UnsetType = UNSET
    """Cached ones too."""
    output_tokens: Count | UnsetType = UNSET


class Fallback(Struct, forbid_unknown_fields=True):
    """A fallback model at a provider of its own."""

    model: Text
    provider: Name | UnsetType = UNSET
    """The agent's own when absent."""


class Agent(Struct, forbid_unknown_fields=True):
    """An agent."""

    name: Text = "agent"
    version: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    """Of the document it is from; sessiond counts them, nobody writes them."""
    model: Text = DEFAULT_MODEL
    provider: Name | UnsetType = UNSET
    fallback_model: Text | Fallback | UnsetType = UNSET
    system: str = ""
    harness: Text = DEFAULT_HARNESS
    max_tokens: Count = MAX_TOKENS
    """Of one model request."""
    thinking: Thinking | UnsetType = UNSET
    tools: Tools | UnsetType = UNSET
    hands: dict[Name, HandPlan] = {}
    """The first one is the default one."""
    mcp_servers: Annotated[list[McpServer], Meta(max_length=SERVERS_MAX)] | UnsetType = UNSET
    vault_ids: Annotated[list[Name], Meta(max_length=VAULTS_MAX)] | UnsetType = UNSET
    """Vaults whose credentials its MCP servers are used with: the first that has one for a server
    gives it."""
    context: Context | UnsetType = UNSET
    permissions: Permissions | UnsetType = UNSET
    limits: Limits | UnsetType = UNSET


def read_agent(data: Json) -> Agent:
    """The agent that data says; Mistake names the key."""
    check_settings(data.get("context"))
    agent = converted(data, Agent, unsaid=("version",))
    check(agent)
    return agent


def logged_agent(agent: Json, hands: Iterable[str] = ()) -> Agent:
    """The agent that a session's log says, and the names of its hands; Mistake names the key.

    A key beside those of an agent is a newer operator's, and is passed over. One inside
    `permissions`, `limits` and their like is not: whoever wrote it counts on its being kept.
    """
    known = {key: value for key, value in agent.items() if key in Agent.__struct_fields__}
    if not isinstance(known.get("model"), str):
        raise Mistake("is missing, or no text: the model to ask", key="model")
    _check_names(hands)
    read = read_agent(known | {"hands": {}})
    _check_servers(read, hands)
    return read


def session_parts(agent: Agent) -> Json:
    """The agent as a session's first event has it: {agent, hands}."""
    body: Json = msgspec.to_builtins(agent)
    hands = body.pop("hands")
    return {"agent": body, "hands": hands}


def check(agent: Agent) -> None:
    """What no type says; Mistake names the key."""
    _check_thinking(agent)
    _check_hands(agent.hands)
    _check_servers(agent, agent.hands)
    if agent.context:
        check_context(agent.context)
    limits = agent.limits or Limits()
    if limits.output_tokens and limits.output_tokens < agent.max_tokens:
        raise Mistake(
            f"is less than max_tokens, {agent.max_tokens}: not one model request would fit",
            key="limits.output_tokens",
        )


def _check_thinking(agent: Agent) -> None:
    thinking = agent.thinking
    if not thinking:
        return
    if thinking.type != "enabled":
        if thinking.budget_tokens:
            problem = f"goes with type enabled, not {thinking.type}"
            raise Mistake(problem, key="thinking.budget_tokens")
    elif not thinking.budget_tokens:
        raise Mistake("is missing, and goes with type enabled", key="thinking.budget_tokens")
    elif thinking.budget_tokens >= agent.max_tokens:
        raise Mistake(
            f"must be less than max_tokens, {agent.max_tokens}", key="thinking.budget_tokens"
        )


def _check_hands(hands: dict[str, HandPlan]) -> None:
    if len(hands) > HANDS_MAX:
        raise Mistake(f"there are {len(hands)}; an agent has at most {HANDS_MAX}", key="hands")
    _check_names(hands)
    for name, plan in hands.items():
        deadline = plan.orphan_deadline
        if deadline is not UNSET and not 1 <= deadline <= ORPHAN_DEADLINE_MAX:
            raise Mistake(
                f"must be 1 to {ORPHAN_DEADLINE_MAX} seconds, and is {deadline:g}: a hand has to "
                f"live until a brain comes back; leave the key out for {ORPHAN_DEADLINE:g}",
                key=f"hands.{name}.orphan_deadline",
            )
        key = f"hands.{name}"
        parsed = []
        try:
            for index, (source, path) in enumerate(plan.resources or ()):
                key = f"hands.{name}.resources[{index}]"
                parsed.append(mounts.parse(source, path, "it"))
            key = f"hands.{name}.resources"
            mounts.refuse_twice(parsed, "they")
        except CarpalError as error:
            raise Mistake(_after_field(error.message), key=key) from None


def _check_names(hands: Iterable[str]) -> None:
    if OWN_HAND in hands:
        raise Mistake("is the brain's own name: choose another", key=f"hands.{OWN_HAND}")


def _check_servers(agent: Agent, hands: Iterable[str]) -> None:
    names = {OWN_HAND, *hands}
    for index, server in enumerate(agent.mcp_servers or ()):
        key = f"mcp_servers[{index}]"
        if server.name in names:
            raise Mistake(
                f"is {server.name!r}, which is a hand's name, or another server's: their tools "
                "would have one name",
                key=f"{key}.name",
            )
        names.add(server.name)
        if problem := _no_url(server.url):
            raise Mistake(problem, key=f"{key}.url")
        if server.credential == "user" and not agent.vault_ids:
            raise Mistake(
                "is user, and vault_ids names no vault in which a user's could be",
                key=f"{key}.credential",
            )
    vaults = agent.vault_ids or []
    if len(set(vaults)) < len(vaults):
        raise Mistake("names a vault twice", key="vault_ids")


def _no_url(url: str) -> str:
    """Why a server cannot be there; empty when it may be. The vault looks at it more closely."""
    if not url.startswith("https://"):
        return "must begin with https://: a credential is sent there"
    if not re.fullmatch(r"[\x21-\x7e]+", url):
        return "must be visible ASCII without spaces"
    host = re.split(r"[/?#]", url.removeprefix("https://"), maxsplit=1)[0]
    if not host or "@" in host:
        return "must name a host, and no user: credentials are the vault's"
    return ""


def _after_field(message: str) -> str:
    """What is wrong, without the field's name, which the key says."""
    field, colon, problem = message.partition(": ")
    return f"{field.partition('.')[2] or field}: {problem}" if colon else message
