"""A reply of wrong types fails its call in words, is charged, and harms nobody else."""

import json
import os
from pathlib import Path
from typing import Any

import certifi
import pytest

from brain.effects import Failed
from brain.models import clients
from brain.models.model import Model, Reply
from brain.models.settings import Provider
from brain.session import model_kinds as kinds
from tests.brain.models.asking import ASK, ask, failure, reply
from tests.model_endpoint import Asked, Endpoint, Wire, endpoint, events, tool_use

Json = dict[str, Any]
HALF = "\ud800"
KEY = {"x-api-key": "sk-a-key-of-a-test"}
TEXT = {"type": "text", "text": "x"}


def at(service: Endpoint, **more: Any) -> Provider:
    return Provider(kind="anthropic", base_url=service.url, headers=KEY, **more)


def block(of: Json) -> list[Json]:
    """A reply of a block as it stands."""
    made = events([TEXT])
    made[1] = {"type": "content_block_start", "index": 0, "content_block": of}
    del made[2]
    return made


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


NONSENSE: dict[str, list[Json]] = {
    "stop_reason half": events([TEXT], f"end{HALF}"),
    "stop_reason list": events([TEXT], ["end"]),  # type: ignore[arg-type]
    "stop_reason number": events([TEXT], 5),  # type: ignore[arg-type]
    "stop_reason long": events([TEXT], "stop" * 1000),
    "tool name half": events([tool_use("{}", f"bash{HALF}")], "tool_use"),
    "input key half": events([tool_use(json.dumps({"a": [{HALF: 1}]}))], "tool_use"),
    "no text": block({"type": "text"}),
    "text null": block({"type": "text", "text": None}),
    "text number": block({"type": "text", "text": 5}),
    "no type": block({"text": "x"}),
    "type list": block({"type": ["text"], "text": "x"}),
    "block list": block([1]),  # type: ignore[arg-type]
    "tool no name": block({"type": "tool_use", "id": "t", "input": {}}),
    "tool name list": block({"type": "tool_use", "id": "t", "name": ["x"], "input": {}}),
    "tool name empty": block({"type": "tool_use", "id": "t", "name": "", "input": {}}),
    "tool no input": block({"type": "tool_use", "id": "t", "name": "x"}),
    "deep": block({"type": "hologram", "x": deep(200)}),
    "delta object": [
        events([TEXT])[0],
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use"}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": {}},
        },
        *events([TEXT])[-2:],
    ],
    "usage list": [{"type": "message_start", "message": {"usage": [1, 2]}}],
    "usage large": [{"type": "message_start", "message": {"usage": {"x": "x" * 20_000}}}],
    "stop details deep": events([TEXT], stop_details=deep(200)),
    "error message object": [
        events([TEXT])[0],
        {"type": "error", "error": {"type": "x", "message": {"m": 1}}},
    ],
    "error type list": [{"type": "error", "error": {"type": ["x"], "message": "m"}}],
}


@pytest.mark.parametrize("name", NONSENSE)
async def test_what_is_no_reply_fails_the_call_as_one_that_cannot_be_read(name: str) -> None:
    async with endpoint() as service:
        service.answers = [service.streams(NONSENSE[name])]
        failed = await failure(at(service))
        assert (failed.kind, failed.retryable) == (kinds.CUT, True), failed
        assert "cannot be read" in failed.message
        failed.message.encode()


async def test_nesting_without_end_is_a_reply_that_cannot_be_read_no_fault_of_settings() -> None:
    wire = b"event: content_block_start\ndata: " + b"[" * 100_000 + b"\n\n"
    async with endpoint() as service:
        service.answers = [service.gives(wire, content_type="text/event-stream")]
        failed = await failure(at(service))
        assert failed.kind == kinds.CUT
        assert "nested too deeply" in failed.message


async def test_an_error_whose_message_is_no_text_is_known_by_its_status() -> None:
    for error in ({"message": {"m": 1}}, {"type": ["x"], "message": "m"}, {"message": HALF}):
        async with endpoint() as service:
            service.answers = [service.gives(json.dumps({"error": error}).encode(), 429)]
            failed = await failure(at(service))
            assert (failed.kind, failed.status) == (kinds.RATE_LIMITED, 429)
            failed.message.encode()


