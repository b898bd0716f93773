"""`carpal session head|verify`: note where a log stands, and see later that nothing was changed.

A log is read from sessiond or, offline, from an export. It is compared with
heads that somebody kept: one that was noted, one that sessiond signed.
"""

import json
import re
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import click
from cryptography.x509 import InvalidVersion, load_pem_x509_certificates

from carpal.errors import CarpalError, invalid, refuse
from carpal.event_lines import Malformed, loads
from carpal.export import End, head_object, signed_of, signed_text
from carpal.operator.asking import checked, get_session, get_signed, run
from carpal.operator.connection import Found, Operator, lazy_operator_options, operator_options
from carpal.operator.export_file import open_export
from carpal.operator.exporting import check_free, events_up_to
from carpal.operator.findings import Findings
from carpal.operator.outcome import DONE
from carpal.operator.screen import notice
from carpal.status import Reason
from carpal.tls import write_file
from carpal.v1 import types_pb2

_HEAD = re.compile(r"(\d{1,19}):([0-9a-fA-F]{64})", re.ASCII)


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option("--out", type=click.Path(path_type=Path), help="Write it signed by sessiond.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--json", "as_json", is_flag=True, help="One object, with the signed head.")
@operator_options
def head(*, found: Found, session_id: str, out: Path | None, force: bool, as_json: bool) -> int:
    """Print where a log stands, as POSITION:HASH: what `verify` compares it with later."""
    if out is not None and out.exists() and not out.is_file():
        raise invalid("--out", f"{out} is not a file")
    if out is not None and not force:
        check_free(out)

    async def main(operator: Operator) -> int:
        info, signed = await get_signed(operator, session_id)
        shown = {
            "session_id": info.session_id,
            "chain_id": info.chain_id or info.session_id,
            "head": head_object(info.head),
            "signed_head": signed_text(signed),
        }
        if out is not None:
            try:
                write_file(out, json.dumps(shown).encode() + b"\n", mode=0o644)
            except OSError as error:
                raise invalid("--out", f"{out} cannot be written ({error.strerror})") from None
        noted = f"{info.head.position}:{info.head.hash.hex()}"
        click.echo(json.dumps(shown) if as_json else noted)
        return DONE

    return run(found, main)


@click.command()
@click.argument("session_id", metavar="[SESSION]", required=False)
@click.option("--file", help="Verify an export instead; `-` reads it from stdin.")
@click.option("--head", "noted", metavar="POSITION:HASH", help="A head that was noted.")
@click.option("--signed", help="A signed head, as `carpal session head --out` wrote it.")
@click.option(
    "--ca", help="Who may have signed: certificates, PEM; of an export, its own signed head too."
    "  [ca.pem beside the operator's certificate]"
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One object.")
@lazy_operator_options
def verify(
    *,
    found: Callable[[], Found],
    session_id: str | None,
    file: str | None,
    noted: str | None,
    signed: str | None,
    ca: str | None,
    as_json: bool,
) -> int:
    """Check every hash of a log, and that it has the heads that were kept. Exit code 1 if not."""
    if session_id is None and file is None:
        raise click.UsageError("name a SESSION, or an export with --file")
    if session_id is not None and file is not None:
        raise click.UsageError("name a SESSION or an export with --file, not both")
    kept_head = _head_of(noted) if noted is not None else None
    kept_signed = _signed_in(signed) if signed is not None else None
    authority = _authority_in(ca) if ca is not None else b""

    def expect(findings: Findings) -> None:
        if kept_head is not None:
            findings.expect(kept_head)
        if kept_signed is not None:
            findings.expect_signed(kept_signed, authority or _own_authority(found))

    def say(findings: Findings) -> int:
        click.echo(json.dumps(findings.report()) if as_json else findings.text())
        if not findings.problem and not findings.compared:
            notice(
                "it was compared with no head that was kept before: whoever could write "
                "all of it could have made it anew (--head, --signed)"
            )
        return findings.exit_code

    if file is not None:
        return say(_of_file(file, expect, authority))
    session = checked(session_id or "")

    async def main(operator: Operator) -> int:
        info = await get_session(operator, session)
        findings = Findings(info)
        with findings.looking():
            expect(findings)
            async with aclosing(events_up_to(operator, session, info.head.position)) as events:
                async for event in events:
                    findings.verified.take(event)
            findings.verified.end(info.head)
        return say(findings)

    return run(found(), main)


def _of_file(path: str, expect: Callable[[Findings], None], authority: bytes) -> Findings:
    """The findings about an export; with `authority`, PEM, about its signed head too."""
    with open_export(path) as export:
        entries = export.entries()
        info = next(entries)
        if not isinstance(info, types_pb2.SessionInfo):
            raise AssertionError("an export begins with its session")
        findings = Findings(info)
        with findings.looking():
            expect(findings)
            for entry in entries:
                if isinstance(entry, types_pb2.Event):
                    findings.verified.take(entry)
                elif isinstance(entry, End):
                    findings.verified.end(entry.head)
                    if authority:
                        findings.end_signed(entry.head, entry.signed, authority)
    return findings


def _own_authority(found: Callable[[], Found]) -> bytes:
    try:
        return found().files.ca.read_bytes()
    except CarpalError as error:
        raise refuse(
            error.reason, error.message, action="say with --ca FILE who may have signed"
        ) from None


def _head_of(text: str) -> types_pb2.ChainHead:
    match = _HEAD.fullmatch(text)
    if match is None:
        raise invalid("--head", f"{text!r} is not POSITION:HASH, as `carpal session head` prints")
    return types_pb2.ChainHead(position=int(match[1]), hash=bytes.fromhex(match[2]))


def _signed_in(path: str) -> types_pb2.SignedBytes:
    try:
        return signed_of(loads(_read("--signed", path)), "signed_head")
    except Malformed as problem:
        raise refuse(
            Reason.INVALID_FIELD,
            f"{path} {problem}",
            action="give a file that `carpal session head --out` wrote",
            field="--signed",
        ) from None


def _authority_in(path: str) -> bytes:
    pem = _read("--ca", path)
    try:
        load_pem_x509_certificates(pem)
    except (ValueError, InvalidVersion):
        raise invalid("--ca", f"{path} holds no PEM certificate") from None
    return pem


def _read(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise invalid(option, f"{path} cannot be read ({error.strerror})") from None


COMMANDS = (head, verify)
