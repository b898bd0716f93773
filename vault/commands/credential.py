"""`carpal vault credential`: put one in, see what there is, replace, try and destroy one.

A secret comes from a file or standard input, never from an argument: those are seen by others.
"""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carpal.errors import invalid, refuse
from carpal.operator.connection import (
    ANSWER_SECONDS,
    Found,
    connect_vault,
    operator_options,
    vault_option,
)
from carpal.status import Reason
from vault.commands.oauth import OPTIONS, consented, oauth_options
from vault.commands.secrets import lies_at, lies_elsewhere, read_file, read_secrets
from vault.hardening import no_core

if TYPE_CHECKING:
    from carpal.v1 import vault_pb2

_VALIDATE_SECONDS = 100.0
_EXIT = {"valid": 0, "invalid": 1, "unknown": 10}

_json_option = click.option("--json", "as_json", is_flag=True, help="One object a line.")
_secret_option = click.option(
    "--secret", "secrets", multiple=True, metavar="NAME=FILE",
    help="A secret's name and the file that has it, - for standard input; repeatable.",
)  # fmt: skip
_from_option = click.option(
    "--from", "source", metavar="SOURCE",
    help="The secret lies in this secret manager, as the vault's own settings name it.",
)  # fmt: skip
_ref_option = click.option(
    "--ref", metavar="PATH#KEY", help="Where it lies there; @VERSION behind it for one version."
)


@click.group("credential")
def credential_command() -> None:
    """Credentials that agents use and nothing can read."""
    no_core()


@credential_command.command()
@click.argument("credential_id", metavar="ID")
@operator_options
@vault_option
@click.option(
    "--kind",
    type=click.Choice(["static_bearer", "mcp_oauth", "agent_identity", "environment_variable"]),
    default="static_bearer",
    show_default=True,
)
@click.option("--mcp-server-url", metavar="URL", help="Of an MCP server: where it is used.")
@click.option("--secret-name", metavar="NAME", help="Of an environment variable: its name.")
@click.option(
    "--host", "hosts", multiple=True, metavar="HOST",
    help="Of an environment variable: a host it may be sent to, *. for those below; repeatable.",
)  # fmt: skip
@click.option(
    "--policy", "policy_file", type=click.Path(path_type=Path), metavar="FILE",
    help="The whole policy as JSON, instead of the options above.",
)  # fmt: skip
@click.option(
    "--user", metavar="ID", help="The end user whose it is: of use to sessions for them alone."
)
@oauth_options
@_secret_option
@_from_option
@_ref_option
@click.option("--in", "vault_id", default="", metavar="NAME", help="Which vault.  [default]")
@click.option("--name", "display_name", default="", help="Shown to people.")
@_json_option
def add(
    found: Found,
    *,
    credential_id: str,
    kind: str,
    mcp_server_url: str | None,
    secret_name: str | None,
    hosts: tuple[str, ...],
    policy_file: Path | None,
    secrets: tuple[str, ...],
    source: str | None,
    ref: str | None,
    vault_id: str,
    display_name: str,
    as_json: bool,
    user: str | None,
    oauth: str | None,
    **consent: Any,
) -> None:
    """Put a credential in. Its secret is read from standard input unless --secret says where.

    One of the kind agent_identity has none: the vault signs a token for each request.

    With --from it stays in the owner's secret manager, and is fetched for each use.

    With --oauth it comes by consent: its tokens go from the authorization server to the vault.
    """
    from carpal.v1 import vault_pb2

    policy: dict[str, Any] = {}
    if mcp_server_url is not None:
        policy["mcp_server_url"] = mcp_server_url
    if secret_name is not None:
        policy["secret_name"] = secret_name
        if hosts:
            policy["networking"] = {"type": "limited", "allowed_hosts": list(hosts)}
    elif hosts:
        raise invalid("--host", "goes with --secret-name")
    policy |= lies_at(kind, source, ref)
    if policy_file is not None and policy:
        raise invalid("--policy", "goes without options that say parts of it")
    given = {name for name in OPTIONS if consent[name]}
    if oauth is not None and (policy or policy_file):
        raise invalid("--oauth", "goes without what says the policy: it comes by consent")
    if oauth is None and given:
        raise invalid(f"--{min(given).replace('_', '-')}", "goes with --oauth")
    if oauth is not None:
        made = consented(oauth, read_secrets(secrets, "") if secrets else {}, consent)
        kind, policy, held = "mcp_oauth", made.policy, made.secrets
    if user is not None:
        if policy_file is not None:
            raise invalid("--user", 'goes without --policy: say "owner" in it')
        policy["owner"] = user
    said = json.dumps(policy).encode() if policy_file is None else read_file(policy_file)
    if oauth is None:
        held = read_secrets(secrets, kind) if secrets or not lies_elsewhere(said) else {}
    request = vault_pb2.CreateCredentialRequest(
        credential_id=credential_id,
        vault_id=vault_id,
        display_name=display_name,
        kind=kind,
        policy=said,
        secrets=held,
    )
    _show([_ask(found, "CreateCredential", request).credential], as_json)


