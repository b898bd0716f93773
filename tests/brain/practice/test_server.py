"""Keys, unknown routes, and the record of what was asked."""

import asyncio
from collections.abc import AsyncIterator

import anthropic
import httpx2
import pytest

from brain.practice.answer import Answer, Script
from brain.practice.record import KEPT, Entry, Record
from tests.practice import client_of, practice_server, requests_of, user

BODY = {"model": "m", "max_tokens": 10, "messages": [user("hi")]}
VERSION = {"anthropic-version": "2026-10-21"}


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with practice_server([Script([Answer(text="a")], match="match", name="one")]) as url:
        yield url


async def post(url: str, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx2.AsyncClient(base_url=url) as http:
        return await http.post("/v1/messages", json=BODY, headers=named)


async def test_either_kind_of_key_will_do_and_any_value(url: str) -> None:
    assert (await post(url, x_api_key="a", **VERSION)).status_code == 200
    assert (await post(url, authorization="Bearer b", **VERSION)).status_code == 200


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer"}, {"authorization": "Basic x"}])
async def test_without_a_key_nothing_is_answered(url: str, headers: dict[str, str]) -> None:
    answer = await post(url, **VERSION, **headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")


async def test_the_client_sees_an_authentication_error(url: str) -> None:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k") as client:
        with pytest.raises(anthropic.AuthenticationError):
            await client.messages.create(
                model="m",
                max_tokens=1,
                messages=[user("hi")],
                extra_headers={"Authorization": "None"},
            )


async def test_the_version_header_is_required(url: str) -> None:
    answer = await post(url, x_api_key="a")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "anthropic-version: header is required"


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/complete", "/v1/messages/batches"])
async def test_an_unknown_route_is_not_found_in_the_apis_words(url: str, path: str) -> None:
    async with httpx2.AsyncClient(base_url=url) as http:
        answer = await http.get(path)
        head = await http.head(path)
    assert answer.status_code == head.status_code == 404
    assert answer.json() == {
        "type": "error",
        "error": {"type": "not_found_error", "message": "Not Found"},
        "request_id": answer.headers["request-id"],
    }
    assert head.content == b""


async def test_another_method_is_refused(url: str) -> None:
    async with httpx2.AsyncClient(base_url=url) as http:
        answer = await http.get("/v1/messages")
    assert (answer.status_code, answer.json()["error"]["type"]) == (405, "invalid_request_error")


async def test_it_says_what_it_is_and_what_it_plays(url: str) -> None:
    async with httpx2.AsyncClient(base_url=url) as http:
        about = (await http.get("/practice")).json()
    assert "not a model" in about["what"]
    assert about["scripts"] == [{"name": "one", "match": "match"}]


async def test_the_record_tells_what_was_asked_in_order(url: str) -> None:
    async with client_of(url) as client:
        await client.messages.create(model="m", max_tokens=5, messages=[user("match")])
        with pytest.raises(anthropic.BadRequestError):
            await client.messages.create(model="m", max_tokens=5, messages=[])
        [model async for model in client.models.list()]
    first, second, third = await requests_of(url)
    assert first["body"]["messages"][0]["content"] == "match"
    assert [entry["played"] for entry in (first, second, third)] == ["one[0]", None, None]
    assert [entry["status"] for entry in (first, second, third)] == [200, 400, 200]
    assert (third["method"], third["path"], third["body"]) == ("GET", "/v1/models", None)
    assert first["arrived"] < first["answered"] < second["arrived"]
    assert [entry["number"] for entry in await requests_of(url, after=1)] == [2, 3]


async def test_the_record_keeps_no_key(url: str) -> None:
    await post(url, x_api_key="sk-secret", **VERSION)
    async with httpx2.AsyncClient(base_url=url) as http:
        assert "sk-secret" not in (await http.get("/practice/requests")).text


async def test_the_record_can_be_waited_on(url: str) -> None:
    assert await requests_of(url, wait=0.01) == []
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = group.create_task(requests_of(url, wait=10))
        group.create_task(post(url, x_api_key="a", **VERSION))
    assert [entry["path"] for entry in waiting.result()] == ["/v1/messages"]


@pytest.mark.parametrize("query", ["after=x", "wait=-1", "wait=nan", "after=inf"])
async def test_a_wrong_question_to_the_record_is_refused(url: str, query: str) -> None:
    async with httpx2.AsyncClient(base_url=url) as http:
        assert (await http.get(f"/practice/requests?{query}")).status_code == 400


async def test_the_record_is_bounded_in_entries_and_in_bytes() -> None:
    record = Record(body_bytes=100)
    for index in range(KEPT + 5):
        record.add(Entry("POST", "/", f"req_{index}", 0, raw=b'"' + b"x" * 28 + b'"'))
    entries = record.since(0)
    assert [entries[0].number, entries[-1].number, len(entries)] == [6, KEPT + 5, KEPT]
    assert [entry.facts()["body"] is None for entry in entries[-5:]] == [True] * 2 + [False] * 3
