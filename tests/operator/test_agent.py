"""An agent is what its file and the flags say, and a mistake names its key."""

import json

import pytest

from carpal.errors import BadInput
from carpal.operator.agent import (
    DEFAULT_MODEL,
    AgentFile,
    read_agent,
    session_data,
    with_flags,
    with_mounts,
)


def test_without_a_file_the_agent_has_a_current_model_and_a_shell() -> None:
    body = json.loads(session_data(with_flags(AgentFile(), None, ())))
    assert body == {
        "agent": {
            "name": "agent",
            "model": DEFAULT_MODEL,
            "system": "",
            "harness": "tool_loop",
            "max_tokens": 8192,
        },
        "hands": {"shell": {"type": "process", "config": {}, "placement": {}}},
    }


def test_a_file_says_everything_and_its_hands_keep_their_order() -> None:
    agent = read_agent(
        """
        name = "fixer"
        model = "m"
        system = "You fix."
        harness = "tool_loop"
        max_tokens = 100
        [hands.web]
        type = "browser"
        placement = { pool = "gpu", labels = { os = "linux" } }
        [hands.shell]
        type = "process"
        config = { cwd = "/srv" }
        orphan_deadline = 60
        limits = { memory_bytes = 1073741824, cpus = 1.5 }
        """,
        "agent.toml",
    )
    body = json.loads(session_data(with_flags(agent, None, ())))
    assert body["agent"]["max_tokens"] == 100
    assert list(body["hands"]) == ["web", "shell"]
    assert body["hands"]["web"]["placement"] == {"pool": "gpu", "labels": {"os": "linux"}}
    assert body["hands"]["shell"]["config"] == {"cwd": "/srv"}
    assert body["hands"]["shell"]["orphan_deadline"] == 60
    assert body["hands"]["shell"]["limits"] == {"memory_bytes": 1073741824, "cpus": 1.5}
    assert "limits" not in body["hands"]["web"]


def test_flags_beat_the_file_and_add_hands_after_its_own() -> None:
    agent = read_agent('model = "m"\n[hands.shell]\ntype = "process"\n', "a")
    changed = with_flags(agent, "other", ("web=browser", "shell=container"))
    assert changed.model == "other"
    assert {name: plan.type for name, plan in changed.hands.items()} == {
        "shell": "container",
        "web": "browser",
    }
    assert list(changed.hands) == ["shell", "web"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("modle = 'm'", "a.toml: unknown key 'modle'"),
        ("[hands.shell]\ntype = 'process'\nsize = 1", "unknown key 'size' in hands.shell"),
        (
            "[hands.a]\ntype = 'p'\n[hands.b]\ntype = 'p'\nlimits = {cpus = nan}",
            "hands.b.limits.cpus",
        ),
        ("[hands.b]\ntype = 'p'\nlimits = {memory_bytes = 1.5}", "hands.b.limits.memory_bytes"),
        ("[hands.b]\ntype = 'p'\nlimits = {memory = 1}", "unknown key 'memory' in hands.b.limits"),
        ("[hands.b]\ntype = 'p'\norphan_deadline = inf", "hands.b.orphan_deadline"),
        ("[hands.shell]\n", "'type' is missing"),
        ("max_tokens = 'many'", "max_tokens: expected `int`"),
        ("max_tokens = 0", "max_tokens: expected `int` >= 1"),
        ("name = ", "a.toml: not TOML"),
    ],
)
def test_a_mistake_in_the_file_names_its_key(text: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_agent(text, "a.toml")
    assert says in str(caught.value)
    assert caught.value.action == "correct the agent file"


@pytest.mark.parametrize("flag", ["shell", "shell=", "=process", "Sh ell=process", "shell=a b"])
def test_a_malformed_hand_is_refused(flag: str) -> None:
    with pytest.raises(BadInput):
        with_flags(AgentFile(), None, (flag,))


def test_a_mount_goes_to_the_hand_it_names_else_to_the_default_one() -> None:
    agent = with_flags(AgentFile(), None, ("a=process", "b=process"))
    mounted = with_mounts(agent, [("", "text:1", "x"), ("b", "text:2", "y"), ("", "text:3", "z")])
    assert mounted.hands["a"].resources == [("text:1", "x"), ("text:3", "z")]
    assert mounted.hands["b"].resources == [("text:2", "y")]
    with pytest.raises(BadInput, match=r"--mount: there is no hand 'c'; there is a, b"):
        with_mounts(agent, [("c", "text:1", "x")])


def test_a_mount_of_an_agent_file_is_checked_by_its_field() -> None:
    read = read_agent('[hands.a]\ntype = "process"\nresources = [["text:1", "../x"]]', "f")
    with pytest.raises(BadInput, match=r"\[hands.a\] resources\[0\].mount_path"):
        with_flags(read, None, ())
