"""What the vault logs has nothing of what passes through it, whatever level is set."""

import asyncio
import gc
import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from carpal import logs
from carpal.errors import CarpalError, invalid
from tests.vault.guard.upstream import HOST, guarded, reply, says
from vault import quiet
from vault.guard.errors import GuardError, TooLarge
from vault.guard.headers import bearer
from vault.guard.targets import Target
from vault.guard.transport import Request
from vault.redact.stream import Patterns
from vault.redact.under_way import hidden
from vault.secret import Secret

TOKEN = "canary-5b1d0e7a-token"
_log = logging.getLogger("vault.tested")


@pytest.fixture(params=[False, True], ids=["people", "machines"])
def written(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """What is written at the finest level, for people or for machines."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    libraries = {name: logging.getLogger(name).level for name in quiet.LIBRARIES}
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logs.ForMachines() if request.param else logs.ForPeople(colours=False))
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG)
    quiet.install()
    for name in quiet.LIBRARIES:  # as if somebody wanted to see it all
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield out
    root.handlers[:] = before
    root.setLevel(level)
    for name, its in libraries.items():
        logging.getLogger(name).setLevel(its)


async def test_a_request_with_a_token_in_its_url_leaves_no_trace_of_it_v31(
    tmp_path: Path, written: io.StringIO
) -> None:
    async with guarded(tmp_path, says(reply(TOKEN.encode()))) as (guard, [there]):
        target = Target(HOST, there.port, f"/a?access_token={TOKEN}")
        request = Request("GET", target, [("Authorization", bearer(Secret(TOKEN)))])
        async with guard.send(request) as response:
            _log.debug("sending %r to %s", request, target, extra={"reply": response})
            assert await response.read() == b"[REDACTED]"
    assert "sending Request(GET https://api.a.test" in written.getvalue()
    assert TOKEN not in written.getvalue()
    assert "httpcore2" not in written.getvalue()


def test_a_secret_is_struck_out_of_every_line_while_its_request_lasts(written: io.StringIO) -> None:
    with hidden(Patterns([Secret(TOKEN)])):
        _log.info("said %s", TOKEN, extra={"also": {"deep": [TOKEN.encode().hex()]}})
    assert "said [REDACTED]" in written.getvalue()
    assert TOKEN not in written.getvalue()
    assert TOKEN.encode().hex() not in written.getvalue()


def test_an_exception_is_written_by_its_kind_and_place_without_its_words(
    written: io.StringIO,
) -> None:
    try:
        try:
            raise ValueError(f"could not read {TOKEN[:-1]}")
        except ValueError as error:
            raise RuntimeError(TOKEN) from error
    except RuntimeError:
        _log.exception("a request failed")
    line = written.getvalue()
    assert "a request failed (RuntimeError at test_quiet.py:" in line
    assert "from ValueError at test_quiet.py:" in line
    assert "canary" not in line
    assert "Traceback" not in line


def test_the_words_of_our_own_errors_and_of_the_system_are_written(written: io.StringIO) -> None:
    for error in (invalid("host", "is no host"), TooLarge(limit="ratio"), OSError(28, "no space")):
        try:
            raise error
        except (CarpalError, GuardError, OSError):
            _log.exception("failed")
    for said in ("host: is no host", "larger than allowed", "no space"):
        assert said in written.getvalue()


def test_what_the_loop_says_of_an_exception_that_nobody_took_has_none_of_its_words(
    written: io.StringIO,
) -> None:
    async def failing() -> None:
        raise ValueError(TOKEN)

    def called(_: str) -> None:
        raise ValueError(TOKEN)

    async def nobody_looks() -> None:
        loop = asyncio.get_running_loop()
        loop.create_future().set_exception(ValueError(TOKEN))
        loop.call_soon(called, TOKEN)
        await asyncio.wait([loop.create_task(failing())])

    asyncio.run(nobody_looks())
    gc.collect()
    for said in ("Task exception", "Future exception", "Exception in callback"):
        assert said in written.getvalue()
    assert "ValueError at test_quiet.py:" in written.getvalue()
    assert TOKEN not in written.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        f"GET https://u:{TOKEN}@x.example/a",
        f"GET https://x.example/a?access_token={TOKEN}&b=1",
        f"Authorization: Bearer {TOKEN}",
        f"authorization: basic {TOKEN}",
        f"grant avs_mcp_{TOKEN}",
    ],
)
def test_what_looks_like_a_secret_is_struck_out_though_nobody_named_it_v31(
    text: str, written: io.StringIO
) -> None:
    _log.warning(text)
    assert "[REDACTED]" in written.getvalue()
    assert TOKEN not in written.getvalue()


def test_what_libraries_chatter_is_not_written_and_their_warnings_are(written: io.StringIO) -> None:
    for name in quiet.LIBRARIES:
        logging.getLogger(f"{name}.deep").info("chatter")
        logging.getLogger(f"{name}.deep").warning("it warns")
    assert "chatter" not in written.getvalue()
    assert written.getvalue().count("it warns") == len(quiet.LIBRARIES)


def test_one_filter_is_enough() -> None:
    handler = logging.NullHandler()
    quiet.install(handler)
    quiet.install(handler)
    assert len(handler.filters) == 1
