"""Refusals in the Messages API's own shape.

Checks raise `Refusal`; the server turns it into
`{"type": "error", "error": {"type", "message"}, "request_id"}`, as a response
or, mid-stream, as an `error` event.
"""

import re

import msgspec

KINDS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""`error.type` by status; other 4xx are invalid_request_error, other 5xx api_error."""

_SITED = re.compile(r"(?P<problem>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?\Z", re.DOTALL)


class Refusal(Exception):
    """A request that is answered with an error."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind or KINDS.get(
            status, "invalid_request_error" if status < 500 else "api_error"
        )
        self.retry_after = retry_after
        """Seconds, for the header of that name."""

    def body(self, request_id: str) -> dict[str, object]:
        """The error as the API words it."""
        return {
            "type": "error",
            "error": {"type": self.kind, "message": self.message},
            "request_id": request_id,
        }

    def headers(self) -> dict[str, str]:
        """What the response carries beside its body."""
        return {} if self.retry_after is None else {"retry-after": f"{self.retry_after:g}"}


def misfit(error: msgspec.ValidationError, site: str = "") -> Refusal:
    """A field of the wrong shape, named as the API names it: `messages.0.content: …`.

    `site` is the path of what was converted, when that was not the whole body.
    """
    found = _SITED.match(str(error))
    problem, path = (found["problem"], found["path"] or "") if found else (str(error), "")
    parts = [part for part in (site, re.sub(r"\[(\d+)\]", r".\1", path).strip(".")) if part]
    if missing := re.match(r"Object missing required field `(.*)`", problem):
        return Refusal(f"{'.'.join([*parts, missing[1]])}: Field required")
    if extra := re.match(r"Object contains unknown field `(.*)`", problem):
        return Refusal(f"{'.'.join([*parts, extra[1]])}: Extra inputs are not permitted")
    return Refusal(f"{'.'.join(parts) or 'body'}: {problem}")