@pytest.mark.parametrize(
    ("usage", "kept"),
    [
        ({"input_tokens": float("nan"), "output_tokens": 1.5}, {}),
        ({"input_tokens": -4, "output_tokens": "7"}, {}),
        ({"input_tokens": 3, "output_tokens": True}, {"input_tokens": 3}),
        (
            {"cache_read_input_tokens": -1, "output_tokens": 2, "x": float("inf")},
            {"output_tokens": 2, "x": "inf"},
        ),
    ],
)
async def test_counts_that_are_none_do_not_reach_the_log(usage: Json, kept: Json) -> None:
    async with endpoint() as service:
        service.answers = [service.says("x", usage=usage)]
        answer = await reply(at(service))
        assert answer.usage == kept


async def test_a_count_that_the_end_does_not_give_is_not_known() -> None:
    made = events([TEXT])
    del made[-2]["usage"]
    async with endpoint() as service:
        service.answers = [service.streams(made)]
        assert (await reply(at(service))).usage == {"input_tokens": 10}


@pytest.mark.parametrize("end", ["error", "cut", "nonsense"])
async def test_a_reply_that_broke_off_has_the_usage_known_so_far(end: str) -> None:
    begun = events([TEXT])[:-2]
    more: Json = {"type": "error", "error": {"type": "overloaded_error", "message": "full"}}
    if end == "nonsense":
        more = {"type": "content_block_start"}
    async with endpoint() as service:
        begun += [] if end == "cut" else [more]
        service.answers = [service.streams(begun, cut=end == "cut")]
        failed = await failure(at(service))
        assert failed.usage == {"input_tokens": 10}


async def test_a_connection_cut_after_the_headers_is_a_cut_an_error_at_once_costs_nothing() -> None:
    async def cut(wire: Wire, _: Asked) -> None:
        await wire.head(content_type="text/event-stream", transfer_encoding="chunked")
        wire.reset()

    async with endpoint() as service:
        service.answers = [cut]
        failed = await failure(at(service))
        assert failed.kind == kinds.CUT
        error = {"type": "error", "error": {"type": "overloaded_error", "message": "full"}}
        service.answers = [service.streams([error])]
        failed = await failure(at(service))
        assert (failed.kind, failed.usage) == (kinds.OVERLOADED, None)


async def test_a_wrong_address_is_told_with_the_provider_and_what_to_check() -> None:
    async with endpoint() as service:
        service.answers = [service.gives(b"Not Found", 404)]
        failed = await failure(at(service))
        assert failed.kind == kinds.NOT_FOUND
        assert failed.message == "provider 'p' answered 404: check base_url and model (Not Found)"


async def test_a_provider_without_a_key_is_told_by_its_name_and_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    failed = await failure(Provider(kind="anthropic", base_url="http://127.0.0.1:9"))
    assert "provider 'p': set token_command in [providers.p]" in failed.message


async def test_a_failure_names_no_path_of_the_brains_machine(tmp_path: Path) -> None:
    for more in (
        {"ca_bundle": f"{tmp_path}/none.pem"},
        {"client_certificate": f"{tmp_path}/none.pem"},
        {"token_command": [f"{tmp_path}/none"]},
    ):
        given: Any = more if "token_command" in more else {**more, "headers": KEY}
        answer = await ask(Provider(kind="anthropic", base_url="http://127.0.0.1:9", **given))
        assert isinstance(answer, Failed)
        assert str(tmp_path) not in answer.message
        assert next(iter(more)).replace("_", " ") in answer.message.replace("_", " ")


async def test_a_client_of_a_renewed_certificate_is_closed_when_its_last_call_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(Path(certifi.where()).read_bytes())
    made: list[clients.Made] = []
    make = clients.make

    def kept(name: str, provider: Provider) -> clients.Made:
        made.append(make(name, provider))
        return made[-1]

    monkeypatch.setattr(clients, "make", kept)
    async with endpoint() as service:
        model = Model({"p": at(service, ca_bundle=str(bundle))}, "p")
        for renewed in range(1, 4):
            os.utime(bundle, (renewed, renewed))
            assert isinstance(await model.call(ASK, lambda text, thinking: None), Reply)
            assert [each.client.is_closed() for each in made] == [True] * (renewed - 1) + [False]

        async def renews(wire: Wire, asked: Asked) -> None:
            if len(service.asked) == 4:
                os.utime(bundle, (9, 9))
                service.answers = [service.says("inner")]
                assert isinstance(await model.call(ASK, lambda text, thinking: None), Reply)
                assert not made[2].client.is_closed(), "its call is under way"
            await service.says("outer")(wire, asked)

        service.answers = [renews]
        assert isinstance(await model.call(ASK, lambda text, thinking: None), Reply)
        assert [each.client.is_closed() for each in made] == [True, True, True, False]
        await model.close()
