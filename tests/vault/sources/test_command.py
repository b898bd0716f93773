"""A command of the owner's that prints a secret: what it gets, and what it may cost."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from tests.pace import SCALE
from vault.guard.transport import Guard
from vault.sources import command
from vault.sources.command import CommandSource
from vault.sources.reference import Reference
from vault.sources.source import Failure, SourceFailed

REFERENCE = Reference("corp", "agents/tracker", "token", 3)
VALUE = "tok-CANARY-command-1"
LIMIT = 20.0 * SCALE


async def fetched(source: CommandSource, reference: Reference = REFERENCE) -> str:
    async with asyncio.timeout(LIMIT), Guard() as guard:
        return (await source.fetch(reference, guard)).reveal().decode()


async def failed(script: str) -> SourceFailed:
    with pytest.raises(SourceFailed) as caught:
        await fetched(python(script))
    return caught.value


def python(script: str, *arguments: str, **settings: object) -> CommandSource:
    """Isolated (-I), so that it needs nothing of the environment that it does not get."""
    return CommandSource({"argv": [sys.executable, "-Ic", script, *arguments], **settings})


async def test_a_command_has_the_reference_in_its_arguments_and_on_standard_input() -> None:
    script = "import sys; print(repr(sys.argv[1:]), sys.stdin.read().strip())"
    source = python(script, "--ref=op://vault/{path}/{key}", "{version}", "{other}")
    assert await fetched(source) == (
        "['--ref=op://vault/agents/tracker/token', '3', '{other}'] "
        '{"path": "agents/tracker", "key": "token", "version": 3}'
    )


async def test_what_is_filled_in_is_not_looked_through_again() -> None:
    # No path can have a brace in it; this is what holds if one could.
    source = python("import sys; print(sys.argv[1])", "{path}")
    assert await fetched(source, Reference("corp", "{key}", "token")) == "{key}"


async def test_a_command_has_no_shell_no_variable_but_those_named_and_no_other_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CARPAL_CANARY", "seen")
    monkeypatch.setenv("CARPAL_NAMED", "named")
    inherited = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(inherited, True)
    script = (
        "import os, sys; names = sorted(set(os.environ) - {'LC_CTYPE'}); "
        "print(names, sys.argv[1], os.getcwd(), sorted(map(int, os.listdir('/proc/self/fd')))[:4])"
    )
    source = python(script, "$HOME;`id`", environment=["CARPAL_NAMED", "CARPAL_UNSET"])
    said = await fetched(source)
    os.close(inherited)
    assert said == "['CARPAL_NAMED'] $HOME;`id` / [0, 1, 2, 3]", "3 is the listing's own"


async def test_one_end_of_a_line_is_no_part_of_the_value() -> None:
    for end in ("", "\\n", "\\r\\n"):
        assert await fetched(python(f"print('{VALUE}', end='{end}')")) == VALUE


async def test_a_command_that_fails_gives_no_value_and_none_of_its_words() -> None:
    error = await failed(f"import sys; print('{VALUE}'); sys.exit('no: {VALUE}')")
    assert (error.failure, error.detail) == (Failure.FAILED, "it ended by an exit code 1")
    error = await failed("import os; os.kill(os.getpid(), 9)")
    assert (error.failure, error.detail) == (Failure.FAILED, "it ended by a signal 9")


async def test_a_command_that_is_not_there_is_a_failure() -> None:
    with pytest.raises(SourceFailed) as caught:
        await fetched(CommandSource({"argv": ["/no/such/command"]}))
    assert caught.value.failure is Failure.FAILED


async def test_a_command_that_floods_is_ended() -> None:
    began = time.monotonic()
    error = await failed("while True: print('x' * 100_000)")
    assert error.failure is Failure.MALFORMED
    assert time.monotonic() - began < command.SECONDS * SCALE / 2


@pytest.mark.parametrize(
    "script",
    [
        "import time; time.sleep(600)",
        "import os, time; os.close(1); os.close(0); time.sleep(600)",
        "import os, time; print('tok-CANARY-0123', flush=True); os.fork() or time.sleep(600)",
    ],
    ids=["silent", "closes its output", "leaves a child with its output"],
)
async def test_a_command_that_does_not_end_is_ended_with_all_that_it_started(
    script: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "SECONDS", 1.0 * SCALE)
    noted = tmp_path / "group"
    error = await failed(f"import os; open('{noted}', 'w').write(str(os.getpgid(0)));{script}")
    assert error.failure is Failure.TIMEOUT
    group = int(noted.read_text())
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:  # what was killed is reaped by who inherits it
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("something of it lives")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"argv": []},
        {"argv": "/bin/cat"},
        {"argv": ["cat"]},
        {"argv": ["/bin/cat", 1]},
        {"argv": ["/bin/cat"], "environment": "HOME"},
        {"argv": ["/bin/cat"], "shell": True},
    ],
)
def test_settings_that_are_none_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"argv|environment|shell"):
        CommandSource(settings)
