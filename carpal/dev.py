"""`carpal dev`: every process on this machine's loopback, over real mutual TLS.

They are the real processes, as children. One that dies later is said and the
rest goes on: killing a brain is a thing to try. Only the model may be a
stand-in, and then it says so.
"""

import asyncio
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from carpal import children, config, dev_policy, dev_sandbox, process
from carpal.children import Child
from carpal.dev_state import HOST, Kept, end_supervisors, only_one
from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from carpal.tls import IdentityFiles, private_folder, write_file

if TYPE_CHECKING:
    from carpal.proof import Token

DAEMON = "dev"
OPERATOR = "operator"
START_SECONDS = 60.0
"""How long everything may take to serve; usually it is under 5."""
HANDS_SECONDS = 30.0
"""How long the hands may take to end once their daemon has; then what runs of them is killed."""
FRESH = timedelta(hours=12)
"""An identity with less left than half its life is issued anew."""
TOKEN_LIFE = timedelta(minutes=5)


@click.command()
@click.option("--state-dir", type=click.Path(path_type=Path, file_okay=False), help="State folder.")
@click.option("--brains", type=click.IntRange(1, 16), default=1, show_default=True)
@click.option(
    "--script", "scripts", multiple=True, metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True),
    help="A script the practice model plays; it is then used also when a key is set.",
)  # fmt: skip
@click.option(
    "--config", "brain_config", metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True),
    help="A brain.toml for its brains: which models they ask.",
)  # fmt: skip
@click.option(
    "--daemon-config", metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True),
    help="A hand.toml for its daemon: [sockets] names hand servers of your own.",
)  # fmt: skip
@click.option("--lease-term", type=float, metavar="SECONDS", help="Term of the brains' leases.")
@click.option(
    "--ready-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Written once everything serves, as JSON; removed at the end.",
)  # fmt: skip
def dev(
    *,
    state_dir: Path | None,
    brains: int,
    scripts: tuple[Path, ...],
    brain_config: Path | None,
    daemon_config: Path | None,
    lease_term: float | None,
    ready_file: Path | None,
) -> int:
    """Run all processes on loopback, and lend hands of this machine, until Ctrl-C.

    Without ANTHROPIC_API_KEY, and without `--config`, the model is the practice model, which is
    not one.
    """
    key = os.environ.get("ANTHROPIC_API_KEY")
    named = state_dir is not None or "CARPAL_STATE" in os.environ
    state = config.state_dir(state_dir)
    state = (state if named else state / "dev").resolve()
    options = Options(
        brains=tuple(f"brain-{number}" for number in range(1, brains + 1)),
        practice=bool(scripts) or not (key or brain_config),
        scripts=scripts,
        brain_config=brain_config,
        daemon_config=daemon_config,
        lease_term=lease_term,
        ready_file=ready_file,
        named=named,
    )
    if process.run(Dev(state, options).main):  # by a second Ctrl-C: what was left has been killed
        click.echo("carpal: ended at once", err=True)
    return 0


@dataclass(frozen=True)
class Options:
    """What the flags say."""

    brains: tuple[str, ...]
    practice: bool
    scripts: tuple[Path, ...] = ()
    brain_config: Path | None = None
    """Settings of the brains."""
    daemon_config: Path | None = None
    """Those of the daemon."""
    lease_term: float | None = None
    ready_file: Path | None = None
    named: bool = False
    """Whether the state folder was chosen, so that other commands must be told of it."""


