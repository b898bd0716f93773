"""`carpal session retention`: how long a workspace keeps its sessions, and whether it holds them.

The rules are the workspace's document `retention/default`.
"""

import json
from typing import Any

import click

from carpal.client import rpc_errors
from carpal.errors import CarpalError, invalid
from carpal.operator.asking import run
from carpal.operator.changing import change
from carpal.operator.connection import ANSWER_SECONDS, Found, Operator, operator_options
from carpal.operator.outcome import DONE
from carpal.operator.screen import notice
from carpal.status import Reason
from carpal.v1 import session_pb2

_KIND, _NAME = "retention", "default"
_MOST_DAYS = 36_500
_TRIES = 5
"""How often others may write between our reading and our writing."""


@click.command()
@click.option(
    "--max-age-days", "age", metavar="N|none",
    help="Delete sessions N days after their log last grew; `none`: never.",
)  # fmt: skip
@click.option(
    "--hold/--no-hold", default=None,
    help="Keep every session from being deleted, by rule or by hand; or no longer.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One object.")
@operator_options
def retention(*, found: Found, age: str | None, hold: bool | None, as_json: bool) -> int:
    """Show how long the workspace keeps its sessions, or say it."""
    wanted: dict[str, Any] = {}
    if age is not None:
        wanted["maximum_age_days"] = _days(age)
    if hold is not None:
        wanted["hold"] = hold

    async def main(operator: Operator) -> int:
        rules = await (_change(operator, wanted) if wanted else _read(operator))
        days, held = rules.get("maximum_age_days"), bool(rules.get("hold"))
        shown = {"maximum_age_days": days, "hold": held}
        click.echo(json.dumps(shown) if as_json else _text(days, held))
        if wanted and days is not None and not held:
            notice("those that are older go now, for good")
        return DONE

    return run(found, main)


def _days(age: str) -> int | None:
    if age == "none":
        return None
    if not (age.isascii() and age.isdecimal() and 1 <= int(age[:9]) <= _MOST_DAYS):
        raise invalid("--max-age-days", f"{age!r} is neither 1 to {_MOST_DAYS} nor none")
    return int(age)


def _text(days: int | None, held: bool) -> str:
    if days is None:
        lines = ["sessions stay until somebody deletes them"]
    else:
        lines = [f"sessions are deleted {days} days after their log last grew"]
    if held:
        lines.append("all are held: until --no-hold none is deleted, by rule or by hand")
    return "\n".join(lines)


async def _read(operator: Operator) -> dict[str, Any]:
    return (await _newest(operator))[1]


async def _newest(operator: Operator) -> tuple[int, dict[str, Any]]:
    """The rules' version and the rules; 0 and none when none were ever written."""
    try:
        with rpc_errors(operator.sessiond):
            answer = await operator.sessions.GetDocument(
                session_pb2.GetDocumentRequest(kind=_KIND, name=_NAME), timeout=ANSWER_SECONDS
            )
    except CarpalError as error:
        if error.reason is not Reason.DOCUMENT_NOT_FOUND:
            raise
        return 0, {}
    return answer.document.version, json.loads(answer.document.data)


async def _change(operator: Operator, wanted: dict[str, Any]) -> dict[str, Any]:
    """Write the rules with what is `wanted` of them, over whatever they are by then."""
    tries = 0
    while True:
        version, before = await _newest(operator)
        rules = {key: value for key, value in {**before, **wanted}.items() if value is not None}
        if rules == before:
            return rules
        request = session_pb2.PutDocumentRequest(
            kind=_KIND, name=_NAME, expected_version=version, data=json.dumps(rules).encode()
        )

        def put(timeout: float, request: session_pb2.PutDocumentRequest = request) -> Any:
            return operator.sessions.PutDocument(request, timeout=timeout)

        tries += 1
        try:
            await change(
                operator,
                put,
                look="it may have been accepted: look with `carpal session retention`",
            )
        except CarpalError as error:
            if error.reason is not Reason.VERSION_CONFLICT or tries == _TRIES:
                raise
        else:
            return rules
