"""The issuer in the safe: made once, read for each token, turned by a command.

It is one sealed value, so whatever changes in it changes at once. Calls are those of the store:
one thread, no overlap.
"""

from cryptography.hazmat.primitives.asymmetric import ec

from carpal.errors import CarpalError, invalid, refuse
from carpal.status import Reason
from vault.guard.errors import BadTarget
from vault.guard.targets import Target
from vault.issuer.keys import Keys, key, read, written
from vault.safe.safe import Safe
from vault.seal.envelope import Place, policy_hash

_PLACE = Place("issuer", "", "", "issuer", "keys")
_USE = policy_hash(b"sign tokens")
_HOUR = 3_600
_URL_MAX = 512


def make(safe: Safe, url: str) -> Keys:
    """An issuer with its first two keys; the same URL again changes nothing.

    Raises INVALID_FIELD; CONFIG_INVALID when there is one of another URL.
    """
    url = _url(url)
    with safe.transaction():
        known = _held(safe)
        if known is None:
            made = Keys(url, key(_new()), key(_new()))
            safe.put(_PLACE, _USE, written(made))
            return made
    if known.url != url:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"the vault's issuer is {known.url}, and servers trust it by that",
            action=f"host its documents there, or use {known.url}",
        )
    return known


def load(safe: Safe) -> Keys:
    """The issuer. CONFIG_INVALID when there is none; CREDENTIAL_CORRUPT."""
    if (known := _held(safe)) is None:
        raise _none()
    return known


def publish(safe: Safe, now: int) -> Keys:
    """The issuer, whose documents are written out now; it is noted when the next key first was."""
    with safe.transaction():
        before = load(safe)
        after = before.was_published(now)
        if after != before:
            safe.put(_PLACE, _USE, written(after))
    return after


def turn(safe: Safe, now: int, *, at_once: bool = False) -> Keys:
    """Have the next key sign. CONFIG_INVALID when servers may not know it yet.

    `at_once` does it all the same: for a key that somebody else has, which is then known no more.
    """
    with safe.transaction():
        before = load(safe)
        if not at_once:
            _check_published(before.left(now))
        after = before.turned(_new(), now)
        if at_once:
            after = Keys(after.url, after.signing, after.next)
        safe.put(_PLACE, _USE, written(after))
    safe.database.forget()
    return after


def _check_published(left: int) -> None:
    if left == 0:
        return
    why = "was never published" if left < 0 else "was published less than 24 hours ago"
    then = "run `carpal vault issuer export DIR`, host what it wrote, and wait for 24 hours"
    raise refuse(
        Reason.CONFIG_INVALID,
        f"the next key {why}: servers would refuse what it signs",
        action=then if left < 0 else f"try again in {-(-left // _HOUR)} hours",
    )


def _held(safe: Safe) -> Keys | None:
    sealed = safe.get(_PLACE, _USE)
    return None if sealed is None else read(sealed)


def _url(text: str) -> str:
    try:
        target = Target.parse(text)
    except BadTarget as wrong:
        raise invalid("URL", f"must be a plain https URL ({wrong.fields['part']})") from None
    url = f"https://{target.authority}{target.path}".removesuffix("/")
    if "?" in url or url.endswith("/") or len(url) > _URL_MAX:
        raise invalid("URL", "must be an https URL without a query, and end in one slash at most")
    return url


def _none() -> CarpalError:
    return refuse(
        Reason.CONFIG_INVALID,
        "the vault is no issuer of tokens",
        action="run `carpal vault issuer init URL` on its machine",
    )


def _new() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())
