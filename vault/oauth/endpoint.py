"""One POST to a token endpoint, through the guard: what it says, and nothing it wrote."""

from collections.abc import Sequence

from vault.guard.errors import GuardError
from vault.guard.limits import Limits
from vault.guard.transport import Guard, Request
from vault.oauth.answers import SIZE_MAX, Answer, Later, Unknown, read
from vault.oauth.ports import Client
from vault.secret import Secret

_LIMITS = Limits(
    connect=5.0,
    first_byte=15.0,
    idle=15.0,
    total=20.0,
    request_bytes=SIZE_MAX,
    reply_bytes=SIZE_MAX,
)


async def ask(
    guard: Guard,
    request: Request,
    client: Client,
    secrets: Sequence[Secret],
    limits: Limits = _LIMITS,
) -> Answer:
    """Send it, once. A server that was not reached did nothing; one that fell silent may have."""
    try:
        async with guard.send(
            request, secrets=secrets, limits=limits, private=client.private
        ) as response:
            body = await response.read()
            said = response.headers
    except GuardError as error:
        return Unknown(error.code) if error.sent else Later(0)
    return read(response.status, said.get("content-type", ""), body, said.get("retry-after", ""))
