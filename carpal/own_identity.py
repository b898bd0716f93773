"""A process renews its own identity through the vault, by proof of the key it has.

Its server shows the new one from the next handshake on, and its channels dial
anew with it (`carpal.tls`, `carpal.following`): nothing is restarted.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from carpal.client import dial, rpc_errors
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.proof import renewal_signature
from carpal.renewal import Answer, Renewal
from carpal.rpc import health_pb2, health_pb2_grpc
from carpal.tls import IdentityFiles, Loaded, Shown, stamp
from carpal.v1 import vault_pb2, vault_pb2_grpc

_log = logging.getLogger(__name__)

_ANSWER = 10.0
"""Seconds for the vault to answer; it needs a few milliseconds and one fsync."""


def through_vault(files: IdentityFiles, vault: str, answer_seconds: float = _ANSWER) -> Renewal:
    """What renews the identity in `files`, by the vault at `host:port`."""
    peer = f"the vault at {vault}"

    async def ask(old: Loaded, request: bytes) -> Answer:
        proof = vault_pb2.RenewalProof(
            certificate=old.chain, signature=renewal_signature(old.key, request)
        )
        sign = vault_pb2.SignRequest(certificate_request=request, renewal=proof)
        async with dial(vault, Role.VAULT, files, retry=False, follow=False) as channel:
            with rpc_errors(peer):
                answer = await vault_pb2_grpc.VaultStub(channel).Sign(sign, timeout=answer_seconds)
        # From the vault itself, over a connection in which it proved to be it.
        return Answer(answer.certificate_chain, answer.ca_bundle)

    async def connect(candidate: Shown) -> None:
        async with dial(vault, Role.VAULT, candidate, retry=False, follow=False) as channel:
            with rpc_errors(peer):
                stub = health_pb2_grpc.HealthStub(channel)
                await stub.Check(health_pb2.HealthCheckRequest(), timeout=answer_seconds)

    return Renewal(files, ask, connect)


@asynccontextmanager
async def kept_renewed(renewal: Renewal) -> AsyncIterator[None]:
    """Renew whenever it is time, while the block lasts."""
    task = asyncio.create_task(renewal.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


class Newest:
    """The identity a process signs with: as it is on disk now."""

    def __init__(self, files: IdentityFiles) -> None:
        """Raises as `load_valid`."""
        self._files = files
        self._seen = stamp(files)
        self._loaded = files.load_valid()

    def loaded(self) -> Loaded:
        """The newest; what is gone, half-written or not valid leaves the one before."""
        seen = stamp(self._files)
        if seen != self._seen:
            self._seen = seen
            try:
                self._loaded = self._files.load_valid()
            except CarpalError as error:
                _log.warning("identity not reloaded", extra={"why": error.message})
        return self._loaded
