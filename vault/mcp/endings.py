"""How a request ended: as a refusal, for the audit, and for the journal of calls."""

import contextlib
from typing import Any

from carpal.errors import CarpalError
from carpal.status import Reason
from vault.guard.errors import GuardError, Malformed, TimedOut, TooLarge
from vault.mcp import headers
from vault.mcp.journal import Sending
from vault.mcp.ports import Use
from vault.mcp.refusals import Refusal, Why


def settle(sending: Sending, error: BaseException) -> None:
    """What is known of a call that went wrong; nothing, when it may have had its effect."""
    if isinstance(error, Refusal):
        if error.why is Why.UNREACHABLE:
            sending.unsent()
        elif error.why in (Why.SERVER_REFUSED, Why.AUTHENTICATION_FAILED, Why.INPUT_REFUSED):
            sending.settled("refused")


@contextlib.contextmanager
def in_words_of_ours(user: str = "") -> Any:
    """What goes wrong beneath, as a refusal; `user`: whose credential it is, where it is one's."""
    try:
        yield
    except GuardError as error:
        raise _guarded(error) from None
    except headers.Unsendable as error:
        raise Refusal(Why.NOT_SENDABLE, str(error)) from None
    except CarpalError as error:
        if user and error.reason is Reason.CREDENTIAL_NEEDS_CONSENT:
            raise Refusal(Why.CONSENT_REQUIRED, error.name, user=user) from None
        unwritten = error.reason in (Reason.AUDIT_NOT_WRITTEN, Reason.STORE_FULL)
        why = Why.UNAVAILABLE if unwritten else Why.CREDENTIAL_UNAVAILABLE
        raise Refusal(why, error.name, credential=error.name) from None


def _guarded(error: GuardError) -> Refusal:
    if not error.sent:
        return Refusal(Why.UNREACHABLE, error.code)
    if isinstance(error, TimedOut):
        return Refusal(Why.TIMED_OUT, error.code)
    if isinstance(error, TooLarge):
        return Refusal(Why.RESULT_TOO_LARGE, error.code)
    if isinstance(error, Malformed):
        return Refusal(Why.SERVER_BROKEN, error.code)
    return Refusal(Why.SERVER_GONE, error.code)


@contextlib.contextmanager
def outcome(use: Use) -> Any:
    """Tell the audit how it went, in full."""
    try:
        yield
    except Refusal as refusal:
        use.outcome("refused", reason=f"{refusal.why.name} {refusal.detail}".strip())
        raise
    except GuardError as error:
        facts = {key: value for key, value in error.fields.items() if key in ("host", "port")}
        use.outcome("failed", reason=error.code, **facts)
        raise
