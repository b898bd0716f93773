"""A brain's calls of a model through the vault: real TLS both ways, and a service byte for byte."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from brain.effects import Failed
from brain.models.model import Model, Reply
from brain.models.settings import by_vault, read_providers
from carpal.identity import Role, server_name
from carpal.tls import IdentityFiles
from tests.tls_ca import Authority
from tests.trust import Trust, trust
from tests.vault.audit.desk import lines
from tests.vault.guard.upstream import (
    HOST,
    Answer,
    Asked,
    Names,
    Upstream,
    Widened,
    reply,
    says,
    upstream,
)
from tests.vault.test_cli import carpal_vault
from vault import setup
from vault.authority.ca import Claims
from vault.guard.transport import Guard
from vault.mcp_listener import serve_mcp

KEY = "sk-ant-CANARY-0f1e2d3c4b5a"
LIMIT = 20.0
STREAM = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
REQUEST = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}


def event(kind: str, **more: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


BEGUN = event("message_start", message={"content": [], "usage": {"input_tokens": 1}})
BEGUN += event("content_block_start", index=0, content_block={"type": "text", "text": ""})
SAID = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "good day"})
ENDED = event("content_block_stop", index=0)
ENDED += event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2})
ENDED += event("message_stop")


@dataclass
class There:
    """A vault with an alias, a brain, and a service."""

    domain: Trust
    address: str
    service: Upstream
    files: IdentityFiles
    stack: AsyncExitStack

    async def http(self, files: IdentityFiles | None = None) -> httpx2.AsyncClient:
        who = files or self.files
        context = ssl.create_default_context(cadata=who.ca.read_text())
        context.load_cert_chain(who.certificate, who.key)
        context.check_hostname = False  # it dials an address; the CA is this test's alone
        client = httpx2.AsyncClient(
            verify=context, timeout=LIMIT, trust_env=False, base_url=f"https://{self.address}"
        )
        return await self.stack.enter_async_context(client)

    async def model(self, alias: str = "claude") -> Model:
        providers = read_providers({"claude": {"kind": "anthropic", "vault": alias}})
        own = {
            "ca_bundle": str(self.files.ca),
            "client_certificate": str(self.files.certificate),
            "client_key": str(self.files.key),
        }
        name = server_name(Role.VAULT, self.files.identity().trust_domain)
        model = Model(by_vault(providers, self.address, name, own), "claude")
        self.stack.push_async_callback(model.close)
        assert await model.why_not() == ""
        return model

    async def call(self, alias: str = "claude") -> Reply | Failed:
        async with asyncio.timeout(LIMIT):
            return await (await self.model(alias)).call(REQUEST, lambda text, thinking: None)

    async def failed(self, alias: str = "claude") -> Failed:
        answer = await self.call(alias)
        assert isinstance(answer, Failed)
        return answer


Serve = Callable[[Answer], Awaitable[There]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    authority = Authority(tmp_path)
    async with trust(tmp_path / "state") as domain, AsyncExitStack() as stack:

        async def made(answer: Answer) -> There:
            service = await stack.enter_async_context(upstream(authority, answer))
            domain.service._guard = Guard(
                rule=Widened([service.port]),
                resolver=Names({HOST: [["127.0.0.1"]]}),
                authorities=authority.bundle.read_text(),
            )
            identity = domain.identity(Role.VAULT, "vault")
            address = await stack.enter_async_context(
                serve_mcp("127.0.0.1:0", identity, domain.service)
            )
            key = tmp_path / "key"
            key.write_text(KEY + "\n")
            where = ("--url", f"https://{HOST}:{service.port}/base", "--key", key)
            carpal_vault("model", "add", "claude", "--state-dir", domain.files.state, *where)
            return There(domain, address, service, domain.identity(Role.BRAIN, "brain-1"), stack)

        yield made


async def test_a_stream_passes_as_it_comes_with_a_key_that_the_brain_has_not(
    serve: Serve,
) -> None:
    told = asyncio.Event()

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM.encode() + chunk(BEGUN) + chunk(SAID))
        await writer.drain()
        await told.wait()  # the rest comes only once the caller has had what there is
        writer.write(chunk(ENDED) + b"0\r\n\r\n")
        await writer.drain()

    there = await serve(answer)
    body = json.dumps(REQUEST).encode()
    headers = {
        "x-api-key": "a-key-of-the-brains", "authorization": "Bearer of-the-brains",
        "cookie": "a=b", "anthropic-version": "2023-06-01", "content-type": "application/json",
        "x-team": "platform",
    }  # fmt: skip
    client = await there.http()
    path = "/model/claude/v1/messages?beta=true"
    async with client.stream("POST", path, headers=headers, content=body) as stream:
        assert (stream.status_code, stream.headers["content-type"]) == (200, "text/event-stream")
        came = b""
        async for part in stream.aiter_raw():
            came += part
            if came == BEGUN + SAID:
                told.set()
    assert came == BEGUN + SAID + ENDED
    (asked,) = there.service.requests
    assert asked.body == body
    head = asked.head.decode().lower()
    assert head.startswith("post /base/v1/messages?beta=true http/1.1\r\n")
    assert f"x-api-key: {KEY.lower()}\r\n" in head
    assert "anthropic-version: 2023-06-01\r\n" in head
    assert "x-team: platform\r\n" in head
    assert "of-the-brains" not in head
    assert "cookie" not in head


async def test_a_brain_asks_by_an_alias_and_the_audit_has_the_call_without_the_key(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key-of-the-environment")
    whole = STREAM.encode() + chunk(BEGUN + SAID + ENDED) + b"0\r\n\r\n"
    there = await serve(says(whole))
    answer = await there.call()
    assert isinstance(answer, Reply)
    assert answer.blocks == [{"type": "text", "text": "good day"}]
    assert b"a-key-of-the-environment" not in there.service.requests[0].head
    assert there.domain.service.door.parts.audit.flush()
    told = [each for each in lines(there.domain.files.audit) if each.get("action") == "model.call"]
    assert [each["what"] for each in told] == ["intent", "outcome"]
    assert told[0]["actor"] == there.files.identity().uri
    assert (told[1]["host"], told[1]["status"], told[1]["count"]) == (HOST, "ok", 200)
    for path in there.domain.files.state.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path


async def test_another_key_is_shown_from_the_next_call_on(serve: Serve, tmp_path: Path) -> None:
    there = await serve(says(STREAM.encode() + chunk(BEGUN + SAID + ENDED) + b"0\r\n\r\n"))
    await there.call()
    (tmp_path / "new").write_text("sk-ant-ANOTHER-000111222")
    state = ("--state-dir", there.domain.files.state)
    carpal_vault("model", "rotate", "claude", *state, "--key", tmp_path / "new")
    await there.call()
    assert [b"ANOTHER" in asked.head for asked in there.service.requests] == [False, True]
    assert "claude: https://" in carpal_vault("model", "list", *state)
    carpal_vault("model", "remove", "claude", *state)
    gone = await there.failed()
    assert (gone.kind, gone.layer, gone.retryable) == ("model_not_found_error", "vault", False)
    assert len(there.service.requests) == 2


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/model/claude/v1/messages", 405),
        ("POST", "/model/claude/v1/models", 404),
        ("POST", "/model/claude/v1/messages/batches", 404),
        ("POST", "/model/claude/v1/messages/../files", 404),
        ("POST", "/model/claude/v1/messages%2f", 404),
        ("POST", "/model/claude/v1/messages?beta=true&x=1", 404),
        ("POST", "/model/other/v1/messages", 404),
        ("POST", "/model/CLAUDE/v1/messages", 404),
        ("POST", "/model/", 404),
    ],
)
async def test_nothing_else_is_passed_on(serve: Serve, method: str, path: str, status: int) -> None:
    there = await serve(says(reply(b"{}")))
    client = await there.http()
    url = httpx2.URL(f"https://{there.address}").copy_with(raw_path=path.encode())
    answer = await client.request(method, url, content=b"{}" if method == "POST" else None)
    assert answer.status_code == status
    error = answer.json()
    assert (error["type"], error["error"]["message"][:10]) == ("error", "the vault:")
    assert "carpal-answer" not in answer.headers
    assert there.service.requests == []


async def test_only_brains_may_ask(serve: Serve) -> None:
    there = await serve(says(reply(b"{}")))
    for role, name in ((Role.OPERATOR, "operator"), (Role.SESSIOND, "sessiond")):
        client = await there.http(there.domain.identity(role, name))
        answer = await client.post("/model/claude/v1/messages", json=REQUEST)
        assert (answer.status_code, answer.json()["error"]["reason"]) == (403, "ROLE_NOT_ALLOWED")
    assert there.service.requests == []


async def test_what_the_service_refuses_passes_as_it_is_but_for_the_key(serve: Serve) -> None:
    error = {"type": "rate_limit_error", "message": f"slow down, {KEY}"}
    body = json.dumps({"type": "error", "error": error}).encode()
    there = await serve(
        says(reply(body, "retry-after: 7", "x-other: 1", status="429 Too Many Requests"))
    )
    answer = await (await there.http()).post("/model/claude/v1/messages", json=REQUEST)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert "x-other" not in answer.headers
    assert KEY not in answer.text
    assert answer.json()["error"]["message"].startswith("slow down, ")
    failed = await there.failed()
    assert (failed.kind, failed.retry_after, failed.layer) == ("model_rate_limited_error", 7, "")
    assert there.domain.service.door.parts.audit.flush()
    seen = [each for each in lines(there.domain.files.audit) if each["what"] == "event"]
    assert "secret_reflected" in [each.get("action") for each in seen]


async def test_a_service_out_of_reach_is_the_vaults_to_tell_and_tried_again(
    serve: Serve,
) -> None:
    there = await serve(says(reply(b"{}")))
    there.domain.service._guard = Guard(resolver=Names({HOST: [["127.0.0.1"]]}))
    failed = await there.failed()
    assert (failed.kind, failed.status, failed.retryable, failed.layer) == (
        "model_request_failed_error", 502, True, "vault",
    )  # fmt: skip
    assert failed.message == "the vault: the host's address is not one that is dialled"


async def test_a_vault_that_is_sealed_or_gone_is_tried_again_and_named(serve: Serve) -> None:
    there = await serve(says(reply(b"{}")))
    door = there.domain.service.door
    parts, door._parts, door.why = door._parts, None, "no passphrase"
    failed = await there.failed()
    door._parts = parts
    assert (failed.kind, failed.status, failed.retryable, failed.layer) == (
        "model_overloaded_error", 503, True, "vault",
    )  # fmt: skip
    assert failed.message == "the vault: it is sealed"
    there.address = "127.0.0.1:1"
    gone = await there.failed()
    assert (gone.kind, gone.retryable, gone.layer) == ("model_request_failed_error", True, "vault")


WHOLE = STREAM.encode() + chunk(BEGUN + SAID + ENDED) + b"0\r\n\r\n"


async def test_a_brain_whose_identity_was_renewed_shows_the_new_one(serve: Serve) -> None:
    there = await serve(says(WHOLE))
    model = await there.model()
    assert isinstance(await model.call(REQUEST, lambda text, thinking: None), Reply)
    before = there.files.identity().serial
    claims = Claims(Role.BRAIN, "brain-1")
    setup.issue(there.domain.files, claims, there.files, there.domain.clock)
    assert there.files.identity().serial != before
    assert isinstance(await model.call(REQUEST, lambda text, thinking: None), Reply)
    assert len(model._made["claude"]) == 1


async def test_whoever_listens_in_the_vaults_place_is_told_nothing(serve: Serve) -> None:
    there = await serve(says(WHOLE))
    sessiond = there.domain.identity(Role.SESSIOND, "sessiond")  # of the same authority
    there.address = await there.stack.enter_async_context(
        serve_mcp("127.0.0.1:0", sessiond, there.domain.service)
    )
    failed = await there.failed()
    assert (failed.kind, failed.layer) == ("model_request_failed_error", "vault")
    assert there.service.requests == []


async def test_a_service_that_breaks_off_is_told_inside_the_stream(serve: Serve) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM.encode() + chunk(BEGUN + SAID + b"event: content_bl"))
        await writer.drain()
        writer.transport.abort()

    there = await serve(answer)
    came = await (await there.http()).post("/model/claude/v1/messages", json=REQUEST)
    assert came.content.startswith(BEGUN + SAID + b"event: content_bl\n\nevent: error\n")
    failed = await there.failed()
    assert (failed.retryable, failed.layer) == (True, "")
    assert "ended the connection too early" in failed.message


async def test_a_brain_that_goes_ends_the_services_work(serve: Serve) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM.encode() + chunk(BEGUN))
        await writer.drain()

    there = await serve(answer)
    client = await there.http()
    async with client.stream("POST", "/model/claude/v1/messages", json=REQUEST) as stream:
        await anext(stream.aiter_raw())
        assert not there.service.gone.is_set()
    async with asyncio.timeout(LIMIT):
        await there.service.gone.wait()


async def test_a_request_that_is_too_large_is_not_sent(serve: Serve) -> None:
    there = await serve(says(reply(b"{}")))
    client = await there.http()

    async def large() -> AsyncIterator[bytes]:
        for _ in range(33):
            yield bytes(1024 * 1024)

    for more in ({}, {"content-length": str(33 * 1024 * 1024)}):
        asked = client.post("/model/claude/v1/messages", content=large(), headers=more)
        answer = await asked
        assert answer.status_code == 413
        assert answer.json()["error"]["type"] == "request_too_large"
    assert there.service.requests == []
