"""What an issuer publishes: its public keys, and where they are. Pure."""

from typing import Any

from vault.issuer.keys import Keys

JWKS = "jwks.json"
DISCOVERY = ".well-known/openid-configuration"


def documents(keys: Keys, now: int) -> dict[str, Any]:
    """Each by its place below the issuer's URL."""
    return {
        JWKS: {"keys": keys.known(now)},
        DISCOVERY: {
            "issuer": keys.url,
            "jwks_uri": f"{keys.url}/{JWKS}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
            "claims_supported": [
                *("iss", "sub", "aud", "iat", "nbf", "exp", "jti"),
                *("workspace", "agent", "session"),
            ],
        },
    }
