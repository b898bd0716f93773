"""Grants: what it takes to find the one of a token among a thousand that live."""

import random
import time
from datetime import UTC, datetime

from carpal.identity import DEFAULT_TRUST_DOMAIN, Identity, Role
from vault.grants.grant import Terms
from vault.grants.grants import Grants
from vault.grants.ticket import Driver

LIVE, LOOKUPS = 1_000, 20_000
_POLICY = b'{"mcp": {"a": {"url": "https://mcp.a.com/mcp", "allow": ["*"]}}}'


async def looked_up() -> dict[str, float]:
    """Microseconds of a look-up, by chance among all."""
    grants = Grants(lambda *_, **__: None)
    now = datetime.now(UTC)
    brain = Identity(DEFAULT_TRUST_DOMAIN, Role.BRAIN, "brain-1", "", "", now, now, 1)
    tokens = []
    for number in range(LIVE):
        session = f"s{number}"
        driver = Driver(session=session, workspace="default", uri=brain.uri, epoch=1, fresh=True)
        terms = Terms(session, "default", "mcp", brain.uri, "", (), _POLICY, 1)
        tokens.append(grants.give(driver, "g1", terms)[1])
    chosen = random.Random(1).choices(tokens, k=LOOKUPS)
    began = time.perf_counter()
    for token in chosen:
        await grants.check(token, brain, "mcp")
    took = time.perf_counter() - began
    if len(grants) != LIVE:
        raise RuntimeError("some grants are gone")
    grants.close()
    return {"grant_lookup_us": round(1e6 * took / LOOKUPS, 1)}
