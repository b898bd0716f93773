"""An access token is refreshed once for all who ask, in time, and what fails loses nothing."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from carpal.errors import CarpalError
from carpal.status import Reason
from tests.pace import SCALE
from tests.vault.guard.upstream import Asked, upstream
from tests.vault.oauth.kept import KEY
from tests.vault.oauth.server import AS_HOST
from tests.vault.oauth.world import World
from vault.guard.limits import Limits
from vault.oauth.answers import Unknown
from vault.oauth.asking import refreshing
from vault.oauth.endpoint import ask
from vault.oauth.pace import ENOUGH
from vault.oauth.ports import Authentication, Credential, Key, Tokens
from vault.oauth.rows import State
from vault.secret import Secret

LIMIT = 20.0 * SCALE


async def token(there: World, key: Key = KEY) -> str:
    async with asyncio.timeout(LIMIT):
        return (await there.engine.fresh(key)).tokens.access.reveal().decode()


async def why_not(there: World, key: Key = KEY) -> Reason:
    with pytest.raises(CarpalError) as caught:
        await token(there, key)
    return caught.value.reason


def says(
    status: int, body: bytes = b"", kind: str = "application/json", **more: str
) -> Callable[[Request], Response]:
    def answer(_: Request) -> Response:
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        return Response(body, status, headers=headers, media_type=kind)

    return answer


async def test_a_token_with_time_left_is_given_without_asking_anybody(there: World) -> None:
    access = there.enrol(left=3000)
    assert await token(there) == access
    assert there.login.posts == []


async def test_a_token_is_refreshed_before_it_ends(there: World) -> None:
    access = there.enrol(left=30)
    assert await token(there) == there.login.access[-1] != access
    assert await token(there) == there.login.access[-1]
    assert len(there.login.posts) == 1
    assert await there.engine.state(KEY) == State.FRESH


async def test_v33_a_hundred_callers_at_expiry_make_one_request_and_all_have_its_token(
    there: World,
) -> None:
    there.enrol()
    there.login.gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        callers = [group.create_task(token(there)) for _ in range(100)]
        async with asyncio.timeout(LIMIT):
            await there.login.asked.wait()
        assert await there.engine.state(KEY) == State.REFRESHING
        there.login.gate.set()
    assert {each.result() for each in callers} == {there.login.access[-1]}
    assert len(there.login.posts) == 1


async def test_a_caller_that_leaves_takes_the_refresh_from_nobody(there: World) -> None:
    there.enrol()
    there.login.gate = asyncio.Event()
    leaves, stays = (asyncio.create_task(token(there)) for _ in range(2))
    await asyncio.wait_for(there.login.asked.wait(), LIMIT)
    leaves.cancel()
    await asyncio.wait({leaves})
    there.login.gate.set()
    assert await stays == there.login.access[-1]
    assert len(there.login.posts) == 1


async def test_v37_a_401_after_another_refreshed_uses_the_newer_token(there: World) -> None:
    there.enrol(left=3000)
    before = (await there.engine.fresh(KEY)).generation
    assert await there.engine.refused(KEY, before)
    assert await there.engine.refused(KEY, before)
    assert len(there.login.posts) == 1
    assert await token(there) == there.login.access[-1]


async def test_v37_a_server_that_refuses_every_token_makes_one_refresh(there: World) -> None:
    there.enrol(left=3000)
    first = (await there.engine.fresh(KEY)).generation
    assert await there.engine.refused(KEY, first)
    second = (await there.engine.fresh(KEY)).generation
    assert second != first
    assert not await there.engine.refused(KEY, second)
    assert not await there.engine.refused(KEY, second)
    assert len(there.login.posts) == 1


@pytest.mark.parametrize("code", ["invalid_grant", "invalid_client", "unauthorized_client"])
async def test_v35_a_refusal_is_for_good_and_keeps_a_token_that_still_serves(
    there: World, code: str
) -> None:
    access = there.enrol(left=30)
    there.login.fails = [says(400, b'{"error":"%s"}' % code.encode())]
    assert await token(there) == access
    assert await there.engine.state(KEY) == State.NEEDS_REAUTH
    assert await token(there) == access
    assert len(there.login.posts) == 1
    with there.desk.kept.safe.transaction():
        held = there.desk.kept.load(KEY)
        there.desk.kept.commit(KEY, held.tokens)  # put in again, by a person
    assert await token(there) == there.login.access[-1] != access


async def test_v35_without_a_token_that_serves_a_refusal_says_that_consent_is_needed(
    there: World,
) -> None:
    there.enrol()
    there.login.live.clear()
    assert await why_not(there) == Reason.CREDENTIAL_NEEDS_CONSENT
    assert await why_not(there) == Reason.CREDENTIAL_NEEDS_CONSENT
    assert len(there.login.posts) == 1


ANSWERS = {
    "500": says(500, b'{"error":"invalid_grant"}'),
    "503": says(503, b"busy", "text/plain"),
    "429": says(429, b"{}", retry_after="1"),
    "html": says(403, b"<html>who are you?</html>", "text/html"),
    "a redirect": lambda _: RedirectResponse("https://evil.a.test/token"),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_v35_a_server_in_trouble_is_asked_again_later_and_nothing_is_lost(
    there: World, answer: Callable[[Request], Response]
) -> None:
    access = there.enrol(left=30)
    refresh = list(there.login.live)
    there.login.fails = [answer]
    assert await token(there) == access
    assert await there.engine.state(KEY) == State.FRESH
    assert await token(there) == access
    assert len(there.login.posts) == 1, "the next try waits"
    there.engine._waits.paces.clear()  # the wait is over
    assert await token(there) == there.login.access[-1] != access
    assert [each["refresh_token"] for each in there.login.posts] == [refresh, refresh]


MALFORMED = {
    "no json": says(200, b"<html></html>", "text/html"),
    "mac": says(200, b'{"token_type":"mac","access_token":"0123456789abcdef"}'),
    "a space": says(200, b'{"token_type":"Bearer","access_token":"0123 56789abcdef"}'),
    "a line": says(200, b'{"token_type":"Bearer","access_token":"0123456789abc\\r\\nX: y"}'),
    "short": says(200, b'{"token_type":"Bearer","access_token":"0123"}'),
    "a list": says(200, b'[{"token_type":"Bearer","access_token":"0123456789abcdef"}]'),
    "cut": says(200, b'{"token_type":"Bearer","access_token":"0123456789abcd'),
    "huge": says(200, b" " * 70_000 + b'{"token_type":"Bearer","access_token":"0123456789abcdef"}'),
    "for ever": says(
        200, b'{"token_type":"Bearer","access_token":"0123456789abcdef","expires_in":1e99}'
    ),
}


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
async def test_an_answer_that_is_not_as_it_must_be_is_believed_in_nothing(
    there: World, answer: Callable[[Request], Response]
) -> None:
    access = there.enrol(left=30)
    there.login.fails = [answer]
    assert await token(there) == access
    assert await there.engine.state(KEY) == State.REFRESH_UNKNOWN
    there.engine._waits.paces.clear()
    assert await token(there) == there.login.access[-1] != access
    assert await there.engine.state(KEY) == State.FRESH


async def test_a_token_that_came_alone_serves_until_its_end_and_is_asked_for_of_nobody(
    there: World,
) -> None:
    there.enrol(left=30)
    kept = there.desk.kept

    def alone(left: float) -> Tokens:
        return Tokens(Secret("at-alone-0123456789"), None, time.time() + left, 3600.0)

    with kept.safe.transaction():
        generation = kept.commit(KEY, alone(30))
    assert await token(there) == "at-alone-0123456789"
    assert not await there.engine.refused(KEY, generation)
    with kept.safe.transaction():
        kept.commit(KEY, alone(-1))
    assert await why_not(there) == Reason.CREDENTIAL_NEEDS_CONSENT
    assert there.login.posts == []


async def test_what_else_of_a_credential_changes_meanwhile_costs_no_granted_token(
    there: World,
) -> None:
    there.enrol()
    there.login.gate = asyncio.Event()
    asking = asyncio.create_task(token(there))
    await asyncio.wait_for(there.login.asked.wait(), LIMIT)
    kept = there.desk.kept
    with kept.safe.transaction():
        kept.commit(KEY, kept.load(KEY).tokens)
    there.login.gate.set()
    assert await asking == there.login.access[-1]


async def test_tokens_that_a_person_puts_in_meanwhile_stay(there: World) -> None:
    there.enrol()
    there.login.gate = asyncio.Event()
    asking = asyncio.create_task(token(there))
    await asyncio.wait_for(there.login.asked.wait(), LIMIT)
    access = there.enrol(left=3000)
    there.login.gate.set()
    assert await asking == access
    assert await token(there) == access
    assert await there.engine.state(KEY) == State.FRESH


async def test_tokens_that_a_person_puts_in_once_others_are_claimed_are_not_spent_by_that_claim(
    there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.enrol()
    kept = there.desk.kept
    load, loads = kept.load, []
    access = there.login.access_token()
    put_in = Tokens(
        Secret(access), Secret(there.login.refresh_token("carpal")), time.time() + 3000, 3600.0
    )

    def loading(key: Key) -> Credential:
        loads.append(key)
        if len(loads) == 2:  # the first one looks whether it is due
            with kept.safe.transaction():
                kept.commit(KEY, put_in)
        return load(key)

    monkeypatch.setattr(kept, "load", loading)
    assert await token(there) == access
    assert there.login.posts == []
    assert await there.engine.state(KEY) == State.FRESH


async def ends(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_v35_a_server_that_ends_the_connection_leaves_it_unknown(there: World) -> None:
    async with upstream(there.authority, ends, AS_HOST) as other:
        there.desk.rule.ports.add(other.port)
        client = replace(there.client(), token_endpoint=f"https://{AS_HOST}:{other.port}/token")
        access = there.enrol(left=30, client=client)
        assert await token(there) == access
        assert len(other.requests) == 1
    assert await there.engine.state(KEY) == State.REFRESH_UNKNOWN
    there.engine._waits.paces.clear()
    assert await token(there) == access  # nobody listens there now: no answer to the one retry
    assert await there.engine.state(KEY) == State.REFRESH_UNKNOWN


async def test_v35_a_server_that_cannot_be_reached_did_nothing(there: World) -> None:
    async with upstream(there.authority, ends, AS_HOST) as other:
        there.desk.rule.ports.add(other.port)
    client = replace(there.client(), token_endpoint=f"https://{AS_HOST}:{other.port}/token")
    there.enrol(client=client)
    assert await why_not(there) == Reason.CREDENTIAL_NOT_REFRESHED
    assert await there.engine.state(KEY) == State.FRESH


async def test_v35_a_server_that_falls_silent_may_have_done_it(there: World) -> None:
    silent = asyncio.Event()

    async def waits(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await silent.wait()

    async with upstream(there.authority, waits, AS_HOST) as other:
        there.desk.rule.ports.add(other.port)
        client = replace(there.client(), token_endpoint=f"https://{AS_HOST}:{other.port}/token")
        refresh = Secret("rt-0123456789ab")
        request = refreshing(client, None, refresh)
        limits = Limits(first_byte=0.2)
        answer = await ask(there.desk.guard, request, client, [refresh], limits)
        silent.set()
    assert answer == Unknown("upstream_timeout")


async def test_v30_what_a_token_endpoint_writes_is_neither_told_nor_logged(
    there: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    there.enrol()
    [refresh] = there.login.live

    def echo(request: Request) -> Response:
        return JSONResponse({"error": f"no {refresh}", "error_description": refresh}, 400)

    there.login.fails = [echo]
    with pytest.raises(CarpalError) as caught:
        await token(there)
    audited = str(there.desk.audited())
    for said in (caplog.text, str(caught.value), str(caught.value.fields), audited):
        assert refresh not in said
        assert "no rt-" not in said
    assert "'verdict': '400'" in audited


async def test_v36_the_refresh_token_goes_to_the_stored_endpoint_alone(there: World) -> None:
    there.enrol()
    await token(there)
    assert there.login.pages == ["/token"], "nothing is discovered at a refresh"


AWKWARD = "se cret:+%/ü&=".encode("ascii", "xmlcharrefreplace").decode()


@pytest.mark.parametrize("authentication", list(Authentication))
async def test_each_way_of_a_client_to_say_who_it_is_is_understood(
    there: World, authentication: Authentication
) -> None:
    secret = None if authentication is Authentication.NONE else AWKWARD
    client = there.client("client:+ 1%&", authentication, scope="read", resource="https://a/mcp")
    there.enrol(client=client, secret=secret)
    assert await token(there) == there.login.access[-1]
    [form] = there.login.posts
    assert form["scope"] == ["read"]
    assert form["resource"] == ["https://a/mcp"]
    assert ("client_secret" in form) is (authentication is Authentication.POST)


async def test_scope_and_resource_are_not_sent_where_none_were_configured(there: World) -> None:
    there.enrol()
    await token(there)
    assert set(there.login.posts[0]) == {"grant_type", "refresh_token", "client_id"}


async def test_a_server_that_gives_no_new_refresh_token_keeps_the_old_one_good(
    there: World,
) -> None:
    there.login.rotates = False
    there.login.expires_in = 0
    there.enrol()
    first = await token(there)
    assert await token(there) != first
    [one, two] = there.login.posts
    assert one["refresh_token"] == two["refresh_token"]


async def test_a_server_that_repeats_the_refresh_token_keeps_it_good(there: World) -> None:
    there.enrol()
    [refresh] = there.login.live
    answer = {"token_type": "bearer", "access_token": "at-0123456789ab", "refresh_token": refresh}
    there.login.fails = [lambda _: JSONResponse({**answer, "expires_in": 0})]
    assert await token(there) == "at-0123456789ab"
    await token(there)
    assert [each["refresh_token"] for each in there.login.posts] == [[refresh], [refresh]]


async def test_a_server_that_does_not_say_how_long_is_held_to_what_it_said_before(
    there: World,
) -> None:
    there.login.expires_in = None
    there.enrol(lifetime=1000.0)
    before = time.time()
    made = await there.engine.fresh(KEY)
    assert made.tokens.expires is not None
    assert before + 990 < made.tokens.expires <= time.time() + 1000


async def test_without_any_lifetime_a_token_is_refreshed_by_a_401_alone(there: World) -> None:
    there.login.expires_in = None
    access = there.enrol(left=None, lifetime=None)
    assert await token(there) == access
    held = await there.engine.fresh(KEY)
    assert await there.engine.refused(KEY, held.generation)
    assert await token(there) == there.login.access[-1] != access


async def test_an_endpoint_that_fails_for_several_is_left_alone_by_all(there: World) -> None:
    keys = [Key("default", "v1", f"c{number}") for number in range(ENOUGH + 1)]
    for key in keys:
        there.enrol(key=key)
    there.login.fails = [says(500)] * len(keys)
    for key in keys:
        assert await why_not(there, key) == Reason.CREDENTIAL_NOT_REFRESHED
    assert len(there.login.posts) == ENOUGH
    assert await there.engine.state(keys[-1]) == State.FRESH


async def test_what_cannot_be_written_to_the_audit_is_not_refreshed(there: World) -> None:
    there.enrol()
    there.engine._audit.close()
    assert await why_not(there) == Reason.AUDIT_NOT_WRITTEN
    assert there.login.posts == []
    assert await there.engine.state(KEY) == State.FRESH


async def test_a_clock_that_is_set_refreshes_nothing_until_a_server_says_so(
    there: World,
) -> None:
    access = there.enrol(left=3000)
    there.desk.set_clock(86_400)
    assert await token(there) == access
    held = await there.engine.fresh(KEY)
    assert await there.engine.refused(KEY, held.generation)
    assert await token(there) == there.login.access[-1]
    assert len(there.login.posts) == 1
