"""`carpal vault audit`: what the vault did, and whether that is still as it was written."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carpal.cli import extra
from carpal.operator.connection import (
    ANSWER_SECONDS,
    Found,
    connect_vault,
    operator_options,
    vault_option,
)
from vault.commands.options import opens_seal, vault_files

if TYPE_CHECKING:
    from carpal.v1 import vault_pb2

_PAGE = 1_000


@click.group("audit")
def audit_command() -> None:
    """The audit: a line before each thing that the vault does, and one of how it went."""


@audit_command.command()
@operator_options
@vault_option
@click.option("-n", "count", type=click.IntRange(1), default=20, show_default=True)
@click.option("--after", type=click.IntRange(0), help="From the line after this one on.")
@click.option("--json", "as_json", is_flag=True, help="The lines as they are.")
def show(found: Found, *, count: int, after: int | None, as_json: bool) -> None:
    """The last lines, asked of the vault that runs."""
    for entry in asyncio.run(_read(found, count, after)):
        line = entry.detail.decode()
        click.echo(line if as_json else _words(json.loads(line)))


@audit_command.command()
@opens_seal
@click.option(
    "--key",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The audit's first key, which `init --audit-key-out` wrote: all marks are checked then.",
)
@click.option(
    "--head", metavar="NUMBER:HASH", help="A head that you noted elsewhere; see `vault status`."
)
@click.option("--json", "as_json", is_flag=True, help="One object.")
def verify(
    *,
    state_dir: Path | None,
    passphrase_file: Path | None,
    seal_fd: int | None,
    key: Path | None,
    head: str | None,
    as_json: bool,
) -> int:
    """Check every line, on the vault's machine, also while it runs. Needs no key of the seal."""
    with extra("vault"):
        from contextlib import closing

        from vault.audit.chain import Marks
        from vault.audit.opening import AuditReader
        from vault.handed_in import read_key
        from vault.seal.kek import check_kek

    files = vault_files(state_dir, passphrase_file, seal_fd)
    files.check_made()
    marks = None if key is None else Marks(0, check_kek(read_key(key), str(key)))
    heads = () if head is None else (("--head", _head(head)),)
    with closing(AuditReader(files.audit)) as reader:
        verdict = reader.verify(marks, heads)
    facts = {
        "ok": verdict.ok,
        "lines": verdict.lines,
        "marked": verdict.marked,
        "head": f"{verdict.head.number}:{verdict.head.hash}",
        "problems": [
            {"number": each.number, "where": each.where, "what": each.what}
            for each in verdict.problems
        ],
    }
    if as_json:
        click.echo(json.dumps(facts))
        return 0 if verdict.ok else 1
    for each in verdict.noted:
        click.echo(each)
    for problem in verdict.problems:
        click.echo(f"line {problem.number}: {problem.where} {problem.what}")
    marked = f", {verdict.marked} of them with their marks" if marks else ", without their marks"
    wrong = "" if verdict.ok else f"; {len(verdict.problems)} things are wrong"
    click.echo(f"{verdict.lines} lines{marked}{wrong}; head {facts['head']}")
    return 0 if verdict.ok else 1


async def _read(found: Found, count: int, after: int | None) -> "list[vault_pb2.AuditEntry]":
    from carpal.client import rpc_errors
    from carpal.v1 import vault_pb2

    entries: list[vault_pb2.AuditEntry] = []
    async with connect_vault(found) as stub:
        with rpc_errors(f"vault at {found.vault}"):
            if after is None:
                first = vault_pb2.ReadAuditRequest(limit=1)
                answer = await stub.ReadAudit(first, timeout=ANSWER_SECONDS)
                after = max(0, answer.head.position - count)
            while len(entries) < count:
                limit = min(_PAGE, count - len(entries))
                request = vault_pb2.ReadAuditRequest(after=after, limit=limit)
                answer = await stub.ReadAudit(request, timeout=ANSWER_SECONDS)
                if not answer.entries:
                    break
                entries += answer.entries
                after = answer.entries[-1].sequence
    return entries


def _words(said: dict[str, Any]) -> str:
    left_out = {"n", "time", "what", "action", "key", "mac", "hash"}
    facts = " ".join(f"{name}={value}" for name, value in said.items() if name not in left_out)
    what = f"{said['what']} {said.get('action', '')}".strip()
    return f"{said['n']:>6}  {said['time']}  {what}  {facts}"


def _head(text: str) -> Any:
    from carpal.audit_chain import Head
    from carpal.errors import invalid

    number, _, digest = text.partition(":")
    if not number.isdecimal() or len(digest) != 64:
        raise invalid("--head", "is NUMBER:HASH, as `carpal vault status` prints it")
    return Head(int(number), digest)
