"""A token command: run without a shell, bounded, asked again only when its token is over."""

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from brain.models.model import Model, Reply
from brain.models.settings import Provider
from brain.models.token_command import OUTPUT_BYTES, TokenCommand, TokenError
from brain.session import model_kinds as kinds
from tests.brain.models.asking import ASK, failure, reply
from tests.model_endpoint import endpoint


class Program:
    """A program whose runs are counted, and that prints what a test wants."""

    def __init__(self, folder: Path) -> None:
        self._count = folder / "count"
        self._prints = folder / "prints"
        self.path = folder / "token"
        self.path.write_text(f"#!/bin/sh\necho x >> {self._count}\ncat {self._prints}\n")
        self.path.chmod(0o700)

    def prints(self, text: str) -> None:
        """From now on."""
        self._prints.write_text(text)

    @property
    def runs(self) -> int:
        """How often it ran."""
        return len(self._count.read_text().splitlines()) if self._count.exists() else 0


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.prints("tok-1\n")
    return made


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("printed", "lasts"),
    [
        ("tok-1\n", 300),
        ('{"token": "tok-1", "expires_in": 1000}', 1000),
        ('{"access_token": "tok-1", "expires_at": 1800001000}', 1000),
        (json.dumps({"token": "tok-1", "expires_at": "2027-01-15T08:16:40Z"}), 1000),
        ('{"token": "tok-1"}', 300),
    ],
)
async def test_a_token_is_kept_until_shortly_before_its_end(
    program: Program, printed: str, lasts: int
) -> None:
    assert datetime.fromtimestamp(1_800_001_000, UTC).isoformat() == "2027-01-15T08:16:40+00:00"
    clock = Clock()
    command = TokenCommand([str(program.path)], clock=clock)
    program.prints(printed)
    assert await command.token() == "tok-1"
    clock.now += lasts - 31
    assert await command.token() == "tok-1"
    assert program.runs == 1
    clock.now += 2
    program.prints("tok-2")
    assert await command.token() == "tok-2"


async def test_arguments_are_given_as_they_are_and_no_shell_reads_them() -> None:
    assert await TokenCommand(["printf", "%s", "$HOME;x"]).token() == "$HOME;x"


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (["/no/such/program"], "No such file"),
        (["false"], "ended with 1"),
        (["sleep", "60"], "took more than 0.3 s"),
        (["sh", "-c", "sleep 60 & wait"], "took more than 0.3 s"),
        (["head", "-c", str(OUTPUT_BYTES + 1), "/dev/zero"], "printed more than 65536 bytes"),
        (["true"], "printed no token"),
        (["echo", "two words"], "more than one word"),
        (["printf", "\\303\\251"], "what is no token"),
        (["echo", '{"token": 1'], "JSON that is no token"),
        (["echo", '{"token": "x", "expires_in": -1}'], "has expired"),
        (["echo", '{"token": "x", "expires_at": "2027-01-15T08:16:40"}'], "JSON that is no token"),
    ],
)
async def test_a_command_that_gives_no_token_is_told_in_words(
    command: list[str], part: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TokenError, match=part) as caught:
        await TokenCommand(command, timeout=0.3).token()
    assert f"{command[0]!r}" not in str(caught.value), "where it is, is for the brain's own log"
    assert vars(caplog.records[-1])["command"] == command[0]


async def test_the_token_is_what_authorises_and_no_other_key_is_sent(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "ambient-key")
    monkeypatch.setenv("ANTHROPIC_FOUNDRY_API_KEY", "ambient-key")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "ambient-key")
    async with endpoint() as service:
        for provider in (
            Provider(kind="anthropic", base_url=service.url, token_command=[str(program.path)]),
            Provider(kind="foundry", base_url=service.url, token_command=[str(program.path)]),
            Provider(
                kind="vertex",
                base_url=service.url,
                region="r",
                project="p",
                token_command=[str(program.path)],
            ),
        ):
            await reply(provider)
        for asked in service.asked:
            assert asked.headers["authorization"] == "Bearer tok-1"
            assert "ambient-key" not in json.dumps(asked.headers)
    assert len(service.asked) == 3


async def test_a_token_that_is_refused_is_renewed_once_and_the_call_goes_on(
    program: Program,
) -> None:
    async with endpoint() as service:
        provider = Provider(
            kind="anthropic", base_url=service.url, token_command=[str(program.path)]
        )
        model = Model({"p": provider}, "p")
        assert isinstance(await model.call(ASK, lambda text, thinking: None), Reply)
        program.prints("tok-2")
        service.answers = [service.refuses(401, "authentication_error"), service.says("again")]
        assert isinstance(await model.call(ASK, lambda text, thinking: None), Reply)
        await model.close()
        shown = [asked.headers["authorization"] for asked in service.asked]
        assert shown == ["Bearer tok-1", "Bearer tok-1", "Bearer tok-2"]
        service.answers = [service.refuses(401, "authentication_error")]
        failed = await failure(provider)
        assert (failed.kind, failed.retryable) == (kinds.AUTHENTICATION, False)
        assert len(service.asked) == 5, "once, not for ever"


async def test_a_command_that_fails_is_a_failure_of_the_call(tmp_path: Path) -> None:
    async with endpoint() as service:
        provider = Provider(kind="anthropic", base_url=service.url, token_command=["false"])
        failed = await failure(provider)
        assert (failed.kind, failed.retryable) == (kinds.AUTHENTICATION, False)
        assert "the token command ended with 1" in failed.message
        assert service.asked == []


async def test_a_token_is_never_logged(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    program.prints("a-secret-token")
    async with endpoint() as service:
        provider = Provider(
            kind="anthropic", base_url=service.url, token_command=[str(program.path)]
        )
        await reply(provider)
        service.answers = [service.refuses(401, "authentication_error")]
        failed = await failure(provider)
    assert "a-secret-token" not in caplog.text + str(failed)
