"""`carpal agent`: agents as documents that sessiond keeps, every version of each."""

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click

from carpal.agent import DEFAULT_HARNESS, DEFAULT_MODEL, Agent
from carpal.cli import extra
from carpal.errors import CarpalError, invalid, refuse
from carpal.ids import check_id
from carpal.mistake import Mistake
from carpal.operator import agent_documents as documents
from carpal.operator.agent import checked_agent
from carpal.operator.agent_elsewhere import missing_elsewhere
from carpal.operator.asking import run
from carpal.operator.connection import Found, Operator, operator_options
from carpal.operator.events import printable, rfc3339
from carpal.operator.outcome import DONE
from carpal.operator.screen import notice
from carpal.status import Reason

_VERSION_MAX = 2**32 - 1
_json = click.option("--json", "as_json", is_flag=True, help="One object.")


@click.group()
def agent() -> None:
    """Agents that sessiond keeps by name: make, show and change them."""


@agent.command()
@click.argument("file", metavar="FILE|-")
@_json
@operator_options
def create(*, found: Found, file: str, as_json: bool) -> int:
    """Keep the agent of a YAML FILE (`-` reads it from stdin) under the name that it says."""
    name, data, read = _read(file)

    async def main(operator: Operator) -> int:
        try:
            document = await documents.put(operator, name, data, replaces=0)
        except CarpalError as error:
            if error.reason is not Reason.VERSION_CONFLICT:
                raise
            raise _there_is(name, file) from None
        # The same once more is the first answer, also when it was changed since.
        if (await documents.get(operator, name)).version != document.version:
            raise _there_is(name, file)
        await _warn_of_missing(operator, read, name)
        _say(document, as_json=as_json)
        return DONE

    return run(found, main)


@agent.command()
@click.argument("name")
@click.option(
    "--version", type=click.IntRange(1, _VERSION_MAX), default=None, help="Not the newest one."
)
@_json
@operator_options
def show(*, found: Found, name: str, version: int | None, as_json: bool) -> int:
    """Print agent NAME as the YAML that `create` and `edit` take."""

    async def main(operator: Operator) -> int:
        document = await documents.get(operator, name, version or 0)
        if as_json:
            click.echo(json.dumps({**_row(document), "agent": document.data}))
        else:
            click.echo(_text(document), nl=False)
        return DONE

    return run(found, main)


@agent.command()
@click.option("--json", "as_json", is_flag=True, help="One object a line.")
@operator_options
def ls(*, found: Found, as_json: bool) -> int:
    """List the workspace's agents, each in its newest version, by name."""

    async def main(operator: Operator) -> int:
        none = True
        async for document in documents.every(operator):
            none = False
            row = _row(document)
            click.echo(json.dumps(row) if as_json else _row_text(row))
        if none and not as_json:
            notice("no agents yet: keep one with `carpal agent create FILE`")
        return DONE

    return run(found, main)


@agent.command()
@click.argument("name")
@click.option("--file", metavar="FILE|-", help="Take this YAML, instead of opening $EDITOR.")
@click.option(
    "--replaces", type=click.IntRange(1, _VERSION_MAX), metavar="N",
    help="Refuse unless version N is the newest.",
)  # fmt: skip
@_json
@operator_options
def edit(*, found: Found, name: str, file: str | None, replaces: int | None, as_json: bool) -> int:
    """Write the next version of agent NAME: in $EDITOR, or from a file.

    Sessions that run keep the version they started with.
    """
    if file is not None:
        return run(found, _editing(name, file, replaces, as_json))
    newest = _fetched(found, name)
    with _in_editor(newest) as path:
        if run(found, _editing(name, path, replaces or newest.version, as_json)) != DONE:
            raise click.Abort  # Ctrl-C
    return DONE


def _editing(
    name: str, file: str, replaces: int | None, as_json: bool
) -> Callable[[Operator], Coroutine[Any, Any, int]]:
    """What writes a file's agent as the next version, and warns; the file is read at once."""
    _, data, read = _read(file, name)

    async def main(operator: Operator) -> int:
        document = await _edit(operator, name, data, replaces)
        await _warn_of_missing(operator, read, name)
        _say(document, as_json=as_json)
        return DONE

    return main


async def _edit(
    operator: Operator, name: str, data: bytes, replaces: int | None
) -> documents.Document:
    """Write an agent's next version over version `replaces`, or over whatever is the newest."""
    newest = await documents.get(operator, name)
    if replaces not in (None, newest.version):
        raise _conflict(name, replaces, newest.version)
    if json.loads(data) == newest.data:
        notice(f"agent {name} is as it was")
        return newest
    return await _put(operator, newest, data)


async def _put(operator: Operator, newest: documents.Document, data: bytes) -> documents.Document:
    try:
        return await documents.put(operator, newest.name, data, replaces=newest.version)
    except CarpalError as error:
        if error.reason is not Reason.VERSION_CONFLICT:
            raise
        now = await documents.get(operator, newest.name)
        raise _conflict(newest.name, newest.version, now.version) from None


