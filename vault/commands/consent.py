"""`carpal session consent`: the session's user consents, and what waited for it goes on.

The credential is made for the user that the session was made for, by the word of an operator in
its first event. What a brain wrote says which server it is, and nothing more: the person sees it.
"""

import json
from typing import TYPE_CHECKING, Any

import click

from carpal.client import rpc_errors
from carpal.errors import refuse
from carpal.ids import new_id
from carpal.operator.asking import events_of, get_session, run
from carpal.operator.connection import (
    ANSWER_SECONDS,
    Found,
    Operator,
    connect_vault,
    operator_options,
    vault_option,
)
from carpal.operator.deciding import newest_calls
from carpal.operator.events import data_of, printable
from carpal.operator.inbox import send_consent
from carpal.operator.outcome import DONE
from carpal.operator.waiting import Asked
from carpal.sources import is_of_role
from carpal.status import Reason
from vault.commands.oauth import asked, consent_options
from vault.commands.secrets import read_secrets

if TYPE_CHECKING:
    from vault.oauth.enrol import Enrolled


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.argument("consent_ids", metavar="[CONSENT]…", nargs=-1)
@consent_options
@click.option(
    "--secret", "secrets", multiple=True, metavar="NAME=FILE",
    help="client_secret, of a client registered by hand, and the file that has it.",
)  # fmt: skip
@operator_options
@vault_option
def consent(
    *,
    found: Found,
    session_id: str,
    consent_ids: tuple[str, ...],
    secrets: tuple[str, ...],
    **options: Any,
) -> int:
    """Have the session's user consent to what waits for it: those named, else all.

    The tokens go into the vault as that user's alone, and the session goes on.
    """
    given = read_secrets(secrets, "") if secrets else {}

    async def main(operator: Operator) -> int:
        calls = await newest_calls(operator, await get_session(operator, session_id))
        waits = [each for each in calls.named(consent_ids, session_id) if each.is_consent]
        if not waits:
            raise refuse(Reason.CALL_NOT_FOUND, f"nothing waits for consent in {session_id}")
        user = await _user(operator, session_id)
        for each in waits:
            click.echo(f"{user}: {printable(each.input['url'])}", err=True)
            await _put(found, user, each, await asked(each.input["url"], given, options))
            await send_consent(operator, session_id, each.call_id, given=True)
            click.echo(f"given {each.call_id}  {each.text()}")
        return DONE

    return run(found, main)


async def _user(operator: Operator, session_id: str) -> str:
    async for event in events_of(operator, session_id, "session.updated"):
        user = data_of(event).get("user")
        if event.position == 1 and is_of_role(event.source, "operator") and isinstance(user, str):
            return user
        break
    raise refuse(
        Reason.CONFIG_INVALID,
        f"no operator said whom {session_id} is for",
        action="start one with `carpal run --user ID`",
    )


async def _put(found: Found, user: str, wanted: Asked, made: "Enrolled") -> None:
    """Put it into the vault, in place of what the user had for the server."""
    from carpal.v1 import vault_pb2 as pb

    vault_id = wanted.input["vault_id"]
    async with connect_vault(found) as stub:
        with rpc_errors(f"vault at {found.vault}"):
            listed = await stub.ListCredentials(
                pb.ListCredentialsRequest(vault_id=vault_id), timeout=ANSWER_SECONDS
            )
            for each in listed.credentials:
                if not each.HasField("archived") and _is(each.policy, user, wanted.input["url"]):
                    await stub.ArchiveCredential(
                        pb.ArchiveCredentialRequest(credential_id=each.credential_id),
                        timeout=ANSWER_SECONDS,
                    )
            request = pb.CreateCredentialRequest(
                credential_id=new_id("vcrd"),
                vault_id=vault_id,
                kind="mcp_oauth",
                policy=json.dumps({**made.policy, "owner": user}).encode(),
                secrets=made.secrets,
            )
            await stub.CreateCredential(request, timeout=ANSWER_SECONDS)


def _is(policy: bytes, user: str, url: str) -> bool:
    from vault.credentials.rules import url_form

    told = json.loads(policy)
    return (told.get("owner"), told.get("mcp_server_url")) == (user, url_form(url, "url"))
