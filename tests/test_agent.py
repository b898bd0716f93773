"""An agent is what its data says, and a mistake in it names its key and what may stand there."""

from typing import Any

import msgspec
import pytest

from carpal.agent import Agent, logged_agent, read_agent, session_parts
from carpal.mistake import Mistake
from carpal.yaml_in import read_mapping

SHELL = "hands: {shell: {type: process, "


def test_an_agent_that_says_nothing_is_a_whole_one() -> None:
    assert session_parts(read_agent({})) == {
        "agent": {
            "name": "agent",
            "model": "claude-sonnet-5-5",
            "system": "",
            "harness": "tool_loop",
            "max_tokens": 8192,
        },
        "hands": {},
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("modle: m", "modle: is no key; there is name, model"),
        ("max_tokens: many", "max_tokens: must be a whole number, and is 'many'"),
        ("max_tokens: 0", "max_tokens: must be a whole number >= 1, and is 0"),
        ("name: 5", "name: must be text, and is 5: put it in quotes"),
        ("system: true", "system: must be text, and is true: put it in quotes"),
        ("name:", "name: is empty: give it a value, or leave the key out"),
        ("model: ''", "model: must have >= 1 characters"),
        ("hands: [shell]", "hands: must be a mapping, and is a list"),
        ("hands: {shell: process}", "hands.shell: must be a mapping, and is 'process'"),
        ("hands: {shell: {}}", "hands.shell.type: is missing"),
        ("hands: {Big Box: {type: process}}", "hands.Big Box: is no name that may stand here"),
        ("hands: {brain: {type: process}}", "hands.brain: is the brain's own name"),
        (SHELL + "size: 1}}", "hands.shell.size: is no key; there is type, config"),
        (SHELL + "limits: {memory: 1}}}", "hands.shell.limits.memory: is no key; there is memory"),
        (SHELL + "limits: {memory_bytes: 1.5}}}", "hands.shell.limits.memory_bytes: must be a wh"),
        (SHELL + "limits: {cpus: 0}}}", "hands.shell.limits.cpus: must be a number > 0"),
        (
            SHELL + "orphan_deadline: 0}}",
            "hands.shell.orphan_deadline: must be 1 to 2592000 seconds",
        ),
        (SHELL + "orphan_deadline: 0}}", "leave the key out for 600"),
        (SHELL + "orphan_deadline: 2592001}}", "shell.orphan_deadline: must be 1 to 2592000 secon"),
        (SHELL + "orphan_deadline: 10m}}", "hands.shell.orphan_deadline: must be a number, and is"),
        (SHELL + "resources: [[text:1]]}}", "hands.shell.resources[0]: must have 2"),
        (SHELL + "resources: [[text:1, ../x]]}}", "hands.shell.resources[0]: mount_path"),
        (SHELL + "resources: [[text:1, x], [text:2, x]]}}", "hands.shell.resources"),
        (SHELL + "placement: {labels: {n: 1}}}}", "hands.shell.placement.labels.n: must be text"),
        ("permissions: {tools: {bash: ask}}", "tools.bash: must be always_allow or always_ask"),
        ("permissions: {tools: {'a b': always_ask}}", "permissions.tools.a b: is no name"),
        (
            "mcp_servers: [{name: a, url: 'http://a.com'}]",
            "mcp_servers[0].url: must begin with https://",
        ),
        (
            "mcp_servers: [{name: a, url: 'https://u@a.com'}]",
            "mcp_servers[0].url: must name a host",
        ),
        ("mcp_servers: [{name: a, url: 'https://a b'}]", "mcp_servers[0].url: must be visible"),
        ("mcp_servers: [{name: a}]", "mcp_servers[0].url: is missing"),
        ("mcp_servers: [{name: A, url: 'https://a'}]", "mcp_servers[0].name: 'A' is no name"),
        (
            "mcp_servers: [{name: brain, url: 'https://a'}]",
            "mcp_servers[0].name: is 'brain', which is a hand's name",
        ),
        (
            "{hands: {a: {type: process}}, mcp_servers: [{name: a, url: 'https://a'}]}",
            "mcp_servers[0].name: is 'a', which is a hand's name",
        ),
        ("mcp_servers: [{name: a, url: 'https://a', token: t}]", "mcp_servers[0].token: is no key"),
        ("vault_ids: default", "vault_ids: must be a list"),
        ("vault_ids: [v, v]", "vault_ids: names a vault twice"),
        ("context: {policy: trim, summary_tokens: 3}", "context.summary_tokens: is no setting of"),
        ("permissions: {default: deny}", "permissions.default: must be always_allow or always_ask"),
        ("permissions: {all: always_ask}", "permissions.all: is no key; there is default, tools"),
        ("thinking: {type: always}", "thinking.type: must be adaptive or disabled or enabled"),
        ("thinking: {type: enabled}", "thinking.budget_tokens: is missing"),
        ("thinking: {type: enabled, budget_tokens: 8192}", "must be less than max_tokens, 8192"),
        ("thinking: {type: adaptive, budget_tokens: 2000}", "goes with type enabled, not adaptive"),
        ("limits: {dollars: 5}", "limits.dollars: is no key; there is model_requests"),
        ("limits: {output_tokens: 100}", "limits.output_tokens: is less than max_tokens, 8192"),
        ("context: {}", "context.policy: is missing"),
        ("context: {policy: all}", "context.policy: must be compact or reset or retrieve or trim"),
        ("context: {policy: trim, keep: 3}", "context.keep: is no key; there is policy, window_"),
        (
            "context: {policy: trim, summary_tokens: 900}",
            "context.summary_tokens: is no setting of the policy trim, which has window_tokens",
        ),
        ("context: {policy: whole, at_tokens: 900}", "policy whole, which has no settings"),
        (
            "context: {policy: compact, at_tokens: 900, keep_tokens: 900}",
            "context.keep_tokens: must be less than at_tokens, 900",
        ),
        ("tools: {offer: bash}", "tools.offer: must be a list, and is 'bash'"),
        ("tools: {offer: []}", "tools.offer: must have >= 1 entries"),
        ("tools: {offer: [bash, 7]}", "tools.offer[1]: must be text, and is 7: put it in quotes"),
    ],
)
def test_a_mistake_names_its_key_and_what_may_stand_there(text: str, says: str) -> None:
    with pytest.raises(Mistake) as caught:
        read_agent(read_mapping(text).data)
    assert says in str(caught.value)


