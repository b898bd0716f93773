"""An agent is what its file and the flags say, and a mistake names its file, line and key."""

import json

import pytest

from carpal.agent import DEFAULT_MODEL, Agent
from carpal.errors import BadInput
from carpal.operator.agent import agent_of, session_data, with_flags, with_mounts

FIXER = """\
name: fixer
model: m
system: |
  You fix.
  Nothing else.
max_tokens: 100
hands:
  web:
    type: browser
    placement: {pool: gpu, labels: {os: linux}}
  shell:
    type: process
    config: {cwd: /srv}
    orphan_deadline: 60
    limits: {memory_bytes: 1073741824, cpus: 1.5}
"""


def test_without_a_file_the_agent_has_a_current_model_and_a_shell() -> None:
    body = json.loads(session_data(with_flags(Agent(), None, ())))
    assert body["agent"]["model"] == DEFAULT_MODEL
    assert body["hands"] == {"shell": {"type": "process", "config": {}, "placement": {}}}


def test_a_file_says_everything_and_its_hands_keep_their_order() -> None:
    body = json.loads(session_data(with_flags(agent_of(FIXER, "agent.yaml"), None, ())))
    assert body["agent"]["system"] == "You fix.\nNothing else.\n"
    assert body["agent"]["max_tokens"] == 100
    assert list(body["hands"]) == ["web", "shell"]
    assert body["hands"]["web"]["placement"] == {"pool": "gpu", "labels": {"os": "linux"}}
    assert body["hands"]["shell"]["config"] == {"cwd": "/srv"}
    assert body["hands"]["shell"]["orphan_deadline"] == 60
    assert body["hands"]["shell"]["limits"] == {"memory_bytes": 1073741824, "cpus": 1.5}
    assert "limits" not in body["hands"]["web"]


def test_flags_beat_the_file_and_add_hands_after_its_own() -> None:
    agent = agent_of("model: m\nhands: {shell: {type: process}}\n", "a")
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
        ("model: m\nmodle: m", "a.yaml: line 2: modle: is no key"),
        ("hands:\n  a:\n    type: p\n    size: 1", "a.yaml: line 4: hands.a.size: is no key"),
        ("name: no", "a.yaml: line 1: name: `no` is false to some"),
        ("name: [", "a.yaml: line 1: not YAML"),
        ("model: m\nmodel: n", "a.yaml: line 2: model: is given twice"),
        ("- name: x", "a.yaml: line 1: must be a mapping"),
        ("name = 'x'", "a.yaml: line 1: must be a mapping"),
        ("version: 3", "a.yaml: line 1: version: is no key: sessiond counts"),
        ("hands:\n  a:\n    limits: {}", "a.yaml: line 2: hands.a.type: is missing"),
    ],
)
def test_a_mistake_in_the_file_names_its_line_and_key(text: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        agent_of(text, "a.yaml")
    assert says in str(caught.value)
    assert caught.value.action == "correct the agent"


@pytest.mark.parametrize(
    "flag", ["shell", "shell=", "=process", "Sh ell=process", "shell=a b", "brain=process"]
)
def test_a_malformed_hand_is_refused(flag: str) -> None:
    with pytest.raises(BadInput):
        with_flags(Agent(), None, (flag,))


def test_a_mount_goes_to_the_hand_it_names_else_to_the_default_one() -> None:
    agent = with_flags(Agent(), None, ("a=process", "b=process"))
    mounted = with_mounts(agent, [("", "text:1", "x"), ("b", "text:2", "y"), ("", "text:3", "z")])
    assert mounted.hands["a"].resources == [("text:1", "x"), ("text:3", "z")]
    assert mounted.hands["b"].resources == [("text:2", "y")]
    with pytest.raises(BadInput, match=r"--mount: there is no hand 'c'; there is a, b"):
        with_mounts(agent, [("c", "text:1", "x")])
