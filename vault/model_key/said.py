"""What may be asked of a model's service, and how the vault says no, in the API's own shape. Pure.

An answer of the service has a header that says so; whatever has it not, the vault said.
"""

import json
import re
from dataclasses import dataclass

from carpal.errors import CarpalError
from carpal.status import Reason
from vault.guard.errors import BadRequest, BodyTooLarge, GuardError, TimedOut

ROOT = "/model/"
MARK = ("carpal-answer", "model")
"""Of the service's own answers, good or bad."""
WANTED = frozenset(
    [
        *("content-type", "retry-after", "retry-after-ms", "date", "request-id"),
        *("x-should-retry", "anthropic-organization-id"),
        *(
            f"anthropic-ratelimit-{what}-{part}"
            for what in ("requests", "tokens", "input-tokens", "output-tokens")
            for part in ("limit", "remaining", "reset")
        ),
    ]
)
"""Headers of an answer that go on."""
_PATHS = {"/v1/messages": "POST", "/v1/messages/count_tokens": "POST"}
_QUERIES = ("", "beta=true")
_ASKED = re.compile(r"/model/([a-z0-9-]{1,63})(/[\x21-\x7e]*)")
_TYPES = {
    400: "invalid_request_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
}
_UNWRITTEN = (Reason.AUDIT_NOT_WRITTEN, Reason.STORE_FULL, Reason.VAULT_SEALED)


@dataclass(frozen=True, slots=True)
class No:
    """Why there is no answer of the service's, in words of ours."""

    status: int
    words: str
    code: str
    """For the audit."""

    def body(self) -> bytes:
        """As the API says errors."""
        kind = _TYPES.get(self.status, "api_error")
        message = f"the vault: {self.words}"
        return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()

    def event(self) -> bytes:
        """The same inside a stream, after whatever was said of an event that did not end."""
        return b"\n\nevent: error\ndata: " + self.body() + b"\n\n"


def asked(method: str, path: str, query: str) -> tuple[str, str] | No:
    """The alias and what goes on of the path, with its query."""
    found = _ASKED.fullmatch(path)
    if found is None or found[2] not in _PATHS or query not in _QUERIES:
        return No(404, "this path is not one that is passed on", "path_refused")
    if method != _PATHS[found[2]]:
        return No(405, f"only {_PATHS[found[2]]} is passed on", "method_refused")
    return found[1], found[2] + (f"?{query}" if query else "")


def of_guard(error: GuardError) -> No:
    """Of a request that did not go well."""
    status = 502
    if isinstance(error, BodyTooLarge):
        status = 413
    elif isinstance(error, BadRequest):
        status = 400
    elif isinstance(error, TimedOut):
        status = 504
    return No(status, str(error), error.code)


def of_refusal(error: CarpalError) -> No:
    """Of what the vault itself refuses."""
    if error.reason in _UNWRITTEN:
        words = (
            "it is sealed" if error.reason is Reason.VAULT_SEALED else "its audit is not written"
        )
        return No(503, words, error.name)
    if error.reason is Reason.CREDENTIAL_NOT_FOUND:
        return No(404, "there is no such model alias", error.name)
    return No(403, "the alias's key does not open", error.name)
