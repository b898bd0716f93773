"""Why the proxy does not give a brain what it asked for: a fixed set of codes and words. Pure.

Nothing that a server said is in them. The full reason is in the audit.
"""

from enum import Enum
from typing import Any


class Why(Enum):
    """JSON-RPC code, HTTP status, and what is said."""

    MALFORMED = -32700, 400, "the message is malformed"
    NO_REQUEST = -32600, 400, "the message is not one that a client sends"
    METHOD_UNKNOWN = -32601, 404, "the method is not served"
    PARAMS_INVALID = -32602, 400, "the parameters are not those of the method"
    VERSION_UNSUPPORTED = -32022, 400, "the protocol version is not served"
    CALL_ID_MISSING = -32602, 400, "a tool call needs a call id in its _meta"
    SERVER_UNKNOWN = -32010, 404, "the grant has no server of this name"
    TOOL_DENIED = -32011, 200, "the grant does not allow this"
    APPROVAL_REQUIRED = -32012, 200, "a person must approve this call first"
    CALL_SENT = -32013, 200, "this call was sent before, and is not sent again"
    AT_CAPACITY = -32014, 200, "too many calls go on: try again"
    UNREACHABLE = -32015, 200, "the server cannot be reached; nothing was sent"
    AUTHENTICATION_FAILED = -32016, 200, "the server does not take the credential"
    CREDENTIAL_UNAVAILABLE = -32017, 200, "there is no usable credential for the server"
    TIMED_OUT = -32018, 200, "the server did not answer in time"
    RESULT_TOO_LARGE = -32019, 200, "the answer is larger than the grant takes"
    SERVER_BROKEN = -32030, 200, "the server's answer is none"
    SERVER_REFUSED = -32031, 200, "the server refused the request"
    SERVER_GONE = -32032, 200, "the server ended the connection before its answer"
    INPUT_REFUSED = -32033, 200, "the server asked for what it may not have"
    GRANT_ENDED = -32034, 401, "the grant has ended"
    NOT_SENDABLE = -32035, 200, "the arguments cannot be sent to this server"
    CONSENT_REQUIRED = -32037, 200, "the user must consent first; nothing was sent"
    UNAVAILABLE = -32036, 503, "the vault cannot write down what it does: nothing was sent"

    @property
    def code(self) -> int:
        """Of JSON-RPC."""
        return self.value[0]

    @property
    def status(self) -> int:
        """Of HTTP."""
        return self.value[1]

    @property
    def words(self) -> str:
        """What is said."""
        return self.value[2]


class Refusal(Exception):
    """A request is not, or not well, answered. `detail` is for the audit alone."""

    def __init__(self, why: Why, detail: str = "", **data: Any) -> None:
        super().__init__(why.name)
        self.why = why
        self.detail = detail
        self.data = data
        """Numbers, names of ours and digests: nothing of a server's words."""

    def error(self) -> dict[str, Any]:
        """The `error` of a reply."""
        data = {"reason": self.why.name, **self.data}
        return {"code": self.why.code, "message": self.why.words, "data": data}