def test_of_many_hands_the_one_with_the_mistake_is_named() -> None:
    hands: dict[str, Any] = {f"h{n}": {"type": "process"} for n in range(9)}
    hands["h7"]["limits"] = {"cpus": -1}
    with pytest.raises(Mistake) as caught:
        read_agent({"hands": hands})
    assert caught.value.key == "hands.h7.limits.cpus"


def test_a_logged_agent_may_have_keys_of_a_newer_operator_but_not_inside_a_promise() -> None:
    assert logged_agent({"model": "m", "colour": "red", "version": 3}).version == 3
    with pytest.raises(Mistake, match=r"limits\.dollars: is no key"):
        logged_agent({"model": "m", "limits": {"dollars": 5}})


@pytest.mark.parametrize("agent", [{}, {"model": 7}, {"model": ""}, {"model": None}])
def test_a_logged_agent_names_a_model(agent: dict[str, Any]) -> None:
    with pytest.raises(Mistake, match="model"):
        logged_agent(agent)


def test_what_a_session_is_given_is_read_back_as_the_agent_it_was() -> None:
    agent = read_agent(
        read_mapping(
            "name: fixer\nprovider: bedrock\nfallback_model: small\n"
            "thinking: {type: enabled, budget_tokens: 2048}\ntools: {offer: [bash]}\n"
            "context: {policy: trim, keep_tokens: 3000}\npermissions: {default: always_ask}\n"
            "limits: {model_requests: 3}\n"
        ).data
    )
    parts = session_parts(agent)
    assert logged_agent(parts["agent"]) == agent
    assert msgspec.structs.replace(agent) == agent
    assert isinstance(agent, Agent)
