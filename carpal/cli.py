"""The `carpal` command: finds subcommands by entry point, says errors in one line.

Exit codes: 0 done, 1 failed, 2 bad input or configuration, 3 unreachable,
4 denied, 5 not found, 10 a person must act, 11 budget reached, 78 revoked,
130 interrupted.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from carpal import __version__, extras
from carpal.cli_parts import PartsGroup
from carpal.errors import CarpalError, refuse
from carpal.process import only_error
from carpal.status import Reason

INTERRUPTED = 130
_SUMMARIES = {
    "agent": "Agents: named, versioned documents.",
    "brain": "Run a brain.",
    "dev": "Run all processes on loopback, with a process hand.",
    "fleet": "Daemons: list them, let them in, drain, quarantine, revoke them.",
    "hand": "The hand daemon on this machine.",
    "practice": "A local server that speaks the Messages API and is not a model.",
    "proto": "Write the contract's .proto files.",
    "run": "Give an agent a task and follow it to the end.",
    "session": "Read, follow, steer and keep sessions.",
    "sessiond": "Run the session service.",
    "vault": "The vault: make it, run it.",
}
"""Help lines, so that `carpal --help` imports no part."""


class _Commands(PartsGroup):
    """Every command is a part's."""

    entry_group = "carpal.commands"
    summaries = _SUMMARIES

    def list_commands(self, ctx: click.Context) -> list[str]:
        found = super().list_commands(ctx)
        if not found:
            raise refuse(
                Reason.CONFIG_INVALID,
                "carpal is not installed, so it has no commands",
                action="run `pip install --editable .` in the checkout, or scripts/setup",
            )
        return found

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        self.list_commands(ctx)
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="carpal")
def carpal() -> None:
    """Long-lived agents as a session, a brain and hands that fail apart."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around the import of a part that an extra installs: a missing one says which."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in {"carpal", "brain", "hands", "sessiond", "vault"}:
            raise  # our own bug, not a missing extra
        raise refuse(
            Reason.EXTRA_MISSING,
            f"the package {error.name!r} is not installed",
            action=extras.how(name),
        ) from None


def main() -> NoReturn:
    """Run the command line and exit; no traceback reaches a user.

    `CARPAL_DEBUG=1` shows the traceback of an unexpected error.
    """
    code = 0
    try:
        result = carpal.main(standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        code = 2
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader left (`carpal session tail | head`): nothing to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as raised:  # noqa: BLE001 - the top of the program
        code = _explain(raised)
    sys.exit(code)


def _explain(raised: Exception) -> int:
    error = only_error(raised)
    if isinstance(error, ImportError):
        error = _library_missing(error)
    if isinstance(error, CarpalError):
        click.echo(f"carpal: {error}", err=True)
        return error.exit_code
    if os.environ.get("CARPAL_DEBUG"):
        logging.getLogger(__name__).error("unexpected", exc_info=error)
    click.echo(
        f"carpal: unexpected {type(error).__name__}: {error}: "
        "this is a bug; run again with CARPAL_DEBUG=1 and report what it prints",
        err=True,
    )
    return 1


def _library_missing(error: ImportError) -> Exception:
    """What is to be said where a bare system lacks what a package's compiled part needs."""
    library, found, _ = str(error).partition(": cannot open shared object file")
    if not found:
        return error
    package = {"libstdc++.so.6": "libstdc++6"}.get(library)
    install = f"apt-get install {package}" if package else "install the package that holds it"
    return refuse(Reason.EXTRA_MISSING, f"this system has no library {library}", action=install)