@credential_command.command("list")
@operator_options
@vault_option
@click.option("--in", "vault_id", default="", metavar="NAME", help="Which vault.  [all]")
@_json_option
def list_(found: Found, *, vault_id: str, as_json: bool) -> None:
    """What there is, without secrets."""
    from carpal.v1 import vault_pb2

    request = vault_pb2.ListCredentialsRequest(vault_id=vault_id)
    _show(list(_ask(found, "ListCredentials", request).credentials), as_json)


@credential_command.command()
@click.argument("credential_id", metavar="ID")
@operator_options
@vault_option
@_secret_option
@_from_option
@_ref_option
@_json_option
def rotate(
    found: Found,
    *,
    credential_id: str,
    secrets: tuple[str, ...],
    source: str | None,
    ref: str | None,
    as_json: bool,
) -> None:
    """Put another secret in its place: sessions that run use it from their next request on.

    One that lies in a secret manager is replaced there; --from and --ref say another place.
    """
    from carpal.v1 import vault_pb2

    there = _ask(found, "ListCredentials", vault_pb2.ListCredentialsRequest()).credentials
    before = next((each for each in there if each.credential_id == credential_id), None)
    if before is None:
        raise refuse(Reason.CREDENTIAL_NOT_FOUND, f"there is no credential {credential_id!r}")
    moved = lies_at(before.kind, source, ref)
    if not (moved or secrets) and lies_elsewhere(before.policy):
        raise invalid(
            "ID", "lies in a secret manager: replace it there, and it is used from then on"
        )
    request = vault_pb2.UpdateCredentialRequest(
        credential_id=credential_id,
        expected_generation=before.generation,
        policy=json.dumps(moved).encode() if moved else None,
        secrets={} if moved and not secrets else read_secrets(secrets, before.kind),
    )
    _show([_ask(found, "UpdateCredential", request).credential], as_json)


@credential_command.command()
@click.argument("credential_id", metavar="ID")
@operator_options
@vault_option
@_json_option
def validate(found: Found, *, credential_id: str, as_json: bool) -> int:
    """Try it against its server. Exit code 0 when it is valid, 1 when not, 10 when unknown."""
    from carpal.v1 import vault_pb2

    request = vault_pb2.ValidateCredentialRequest(credential_id=credential_id)
    told = _ask(found, "ValidateCredential", request, _VALIDATE_SECONDS)
    facts = {"verdict": told.verdict, "step": told.step, "detail": told.detail}
    facts["refresh"] = told.refresh
    if as_json:
        click.echo(json.dumps({"credential_id": credential_id, **facts}))
    else:
        why = f" at {told.step}: {told.detail}" if told.step else ""
        refresh = f" (refresh: {told.refresh})" if told.refresh else ""
        click.echo(f"{credential_id}: {told.verdict}{why}{refresh}")
    return _EXIT.get(told.verdict, 1)


@credential_command.command()
@click.argument("credential_id", metavar="ID")
@operator_options
@vault_option
@_json_option
def archive(found: Found, *, credential_id: str, as_json: bool) -> None:
    """Destroy its secret for good, and keep its name."""
    from carpal.v1 import vault_pb2

    request = vault_pb2.ArchiveCredentialRequest(credential_id=credential_id)
    _show([_ask(found, "ArchiveCredential", request).credential], as_json)


def _ask(found: Found, method: str, request: object, seconds: float = ANSWER_SECONDS) -> Any:
    async def ask() -> Any:
        from carpal.client import rpc_errors

        async with connect_vault(found) as stub:
            with rpc_errors(f"vault at {found.vault}"):
                return await getattr(stub, method)(request, timeout=seconds)

    return asyncio.run(ask())


def _show(credentials: "list[vault_pb2.CredentialInfo]", as_json: bool) -> None:
    for each in credentials:
        policy = json.loads(each.policy)
        if as_json:
            facts = {
                "credential_id": each.credential_id,
                "vault_id": each.vault_id,
                "kind": each.kind,
                "name": each.display_name,
                "state": each.state,
                "generation": each.generation,
                "policy": policy,
            }
            click.echo(json.dumps(facts))
            continue
        what = policy.get("mcp_server_url") or policy.get("secret_name")
        whose = f"  of user {policy['owner']}" if "owner" in policy else ""
        click.echo(
            f"{each.vault_id}/{each.credential_id}  {each.kind}  {what}  "
            f"generation {each.generation}  {each.state}{whose}"
        )
