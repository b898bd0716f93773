"""A person's consent becomes a credential, in a browser or by paste, and nobody else's does."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from playwright.async_api import async_playwright
from pydantic import AnyUrl
from starlette.responses import JSONResponse, Response

from carpal.errors import CarpalError
from carpal.status import Reason
from hands.browser.chromium import PROGRAM
from tests.pace import SCALE
from tests.vault.oauth.kept import KEY
from tests.vault.oauth.server import AS_HOST
from tests.vault.oauth.world import World
from vault.oauth.enrol import Enrolled, Registered, enrol
from vault.oauth.ports import Authentication, Client, Tokens
from vault.secret import Secret

LIMIT = 60.0 * SCALE
AS_METADATA = "/.well-known/oauth-authorization-server"
RESOURCE = "/.well-known/oauth-protected-resource/mcp"


def mcp(there: World) -> str:
    return f"https://{AS_HOST}:{there.port}/mcp"


async def consented(there: World, url: str) -> str:
    """A person elsewhere, who consents and copies where they were sent back to."""
    async with httpx2.AsyncClient(verify=False, trust_env=False) as http:

        async def get(asked: str) -> httpx2.Response:
            parts = urlsplit(asked)
            local = parts._replace(netloc=f"127.0.0.1:{there.port}").geturl()
            return await http.get(local, headers={"host": parts.netloc})

        page = (await get(url)).headers["location"]
        ticket = parse_qs(urlsplit(page).query)["ticket"][0]
        return str((await get(f"{there.login.issuer}/allow?ticket={ticket}")).headers["location"])


def pasting(there: World) -> Callable[[str], Awaitable[str]]:
    async def paste(url: str) -> str:
        return await consented(there, url)

    return paste


async def enrolled(there: World, **more: Any) -> Enrolled:
    async with asyncio.timeout(LIMIT):
        return await enrol(there.desk.guard, mcp(there), **{"paste": pasting(there), **more})


async def why_not(there: World, **more: Any) -> str:
    with pytest.raises(CarpalError) as caught:
        await enrolled(there, **more)
    assert caught.value.reason is Reason.CONSENT_FAILED
    return caught.value.message


async def test_a_person_consents_in_a_browser_and_the_credential_refreshes(there: World) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=str(PROGRAM),
            args=["--no-sandbox", f"--host-resolver-rules=MAP {AS_HOST} 127.0.0.1"],
        )
        page = await (await browser.new_context(ignore_https_errors=True)).new_page()

        async def goes(url: str) -> None:
            await page.goto(url)
            await page.click("#allow")
            await page.get_by_text("Carpal has the answer").wait_for()

        made = await enrolled(there, browser=goes, paste=None)
        assert "code=" in page.url
        await browser.close()
    refresh = made.policy["refresh"]
    assert made.policy["mcp_server_url"] == mcp(there)
    assert refresh["token_endpoint"] == f"{there.login.issuer}/token"
    assert refresh["resource"] == mcp(there)
    assert made.secrets["access_token"].decode() == there.login.access[-1]
    client = Client(
        refresh["token_endpoint"],
        refresh["client_id"],
        Authentication(refresh["token_endpoint_auth"]),
        refresh["resource"],
    )
    held = {name: Secret(value) for name, value in made.secrets.items()}
    tokens = Tokens(held["access_token"], held["refresh_token"], 0.0, 3600.0)
    there.desk.kept.add(KEY, client, tokens, held.get("client_secret"))
    fresh = await there.engine.fresh(KEY)
    assert fresh.tokens.access.reveal().decode() == there.login.access[-1]


async def test_a_person_without_a_browser_here_pastes_where_they_were_sent_back_to(
    there: World,
) -> None:
    made = await enrolled(there)
    assert made.secrets["refresh_token"].decode() in there.login.live
    assert made.policy["expires_at"] is not None
    for hidden in made.secrets.values():
        assert hidden.decode() not in repr(made)


async def test_a_client_registered_by_hand_is_used_as_it_is(there: World) -> None:
    there.login.lies["/register"] = Response(status_code=403)
    there.login.client("by-hand", "client_secret_post", "0123456789abcdef")
    there.login.clients["by-hand"].redirect_uris = None
    by_hand = Registered("by-hand", Secret("0123456789abcdef"), Authentication.POST)

    async def paste(url: str) -> str:
        # The server has to know the redirect: one registered by hand has any port of loopback.
        redirect = parse_qs(urlsplit(url).query)["redirect_uri"][0]
        there.login.clients["by-hand"].redirect_uris = [AnyUrl(redirect)]
        return await consented(there, url)

    made = await enrolled(there, paste=paste, registered=by_hand)
    assert made.policy["refresh"]["client_id"] == "by-hand"
    assert made.secrets["client_secret"] == b"0123456789abcdef"
    assert "/register" not in there.login.pages


def metadata(there: World, **more: Any) -> Response:
    issuer = there.login.issuer
    told = {
        "issuer": there.login.named,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "registration_endpoint": f"{issuer}/register",
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
        **more,
    }
    return JSONResponse({name: value for name, value in told.items() if value is not None})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"issuer": "https://evil.a.test"}, "another one"),
        ({"code_challenge_methods_supported": None}, "PKCE"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
        ({"token_endpoint": "http://login.a.test/token"}, "https"),
        ({"authorization_endpoint": "http://login.a.test/authorize"}, "https"),
        ({"registration_endpoint": None}, "registers no clients"),
    ],
)
async def test_an_authorization_server_that_is_not_as_it_must_be_is_not_used(
    there: World, more: dict[str, Any], why: str
) -> None:
    there.login.lies[AS_METADATA] = metadata(there, **more)
    assert why in await why_not(there)
    assert there.login.posts == []


async def test_a_server_that_describes_itself_as_another_is_not_believed(there: World) -> None:
    there.login.lies[RESOURCE] = JSONResponse(
        {"resource": "https://other.a.test/mcp", "authorization_servers": [there.login.named]}
    )
    assert "another one" in await why_not(there)


@pytest.mark.parametrize(
    "where",
    ["http://169.254.169.254/latest", "https://169.254.169.254/latest", "https://localhost/x"],
)
async def test_a_description_that_a_server_has_elsewhere_inside_is_not_fetched(
    there: World, where: str
) -> None:
    there.login.lies["/mcp"] = Response(
        status_code=401, headers={"www-authenticate": f'Bearer resource_metadata="{where}"'}
    )
    await why_not(there)
    assert AS_METADATA not in there.login.pages


async def test_an_answer_by_another_server_is_refused(there: World) -> None:
    there.login.iss = "https://evil.a.test"
    assert "another authorization server" in await why_not(there)
    assert there.login.posts == []


async def test_an_answer_without_the_name_that_was_promised_is_refused(there: World) -> None:
    promised = {"authorization_response_iss_parameter_supported": True}
    there.login.lies[AS_METADATA] = metadata(there, **promised)

    async def paste(url: str) -> str:
        return (await consented(there, url)).partition("&iss=")[0]

    assert "another authorization server" in await why_not(there, paste=paste)


async def test_an_answer_to_another_question_is_refused(there: World) -> None:
    async def paste(url: str) -> str:
        back = await consented(there, url)
        state = parse_qs(urlsplit(back).query)["state"][0]
        return back.replace(state, "x" * len(state))

    assert "no answer to this question" in await why_not(there, paste=paste)
    assert there.login.posts == []


async def test_a_person_who_refuses_makes_no_credential(there: World) -> None:
    async def paste(url: str) -> str:
        asked = parse_qs(urlsplit(url).query)
        return f"{asked['redirect_uri'][0]}?error=access_denied&state={asked['state'][0]}"

    assert await why_not(there, paste=paste) == "consent was refused"


async def test_who_else_comes_to_the_port_does_not_end_the_waiting(there: World) -> None:
    told = []

    async def goes(url: str) -> None:
        back = await consented(there, url)
        async with httpx2.AsyncClient(trust_env=False) as http:
            other_state = back.replace("state=", "state=x")
            other_path = back.replace("/callback", "/other")
            for method, each in (
                ("GET", other_state),
                ("GET", other_path),
                ("GET", back.partition("?")[0]),
                ("POST", back),
            ):
                reply = await http.request(method, each)
                told.append(reply.status_code)
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(back).port)
            writer.write(b"\x00" * 40_000)
            with suppress(ConnectionError):
                await writer.drain()
                await reader.read()
            writer.close()
            told.append((await http.get(back)).status_code)

    await enrolled(there, browser=goes, paste=None)
    assert told == [404, 404, 404, 404, 200]


async def test_a_code_that_is_not_exchanged_makes_no_credential(there: World) -> None:
    async def paste(url: str) -> str:
        back = await consented(there, url)
        there.login.codes.clear()
        return back

    assert "invalid_grant" in await why_not(there, paste=paste)


async def test_the_verifier_and_the_code_are_sent_to_the_token_endpoint_alone(
    there: World,
) -> None:
    urls = []

    async def paste(url: str) -> str:
        urls.append(url)
        return await consented(there, url)

    await enrolled(there, paste=paste)
    [form] = there.login.posts
    assert form["code_verifier"][0] not in urls[0]
    assert parse_qs(urlsplit(urls[0]).query)["code_challenge_method"] == ["S256"]
    assert form["resource"] == [mcp(there)]
