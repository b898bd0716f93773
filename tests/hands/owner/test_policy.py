"""What a policy file may say, what is refused by it, and how each mistake in one is named."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.mounts import Mount
from carpal.status import Reason
from hands.builtin.browser import BrowserType
from hands.forwarder.rules import parse
from hands.owner import policy_file
from hands.owner.policy import NOTHING_SAID, Policy, covers
from hands.owner.policy_file import PolicyFile, load
from hands.owner.policy_text import read

FILE = "/etc/carpal/policy.toml"
FULL = """
workspaces = ["default"]
types = ["process", "container"]
tools = ["container/*", "bash", "process/read"]
images = ["registry.example.com/*", "python:3.11"]
folders = ["/srv/agents"]
mounts = ["text", "git"]
hosts = ["pypi.org", "*.example.com", "192.0.2.1:8080"]
open_network = ["process"]
namespaces = ["mcp"]
people = ["shell"]
redact = ['AKIA[A-Z0-9]{16}', "hunter2!"]
syslog = true

[limits]
hands_max = 2
memory_bytes = 1073741824
cpus = 1.5
call_seconds = 60
orphan_seconds = 300
"""


def policy(text: str = FULL) -> Policy:
    return read(text, FILE)


def refusal(ask: Callable[[], object]) -> CarpalError:
    with pytest.raises(CarpalError) as caught:
        ask()
    assert caught.value.reason is Reason.POLICY_FORBIDS
    return caught.value


def config(given: dict[str, object], *, isolated: bool = True) -> Callable[[], None]:
    real = str(given.get("workspace", ""))
    return lambda: policy().check_config("container", given, real, isolated=isolated)


@pytest.mark.parametrize(
    ("rule", "ask"),
    [
        ("workspaces", lambda: policy().check_workspace("other")),
        ("types", lambda: policy().check_type("browser")),
        ("tools", lambda: policy().check_tool("process", "write")),
        ("images", config({"image": "evil/registry.example.com/x"})),
        ("folders", config({"image": "python:3.11", "workspace": "/srv/agents2"})),
        ("folders", config({"image": "python:3.11", "workspace": "/srv/agents/../../etc"})),
        ("hosts", config({"image": "python:3.11", "egress": [{"host": "evil.org"}]})),
        ("hosts", config({"image": "python:3.11"}, isolated=False)),
        ("namespaces", config({"image": "python:3.11", "namespaces": True})),
        ("mounts", lambda: policy().check_mounts([Mount("tar", "0" * 64, ".")])),
        ("hosts", lambda: policy().check_mounts([Mount("git", "https://evil.org/r.git", "r")])),
        ("limits.memory_bytes", lambda: policy().within({"memory_bytes": 2**31})),
        ("limits.call_seconds", lambda: policy().call_seconds(61)),
        ("limits.call_seconds", lambda: policy().check_time_of({"timeout_ms": 60_001})),
        ("limits.call_seconds", lambda: policy().check_time_of({"timeout_ms": 10**400})),
        ("limits.orphan_seconds", lambda: policy().orphan_seconds(301, given=True)),
        ("people", lambda: policy().check_entry("forward")),
    ],
)
def test_what_the_policy_does_not_allow_is_refused_and_the_refusal_names_the_rule_and_the_file(
    rule: str, ask: Callable[[], object]
) -> None:
    error = refusal(ask)
    assert error.fields["rule"] == rule
    assert error.fields["file"] == FILE
    assert rule in error.message
    assert FILE in error.message


def test_what_the_policy_allows_passes() -> None:
    own = policy()
    own.check_workspace("default")
    own.check_type("process")
    for kind, tool in (("process", "bash"), ("process", "read"), ("container", "write")):
        own.check_tool(kind, tool)
    config({"image": "registry.example.com/a/b:1", "workspace": "/srv/agents/x"})()
    config({"image": "python:3.11", "egress": [{"host": "pypi.org", "methods": ["GET"]}]})()
    own.check_config("process", {}, "", isolated=False)
    own.check_mounts([Mount("text", "t", "f"), Mount("git", "https://a.example.com/r", "r")])
    assert own.within({"memory_bytes": 2**20, "processes": 5}) == {
        "memory_bytes": 2**20, "processes": 5, "cpus": 1.5,
    }  # fmt: skip
    own.check_entry("shell")


def test_an_image_makes_a_container_which_the_types_must_allow_of_any_hand() -> None:
    own = policy('types = ["process", "mcp"]')
    own.check_config("mcp", {}, "", isolated=True)
    error = refusal(lambda: own.check_config("mcp", {"image": "x"}, "", isolated=True))
    assert error.fields["rule"] == "types"
    assert "'container'" in error.message
    both = policy('types = ["mcp", "container"]')
    both.check_config("mcp", {"image": "x"}, "", isolated=True)


def test_a_limit_asked_beyond_is_a_refusal_and_one_not_asked_for_is_the_owners() -> None:
    assert policy().within({}) == {"memory_bytes": 2**30, "cpus": 1.5}
    assert (policy().call_seconds(0), policy().call_seconds(60)) == (60, 60)
    assert policy().orphan_seconds(600, given=False) == 300
    assert (policy().hands_max(64), policy().hands_max(1)) == (2, 1)


def test_without_a_file_all_is_allowed_but_nobody_enters() -> None:
    free = NOTHING_SAID
    free.check_workspace("any")
    free.check_type("any")
    free.check_tool("any", "any")
    free.check_config("any", {"image": "x", "workspace": "/", "egress": []}, "/", isolated=False)
    free.check_mounts([Mount("tar", "0" * 64, ".")])
    assert free.within({"memory_bytes": 2**60}) == {"memory_bytes": 2**60}
    assert free.call_seconds(0) == 0
    assert "no policy" in refusal(lambda: free.check_entry("shell")).message


@pytest.mark.parametrize(
    "key", ["types", "tools", "images", "folders", "mounts", "workspaces", "namespaces"]
)
def test_an_empty_list_allows_nothing(key: str) -> None:
    own = policy(f"{key} = []")
    asks: dict[str, Callable[[], None]] = {
        "types": lambda: own.check_type("process"),
        "tools": lambda: own.check_tool("process", "bash"),
        "images": lambda: own.check_config("c", {"image": "x"}, "", isolated=True),
        "folders": lambda: own.check_config("c", {"workspace": "/x"}, "/x", isolated=True),
        "mounts": lambda: own.check_mounts([Mount("text", "t", "f")]),
        "namespaces": lambda: own.check_config("c", {"namespaces": True}, "", isolated=True),
        "workspaces": lambda: own.check_workspace("default"),
    }
    refused = refusal(asks[key])
    assert refused.message.endswith("the policy of this machine's owner; it allows none")
    assert refused.action == "ask the machine's owner"


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("", False),
        ('types = ["browser"]', False),
        ("namespaces = []", True),
        ('namespaces = ["mcp"]', True),
        ('namespaces = ["browser"]', False),
    ],
)
def test_a_browser_hand_which_makes_sandboxes_of_its_own_is_allowed_where_namespaces_names_it(
    said: str, *, refused: bool
) -> None:
    own = policy(said)
    ask = partial(own.check_config, "browser", {}, "", isolated=True, namespaces=True)
    if not refused:
        ask()
        return
    error = refusal(ask)
    assert error.fields["rule"] == "namespaces"
    assert "a browser hand, in which sandboxes of its own are made, is not allowed" in error.message


def test_the_browser_type_says_that_it_makes_sandboxes_of_its_own() -> None:
    assert "namespaces" in BrowserType().describe().capabilities


@pytest.mark.parametrize(
    ("allowed", "asked", "whole"),
    [
        ("pypi.org", "pypi.org", True),
        ("pypi.org", "pypi.org:443", True),
        ("pypi.org", "pypi.org:8443", False),
        ("pypi.org:443", "pypi.org", False),
        ("*.a.org", "b.a.org", True),
        ("*.a.org", "*.b.a.org", True),
        ("*.a.org", "*.a.org", True),
        ("*.a.org", "a.org", False),
        ("b.a.org", "*.a.org", False),
        ("*.b.a.org", "*.a.org", False),
        ("*.a.org", "xa.org", False),
    ],
)
def test_a_hands_rule_is_within_the_owners_hosts_as_a_whole_or_refused(
    allowed: str, asked: str, *, whole: bool
) -> None:
    (own,), (rule,) = parse([{"host": allowed}]), parse([{"host": asked}])
    assert covers(own, rule) is whole


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ('\ntpyes = ["a"]', 2, "tpyes"),
        ('types = "process"', 1, "types"),
        ('types = [\n"a",\n"b c"]', 1, "types[1]"),
        ('tools = ["a/b/c/ "]', 1, "tools[0]"),
        ('images = [""]', 1, "images[0]"),
        ('folders = ["srv"]', 1, "folders[0]"),
        ('folders = ["/srv/../etc"]', 1, "folders[0]"),
        ('mounts = ["tape"]', 1, "mounts[0]"),
        ('# hosts = 1\nhosts = ["http://x"]', 2, "hosts[0]"),
        ('people = ["all"]', 1, "people[0]"),
        ("people = false", 1, "people"),
        ('redact = ["a.*b"]', 1, "redact[0]"),
        ("syslog = 3", 1, "syslog"),
        ("[limits]\n\ncpu = 1", 3, "limits.cpu"),
        ('[limits]\nmemory_bytes = "1G"', 2, "limits.memory_bytes"),
        ("[limits]\nprocesses = 1.5", 2, "limits.processes"),
        ("[limits]\ncpus = true", 2, "limits.cpus"),
        ("[limits]\ncpus = 0", 2, "limits.cpus"),
        ("[limits]\nhands_max = -1", 2, "limits.hands_max"),
        ("[limits]\ncpus = nan", 2, "limits.cpus"),
        ("limits = 3", 1, "limits"),
        ("[limit]\ncpus = 1", 1, "limit"),
    ],
)
def test_unknown_keys_and_wrong_values_are_errors_that_name_the_key_and_the_line(
    text: str, line: int, key: str
) -> None:
    with pytest.raises(CarpalError) as caught:
        read(text, FILE)
    assert caught.value.reason is Reason.CONFIG_INVALID
    assert caught.value.exit_code == 2
    assert caught.value.message.startswith(f"{FILE}, line {line}: {key}: ")


def test_a_file_that_is_no_toml_says_where() -> None:
    with pytest.raises(CarpalError, match=r"policy.toml: not TOML: .*line 2"):
        read("types = []\ntypes\n", FILE)


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o602])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("types = []")
    file.chmod(mode)
    with pytest.raises(CarpalError, match="others than its owner may write it"):
        load(file)


def test_a_file_that_is_named_and_missing_is_refused_and_the_systems_need_not_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CarpalError, match="no such file"):
        load(tmp_path / "none.toml")
    monkeypatch.setattr(policy_file, "SYSTEM_FILE", tmp_path / "none.toml")
    assert load(None) == NOTHING_SAID
    with pytest.raises(CarpalError, match="is no file"):
        load(Path("/dev/null"))


def test_on_a_reload_a_wrong_or_missing_file_leaves_the_old_policy_in_force_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "policy.toml"
    monkeypatch.setattr(policy_file, "SYSTEM_FILE", file)
    file.write_text('types = ["process"]')
    held = PolicyFile()
    before = held.policy
    file.write_text("types = 3")
    error = held.reload()
    assert error is not None
    assert "line 1: types" in error.message
    assert held.policy is before
    file.unlink()
    assert "is gone" in str(held.reload())
    assert held.policy is before
    file.write_text("types = []")
    assert held.reload() is None
    assert not held.policy.offers("process")
