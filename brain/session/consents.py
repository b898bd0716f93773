"""What of a session waits for its end user's consent: credentials that are missed. Pure.

The vault says of a server that is used in a user's name that this user has no good credential for
it; `session.consent_required` says so in the log. It waits for a `user.consent`: that there is one
now, or that there will be none. Whatever waits is asked of the vault again, and by the same id.
"""

from dataclasses import dataclass
from typing import Any

from brain.permissions import Decision

Json = dict[str, Any]

REQUIRED = "session.consent_required"


@dataclass
class Consent:
    """One that is, or was, waited for; its id is its event's id."""

    consent_id: str
    position: int
    server: str
    """The MCP server's name."""
    call_id: str = ""
    """The call that it was missed for; empty when it was for the server's tools."""
    decision: Decision | None = None


def required(server: str, url: str, user: str, vaults: list[str], call_id: str = "") -> Json:
    """Data of the event that says that it is waited for."""
    data: Json = {"mcp_server_name": server, "url": url, "user": user}
    if vaults:
        data["vault_id"] = vaults[0]
    return data | ({"tool_use_id": call_id} if call_id else {})


def read(consent_id: str, position: int, data: Json) -> Consent:
    """Of such an event; KeyError when it is none."""
    call_id = str(data.get("tool_use_id") or "")
    return Consent(consent_id, position, str(data["mcp_server_name"]), call_id)


def read_word(data: Json, position: int) -> Decision:
    """What a `user.consent` says; ValueError or KeyError when it is none."""
    result, message = data["result"], data.get("message")
    if result not in ("given", "denied"):
        raise ValueError("the result is neither given nor denied")
    if not isinstance(message, str | None):
        raise ValueError("the message is no text")
    return Decision(position, result == "given", (message or "")[:10_000])


def moot(consent: Consent | None, *, by_person: bool) -> str:
    """Why a word on consent decides nothing, to be told; empty when it counts."""
    if not by_person:
        return "no operator said it, and only a person's word counts"
    if consent is None:
        return "no consent of that id is waited for"
    return "" if consent.decision is None else "it was decided before"


def denied(server: str, message: str) -> str:
    """That there will be none, as the model is told of a call, or of a server's tools."""
    said = f"the user did not consent to the use of the MCP server {server!r}"
    return f"{said}: {message}" if message else said