def _fetched(found: Found, name: str) -> documents.Document:
    """The newest version of an agent."""
    got: list[documents.Document] = []

    async def main(operator: Operator) -> int:
        got.append(await documents.get(operator, name))
        return DONE

    if run(found, main) != DONE:
        raise click.Abort  # Ctrl-C
    return got[0]


@contextmanager
def _in_editor(document: documents.Document) -> Iterator[str]:
    """Have a person edit the agent; the block gets a file of what they wrote.

    It stays if the block fails, so that nothing is lost, and a line says where.
    """
    before = _text(document)
    descriptor, name = tempfile.mkstemp(prefix=f"{document.name}-", suffix=".yaml")
    path = Path(name)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(before)
    done = False
    try:
        _open_editor(name)
        yield name
        done = True
    finally:
        if done or path.read_bytes() == before.encode():
            path.unlink()
        else:
            how = f"`carpal agent edit {document.name} --file {name}`"
            notice(f"what you wrote is in {name}: {how}")


def _open_editor(path: str) -> None:
    """Have a person edit a file; INVALID_FIELD when there is no editor, or it fails."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        ended = subprocess.run([*shlex.split(editor), path], check=False)
    except (OSError, ValueError) as error:
        raise refuse(
            Reason.INVALID_FIELD,
            f"$EDITOR: {editor!r} cannot be started: {error}",
            action="set EDITOR, or give --file FILE",
        ) from None
    if ended.returncode != 0:
        raise invalid("$EDITOR", f"{editor!r} ended with {ended.returncode}; nothing is changed")


def _there_is(name: str, file: str) -> CarpalError:
    return refuse(
        Reason.VERSION_CONFLICT,
        f"there is an agent {name!r} already",
        action=f"change it with `carpal agent edit {name} --file {file}`, or name this one "
        "otherwise",
    )


def _conflict(name: str, version: int | None, newest: int) -> CarpalError:
    return refuse(
        Reason.VERSION_CONFLICT,
        f"agent {name!r} is at version {newest}, not {version}: somebody else changed it",
        action=f"see what it is now with `carpal agent show {name}`, and edit that",
    )


def _read(file: str, name: str = "") -> tuple[str, bytes, Agent]:
    """Name and document of a file's agent, and the agent.

    One that says another name than `name` is refused.
    """

    def check_name(said: dict[str, Any]) -> None:
        if name and said.setdefault("name", name) != name:
            raise Mistake(f"is {said['name']!r}, and the agent to edit is {name!r}", key="name")
        if "name" not in said:
            problem = "is missing: an agent is kept under its name; write `name: fixer`, say"
            raise Mistake(problem, key="name")
        try:
            check_id(said["name"], "name")
        except CarpalError as error:
            problem = error.message.removeprefix("name: ")
            raise Mistake(f"{problem}, and is {said['name']!r}", key="name") from None

    source = documents.source_name(file)
    agent, said = checked_agent(documents.read_text(file), source, check_name)
    _warn(agent.harness)
    return said["name"], json.dumps(said, ensure_ascii=False).encode(), agent


def _warn(harness: str) -> None:
    """Say when a harness is not installed here: it may be where the brains run."""
    if harness not in {each.name for each in entry_points(group="carpal.harnesses")}:
        notice(f"no harness {harness!r} is installed here: the brains that drive it must have it")


async def _warn_of_missing(operator: Operator, read: Agent, name: str) -> None:
    """Say what the agent needs and nobody has now: it may be there when a session starts."""
    for line in await missing_elsewhere(operator, read):
        notice(f"agent {name}: {line}")


def _row(document: documents.Document) -> dict[str, Any]:
    data = document.data
    return {
        "name": document.name,
        "version": document.version,
        "created": rfc3339(document.created),
        "model": data.get("model") or DEFAULT_MODEL,
        "harness": data.get("harness") or DEFAULT_HARNESS,
        "hands": list(data["hands"]) if isinstance(data.get("hands"), dict) else [],
    }


def _row_text(row: dict[str, Any]) -> str:
    name = f"{row['name']:<24}  version {row['version']:>3}  {row['created'][:19]}Z"
    return printable(f"{name}  {row['model']}  {', '.join(row['hands'])}").rstrip()


def _text(document: documents.Document) -> str:
    """The agent's YAML, its version in a remark."""
    with extra("brain"):
        from carpal.yaml_in import write_mapping
    when = rfc3339(document.created)
    return (
        f"# {document.name}, version {document.version} of {when}\n{write_mapping(document.data)}"
    )


def _say(document: documents.Document, *, as_json: bool) -> None:
    row = _row(document)
    click.echo(json.dumps(row) if as_json else f"{row['name']} version {row['version']}")
