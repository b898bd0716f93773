"""Each provider is asked by the package's own client, with the identity its cloud has ambient."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from brain.models.settings import Provider
from brain.session import model_kinds as kinds
from carpal import extras
from tests.brain.models.asking import ASK, failure, reply
from tests.model_endpoint import (
    Answer,
    Asked,
    Endpoint,
    Wire,
    aws,
    aws_exception,
    endpoint,
    events,
)

AMBIENT = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_FOUNDRY_API_KEY",
    "ANTHROPIC_FOUNDRY_RESOURCE",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_PROFILE",
    "CLOUD_ML_REGION",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "ANTHROPIC_VERTEX_PROJECT_ID",
)


@pytest.fixture(autouse=True)
def nothing_ambient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key of this machine is used, and no metadata service is looked for."""
    for name in AMBIENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


@pytest.fixture
async def service() -> AsyncIterator[Endpoint]:
    async with endpoint() as served:
        yield served


def bedrock_says(*texts: str) -> Answer:
    """A reply as Bedrock streams it."""
    frames = b"".join(map(aws, events([{"type": "text", "text": text} for text in texts])))
    return bedrock_gives(frames)


def bedrock_gives(frames: bytes) -> Answer:
    async def answer(wire: Wire, _: Asked) -> None:
        await wire.head(content_type="application/vnd.amazon.eventstream")
        await wire.send(frames)

    return answer


async def test_anthropic_is_found_by_the_packages_own_variables(
    service: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", service.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-1")
    assert (await reply(Provider(kind="anthropic"))).blocks == [{"type": "text", "text": "hello"}]
    (asked,) = service.asked
    assert asked.path == "/v1/messages"
    assert asked.body == {**ASK, "stream": True}
    assert "key-1" in (asked.headers.get("authorization", "") + asked.headers.get("x-api-key", ""))


async def test_without_a_key_the_failure_says_so_and_nothing_is_sent(service: Endpoint) -> None:
    failed = await failure(Provider(kind="anthropic", base_url=service.url))
    assert (failed.kind, failed.retryable) == (kinds.AUTHENTICATION, False)
    assert "ANTHROPIC_API_KEY" in failed.message
    assert service.asked == []


async def test_bedrock_is_asked_with_a_signature_of_the_ambient_identity(
    service: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    service.answers = [bedrock_says("from", "bedrock")]
    provider = Provider(kind="bedrock", base_url=service.url, region="eu-west-1")
    request = {**ASK, "model": "anthropic.claude-x-v1:0"}
    answer = await reply(provider, request)
    assert [block["text"] for block in answer.blocks] == ["from", "bedrock"]
    (asked,) = service.asked
    assert "/model/anthropic.claude-x-v1" in asked.path
    assert asked.path.endswith("/invoke-with-response-stream")
    assert "Credential=AKIDTEST/" in asked.headers["authorization"]
    assert "/eu-west-1/bedrock/aws4_request" in asked.headers["authorization"]
    assert asked.body["messages"] == ASK["messages"]


async def test_bedrocks_exceptions_inside_a_stream_have_their_kinds(
    service: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bearer")
    provider = Provider(kind="bedrock", base_url=service.url, region="eu-west-1")
    for name, kind, retryable in (
        ("throttlingException", kinds.RATE_LIMITED, True),
        ("modelStreamErrorException", kinds.FAILED, True),
        ("validationException", kinds.FAILED, False),
    ):
        begun = b"".join(map(aws, events([{"type": "text", "text": "half"}])[:3]))
        service.answers = [bedrock_gives(begun + aws_exception(name, "in the middle"))]
        failed = await failure(provider)
        assert (failed.kind, failed.retryable) == (kind, retryable)
        assert "in the middle" in failed.message


async def test_an_event_stream_of_bedrock_that_is_damaged_is_a_failure_to_try_again(
    service: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bearer")
    provider = Provider(kind="bedrock", base_url=service.url, region="eu-west-1")
    frame = bytearray(aws(events([])[0]))
    frame[-1] ^= 1
    for damaged in (bytes(frame), bytes(frame[:20]), b"no event stream at all, but long enough"):
        service.answers = [bedrock_gives(damaged)]
        failed = await failure(provider)
        assert (failed.kind, failed.retryable) == (kinds.CUT, True)


async def test_bedrock_without_an_identity_or_a_region_says_so(
    service: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The package keeps a session a region; this one has had no identity yet.
    failed = await failure(Provider(kind="bedrock", base_url=service.url, region="eu-north-1"))
    assert not failed.retryable
    assert "credentials" in failed.message.lower()
    assert service.asked == []


async def test_vertex_is_asked_with_a_token_of_the_ambient_service_account(
    service: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with endpoint() as tokens:
        token = {"access_token": "ya29.token", "expires_in": 3600, "token_type": "Bearer"}
        tokens.answers = [tokens.gives(json.dumps(token).encode(), content_type="application/json")]
        account = service_account(tmp_path, f"{tokens.url}/token")
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account))
        provider = Provider(kind="vertex", base_url=f"{service.url}/v1", region="europe-west1")
        await reply(provider, {**ASK, "model": "claude-x"}, times=2)
        assert len(tokens.asked) == 1, "the token is kept until it expires"
    asked = service.asked[0]
    assert asked.path == (
        "/v1/projects/proj-1/locations/europe-west1/publishers/anthropic/models/"
        "claude-x:streamRawPredict"
    )
    assert asked.headers["authorization"] == "Bearer ya29.token"
    assert "model" not in asked.body


async def test_vertex_without_an_identity_or_a_region_says_so(service: Endpoint) -> None:
    provider = Provider(kind="vertex", base_url=service.url, region="europe-west1", project="p")
    failed = await failure(provider)
    assert (failed.kind, failed.retryable) == (kinds.AUTHENTICATION, False)
    failed = await failure(Provider(kind="vertex", base_url=service.url, project="p"))
    assert failed.kind == kinds.PROVIDER
    assert "region" in failed.message
    assert service.asked == []


async def test_foundry_is_asked_with_its_key(
    service: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-for-foundry")
    monkeypatch.setenv("ANTHROPIC_FOUNDRY_API_KEY", "azure-key")
    await reply(Provider(kind="foundry", base_url=f"{service.url}/anthropic/"))
    (asked,) = service.asked
    assert asked.path == "/anthropic/v1/messages"
    assert asked.headers["x-api-key"] == "azure-key"
    assert "not-for-foundry" not in json.dumps(asked.headers)


async def test_foundry_without_a_key_says_so(service: Endpoint) -> None:
    failed = await failure(Provider(kind="foundry", base_url=service.url))
    assert (failed.kind, failed.retryable) == (kinds.PROVIDER, False)
    assert "ANTHROPIC_FOUNDRY_API_KEY" in failed.message


@pytest.mark.parametrize(("kind", "package"), [("bedrock", "boto3"), ("vertex", "google.auth")])
async def test_a_missing_package_says_which_extra_brings_it(
    monkeypatch: pytest.MonkeyPatch, kind: Any, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    failed = await failure(Provider(kind=kind, region="x"))
    assert failed.kind == kinds.PROVIDER
    assert extras.how(kind) in failed.message


def service_account(folder: Path, token_uri: str) -> Path:
    """A file such as Google gives; its tokens come from where a test wants."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = folder / "account.json"
    path.write_text(
        json.dumps(
            {
                "type": "service_account",
                "project_id": "proj-1",
                "private_key_id": "1",
                "private_key": pem.decode(),
                "client_email": "a@proj-1.iam.gserviceaccount.com",
                "token_uri": token_uri,
            }
        )
    )
    return path
