"""The providers of brain.toml: each mistake names its table and key, and what to do."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from brain.app import BrainConfig, run
from brain.models.settings import KINDS, read_providers
from carpal.config import load
from carpal.errors import CarpalError
from carpal.status import Reason


def test_the_four_kinds_are_there_without_a_word() -> None:
    assert {name: provider.kind for name, provider in read_providers({}).items()} == {
        kind: kind for kind in KINDS
    }


def test_a_table_adds_a_provider_or_says_more_about_one() -> None:
    providers = read_providers(
        {
            "gateway": {"kind": "anthropic", "base_url": "https://gateway.example/claude"},
            "bedrock": {"region": "eu-west-1"},
        }
    )
    assert providers["gateway"].base_url == "https://gateway.example/claude"
    assert (providers["bedrock"].kind, providers["bedrock"].region) == ("bedrock", "eu-west-1")


@pytest.mark.parametrize(
    ("table", "part"),
    [
        ("text", "is not a table"),
        ({}, "kind is not set: set it to one of: anthropic, bedrock"),
        ({"kind": "openai"}, "kind: invalid enum value 'openai': use one of: anthropic, bedrock"),
        ({"kind": "anthropic", "base-url": "x"}, "unknown key 'base-url': use one of: kind"),
        ({"kind": "anthropic", "base_url": "gateway"}, "base_url: 'gateway' is no address"),
        ({"kind": "anthropic", "base_url": "https://u:p@host"}, "base_url: it holds a password"),
        ({"kind": "anthropic", "region": "x"}, "region: anthropic has none"),
        ({"kind": "vertex", "resource": "x"}, "resource: vertex has none"),
        (
            {"kind": "foundry", "resource": "x", "base_url": "https://x"},
            "resource: base_url is given too",
        ),
        ({"kind": "anthropic", "client_key": "k"}, "client_key: there is no client_certificate"),
        ({"kind": "anthropic", "headers": {"a b": "c"}}, "headers: 'a b' is no name of a header"),
        ({"kind": "anthropic", "headers": {"a": "b\nc"}}, "headers: the value of 'a' is not one"),
        (
            {"kind": "anthropic", "headers": {"Authorization": "x"}, "token_command": ["t"]},
            "headers: 'Authorization' is what token_command makes",
        ),
        ({"kind": "anthropic", "token_command": ["t", ""]}, "token_command: an argument is empty"),
        ({"kind": "anthropic", "token_command": "t"}, "token_command: expected `array`"),
        ({"kind": "bedrock", "vault": "a"}, "vault: it goes with kind anthropic alone"),
        ({"kind": "anthropic", "vault": "A/b"}, "vault: 'A/b' is no alias"),
        (
            {"kind": "anthropic", "vault": "a", "base_url": "https://x"},
            "base_url: vault is given too",
        ),
        (
            {"kind": "anthropic", "vault": "a", "headers": {"X-Api-Key": "x"}},
            "headers: 'x-api-key' is what the vault shows",
        ),
        ({"kind": "anthropic", "server_name": "x"}, "unknown key 'server_name'"),
        ({"kind": "anthropic", "idle_timeout": 0}, "idle_timeout: expected `float` > 0"),
    ],
)
def test_a_mistake_names_the_table_and_the_key(table: Any, part: str) -> None:
    with pytest.raises(CarpalError) as caught:
        read_providers({"mine": table})
    assert caught.value.reason is Reason.CONFIG_INVALID
    assert str(caught.value).startswith("providers.mine: ")
    assert part in str(caught.value)


def test_the_tables_are_read_from_the_brains_file(tmp_path: Path) -> None:
    file = tmp_path / "brain.toml"
    file.write_text(
        'provider = "gateway"\n'
        "[providers.gateway]\n"
        'kind = "anthropic"\n'
        'base_url = "https://models.example"\n'
        'token_command = ["token", "--for", "claude"]\n'
        "[providers.gateway.headers]\n"
        'x-team = "blue"\n'
    )
    config = load(BrainConfig, "brain", {}, file, {})
    gateway = read_providers(config.providers)[config.provider]
    assert gateway.headers == {"x-team": "blue"}
    assert gateway.token_command == ["token", "--for", "claude"]


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"providers": {"x": {"kind": "anthropic", "url": "y"}}}, "providers.x: unknown key 'url'"),
        ({"provider": "x"}, "provider: there is no 'x': use one of: anthropic, bedrock"),
    ],
)
async def test_a_brain_with_a_mistake_in_its_providers_does_not_start(
    tmp_path: Path, settings: dict[str, Any], part: str
) -> None:
    with pytest.raises(CarpalError) as caught:
        await run(BrainConfig(**settings), tmp_path, asyncio.Event(), None)
    assert caught.value.reason is Reason.CONFIG_INVALID
    assert part in str(caught.value)
