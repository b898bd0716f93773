"""Why there is no access token, as callers are told: nothing of what a server wrote."""

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from vault.oauth.ports import Key


def over(key: Key, code: str) -> CarpalError:
    """For good: a person must act."""
    return refuse(
        Reason.CREDENTIAL_NEEDS_CONSENT,
        f"the authorization server refuses to refresh {key.id!r} ({code})",
        credential=key.id,
    )


def later(why: str, refresh: str = "failed") -> CarpalError:
    """Not now; `refresh` is what an operator is told who validates."""
    return refuse(
        Reason.CREDENTIAL_NOT_REFRESHED,
        f"the access token was not refreshed: {why}",
        refresh=refresh,
    )