@dataclass
class Dev:
    """All processes of one state folder."""

    state: Path
    options: Options
    _children: list[Child] = field(default_factory=list)
    _ending: bool = False
    _no_sandbox: str = ""

    async def main(self, stop: asyncio.Event) -> None:
        """Start everything, say so, and end everything when told to stop."""
        began = time.monotonic()
        with only_one(self.state):
            kept = Kept.load(self.state)
            if left := await kept.end_leftovers():
                click.echo(f"carpal: ended {left} processes of a run that was killed", err=True)
            self._forget_ready_file()
            try:
                async with asyncio.TaskGroup() as group:
                    starting = group.create_task(self._start(kept))
                    await process.until_stopped(stop, starting)
                    starting.cancel()
                if not stop.is_set():
                    self._say_up(kept, time.monotonic() - began)
                    await self._mourn_until(stop)
            finally:
                await self._end(kept)
            click.echo(f"stopped; state kept in {self.state}")

    async def _start(self, kept: Kept) -> None:
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._start_all(kept)
        except TimeoutError:
            raise refuse(
                Reason.INTERNAL,
                f"not everything served within {START_SECONDS:.0f} s",
                action=f"read the logs in {self.state / 'logs'}",
            ) from None

    async def _start_all(self, kept: Kept) -> None:
        listeners = ["sessiond", "vault", "vault-mcp", *self.options.brains]
        listeners += [f"{name}-enroll" for name in self.options.brains]
        listeners += ["practice"] if self.options.practice else []
        kept.choose_ports(listeners)
        private_folder(self.state / "logs")
        at = {name: f"{HOST}:{port}" for name, port in kept.ports.items()}
        # A brain loads for seconds, so it starts first; its identity is made meanwhile.
        brains = [await self._brain(name, at) for name in self.options.brains]
        kept.note(self._children)
        kept.save(self.state)
        await self._identities()
        for brain in brains:
            brain.release(self.options.brain_config)
        at_vault = ("--listen", at["vault"], "--mcp-listen", at["vault-mcp"])
        await self._child("vault", "vault", "run", *at_vault)
        served = ("--listen", at["sessiond"], "--vault", at["vault"])
        await self._child("sessiond", "sessiond", "run", *served)
        # Its token says when and where to dial: without one it would knock before a brain opens.
        self._no_sandbox = await dev_sandbox.none_because(os.environ)
        off = {"CARPAL_SANDBOX": "off"} if self._no_sandbox else {}
        settings = self.options.daemon_config
        daemon = await self._child(
            *("daemon", "hand", "run", "--token-file", "-"),
            *(() if settings is None else ("--config", str(settings))),
            stdin=True,
            # It ends its hands itself, so nothing is won by waiting for their calls.
            environ={
                **_without_keys(),
                **off,
                **dev_policy.allowing(self.state, os.environ, settings=settings),
                "CARPAL_STOP_WAIT": "0",
            },
        )
        if self.options.practice:
            await self._practice(at["practice"])
        kept.note(self._children)
        kept.save(self.state)
        self._write_operator(at)
        async with asyncio.TaskGroup() as group:
            ready = {child.name: group.create_task(child.ready()) for child in self._children}
            await ready["vault"]
            token = await self._token(at)
            await ready[self.options.brains[0]]
            await _give_token(daemon, token)
        self._write_ready_file(at)

    async def _identities(self) -> None:
        """Make the trust domain the first time; later issue anew what is old or missing."""
        vault = self.state / "vault"
        if (vault / "ca.key").exists():  # from before there was a seal
            await self._command("vault", "migrate")
        if not (vault / "ca.pem").exists() or not (vault / "vault.db").exists():
            named = [flag for name in self.options.brains for flag in ("--brain", name)]
            await self._command("vault", "init", "--operator", OPERATOR, *named)
            return
        holders = [("vault", "vault"), ("sessiond", "sessiond"), ("operator", OPERATOR)]
        holders += [("brain", name) for name in self.options.brains]
        stale = []
        for role, name in holders:
            folder = self.state / role / name if role == "brain" else self.state / role
            if not _is_fresh(IdentityFiles(folder / "identity")):
                stale += [role, name]
        if stale:
            await self._command("vault", "issue", *stale)

    async def _practice(self, listen: str) -> None:
        flags = [flag for path in self.options.scripts for flag in ("--script", str(path))]
        await self._child("practice", "practice", "serve", "--listen", listen, *flags, state=False)

    async def _brain(self, name: str, at: Mapping[str, str]) -> Child:
        # Also ANTHROPIC_FOUNDRY_API_KEY and its like; one that is empty is none, to whoever set it.
        set_here = {key: value for key, value in os.environ.items() if value}
        environ = {**_without_keys(), **set_here}
        if self.options.practice:
            environ.pop("ANTHROPIC_AUTH_TOKEN", None)
            environ["ANTHROPIC_BASE_URL"] = f"http://{at['practice']}"
            environ["ANTHROPIC_API_KEY"] = "practice"
        term = self.options.lease_term
        return await self._child(
            name, "brain", "run", "--name", name,
            "--listen", at[name], "--enroll-listen", at[f"{name}-enroll"],
            "--sessiond", at["sessiond"], "--vault", at["vault"],
            "--vault-mcp", at["vault-mcp"],
            *(() if term is None else ("--lease-term", str(term))),
            environ=environ, held=True,
        )  # fmt: skip

    async def _token(self, at: Mapping[str, str]) -> "Token":
        # Late, while the children load: these load gRPC.
        from carpal.operator.connection import find
        from carpal.operator.fleet import make_token

        found = find(state=self.state, environ={})
        enroll = at[f"{self.options.brains[0]}-enroll"]
        return await make_token(found, name=DAEMON, pool="", ttl=TOKEN_LIFE, enroll=enroll)

    async def _child(
        self,
        name: str,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        stdin: bool = False,
        held: bool = False,
        state: bool = True,
    ) -> Child:
        child = await children.start(
            name,
            [*arguments, *(("--state-dir", str(self.state)) if state else ())],
            log=self.state / "logs" / f"{name}.log",
            environ=_without_keys() if environ is None else environ,
            stdin=stdin,
            held=held,
        )
        self._children.append(child)
        return child

    async def _command(
        self, *arguments: str, environ: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        command = [*arguments, "--state-dir", str(self.state)]
        await children.run(command, environ={**_without_keys(), **environ})

    async def _mourn_until(self, stop: asyncio.Event) -> None:
        """Say each death in one line, until told to stop."""

        async def mourn(child: Child) -> None:
            how = await child.ended()
            if not self._ending:
                click.echo(f"carpal: {child.name} {how}; the rest goes on", err=True)

        async with asyncio.TaskGroup() as group:
            mourning = [group.create_task(mourn(child)) for child in self._children]
            await stop.wait()
            self._ending = True
            for task in mourning:
                task.cancel()

    async def _end(self, kept: Kept) -> None:
        """End what runs: the daemon and its hands, the brains, then what they need."""
        self._ending = True
        self._forget_ready_file()
        first = [child for child in self._children if child.name == "daemon"]
        brains = [child for child in self._children if child.name in self.options.brains]
        try:
            await children.end(first)
            await self._end_hands()
            await end_supervisors(self.state)
            await children.end(brains)
            await children.end(self._children)
        finally:  # also when a second Ctrl-C cut the above short
            for child in self._children:
                if child.is_alive():
                    child.process.kill()
        kept.processes = []
        kept.save(self.state)

    async def _end_hands(self) -> None:
        """Have each hand's own type end it: a container is more than its processes."""
        folder = self.state / "hand" / "hands"
        if not folder.is_dir() or not any(folder.iterdir()):
            return
        settings = self.options.daemon_config
        try:
            async with asyncio.timeout(HANDS_SECONDS):
                await self._command(
                    *("hand", "stop", "--all"),
                    *(() if settings is None else ("--config", str(settings))),
                    environ={"CARPAL_SANDBOX": "off"} if self._no_sandbox else {},
                )
        except (CarpalError, TimeoutError) as error:
            why = str(error) or f"not within {HANDS_SECONDS:.0f} s"
            click.echo(f"carpal: not every hand was ended by its type: {why}", err=True)

    def _write_operator(self, at: Mapping[str, str]) -> None:
        text = f'sessiond = "{at["sessiond"]}"\nvault = "{at["vault"]}"\n'
        write_file(self.state / "operator" / "operator.toml", text.encode())

    def _write_ready_file(self, at: Mapping[str, str]) -> None:
        if self.options.ready_file is None:
            return
        pids = {child.name: child.pid for child in self._children}
        facts = {
            "state_dir": str(self.state),
            "sessiond": at["sessiond"],
            "vault": at["vault"],
            "brains": [
                {"name": name, "address": at[name], "pid": pids[name]}
                for name in self.options.brains
            ],
            "daemon": {"name": DAEMON, "pid": pids["daemon"]},
            "practice": f"http://{at['practice']}" if self.options.practice else None,
            "pids": pids,
        }
        write_file(self.options.ready_file, json.dumps(facts).encode() + b"\n")

    def _forget_ready_file(self) -> None:
        if self.options.ready_file is not None:
            self.options.ready_file.unlink(missing_ok=True)

    def _say_up(self, kept: Kept, seconds: float) -> None:
        at = {name: f"{HOST}:{port}" for name, port in kept.ports.items()}
        model = "Claude, through the anthropic package"
        if self.options.brain_config is not None:
            model = f"as {self.options.brain_config} says"
        if self.options.practice:
            model = (
                f"the practice model at http://{at['practice']}. It is not a model: it plays\n"
                '             scripts, and runs each line of a message that starts with "$ "'
            )
        lines = [
            f"up in {seconds:.1f} s, on this machine only, over mutual TLS:",
            f"  sessiond   {at['sessiond']}",
            f"  vault      {at['vault']}",
            *(
                f"  {name:<10} {at[name]}, enrolment at {at[f'{name}-enroll']}"
                for name in self.options.brains
            ),
            f"  daemon     {DAEMON}, which lends hands of this machine",
            *(
                [f"             as root, without a sandbox: {why}"]
                if (why := self._no_sandbox)
                else []
            ),
            f"  model      {model}",
            f"state: {self.state}; logs: {self.state / 'logs'}",
            "try, in another terminal:",
            *([f"  export CARPAL_STATE={self.state}"] if self.options.named else []),
            "  carpal run '$ echo hello from a hand'",
            "  carpal fleet ls",
            "Ctrl-C ends it all, hands too.",
        ]
        click.echo("\n".join(lines))


async def _give_token(daemon: Child, token: "Token") -> None:
    pipe = daemon.process.stdin
    if pipe is None:
        raise RuntimeError("the daemon was started without a pipe for its token")
    if pipe.is_closing():
        return  # it died; its ready pipe says so, with its last words
    try:
        pipe.write(token.text().encode() + b"\n")
        await pipe.drain()
    except ConnectionError:
        return
    finally:
        pipe.close()


def _without_keys() -> dict[str, str]:
    """Our environment without what only a brain may have: hands least of all."""
    return {key: value for key, value in os.environ.items() if not key.startswith("ANTHROPIC_")}


def _is_fresh(files: IdentityFiles) -> bool:
    """Whether an identity is there, and good for at least `FRESH` more."""
    if not files.exists():
        return False
    try:
        return files.load_valid().identity.not_after - datetime.now(UTC) > FRESH
    except CarpalError:
        return False  # damaged or expired: issued anew
