"""Following the vault's trust: its list of revocations, and the authorities there are.

Asked for every second. What came last is kept on disk too, so that a process
that starts while the vault is away forgets nothing.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from google.protobuf.message import DecodeError

from carpal.bundle import is_by_newest, trusted
from carpal.client import dial, rpc_errors
from carpal.errors import CarpalError, refuse
from carpal.identity import Role
from carpal.revocations import FOLLOW_SECONDS, Revocations
from carpal.status import Reason
from carpal.tls import IdentityFiles, write_file
from carpal.v1 import types_pb2, vault_pb2, vault_pb2_grpc

_log = logging.getLogger(__name__)

REVOCATIONS = "revocations.bin"
"""The file of the last list, beside the folder of the identity."""
_FIRST = 30.0
"""Seconds for the vault to give the very first list: who starts together waits for each other."""
_TURN = 1.0
"""Seconds to wait for whoever writes the identity now: who is revoked is asked for meanwhile."""
_ANSWER = 3.0
"""Seconds for the vault to answer before it is asked again."""


@asynccontextmanager
async def following(
    vault: str, files: IdentityFiles, path: Path, changed: Callable[[], None] = lambda: None
) -> AsyncIterator["TrustWatch"]:
    """Keeps revocations, from the vault at `host:port` and in the file `path`, while it lasts.

    `changed` is called when another authority signs than the one of the identity.
    """
    async with dial(vault, Role.VAULT, files) as channel:
        watch = TrustWatch(vault_pb2_grpc.VaultStub(channel), files, path, changed)
        task = asyncio.create_task(watch.run())
        try:
            yield watch
        finally:
            task.cancel()
            await asyncio.wait({task})


class TrustWatch:
    """Keeps one process's `revocations`."""

    def __init__(
        self,
        vault: "vault_pb2_grpc.VaultAsyncStub",
        files: IdentityFiles,
        path: Path,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Begins with the list in the file `path`, when there is one and it is good.

        `changed` is as in `following`.
        """
        self.revocations = Revocations()
        self._vault = vault
        self._files = files
        self._path = path
        self._changed = changed
        self._bundle = b""
        """As the vault told it last."""
        self._unsaved = b""
        """A list that is not on disk yet."""
        self._away = False
        self._known = asyncio.Event()
        self.revocations.on_change(self._known.set)
        self._recall()

    async def first(self, stop: asyncio.Event) -> bool:
        """Wait, while it runs, until there is a list: nobody is served who was not held to one.

        False once `stop` is set. Raises VAULT_UNAVAILABLE when none comes.
        """
        waiting = [asyncio.ensure_future(one.wait()) for one in (self._known, stop)]
        try:
            await asyncio.wait(waiting, timeout=_FIRST, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        if not (self._known.is_set() or stop.is_set()):
            raise refuse(
                Reason.VAULT_UNAVAILABLE,
                f"who is revoked is not known here, and the vault did not say within {_FIRST:g} s",
                action="start the vault, or correct `vault`; the last list is kept from then on",
            )
        return not stop.is_set()

    async def run(self) -> None:
        """Follow, until cancelled; what goes wrong is said once, and tried again."""
        while True:
            try:
                await self._look()
            except (CarpalError, OSError) as error:
                if not self._away:
                    _log.warning("revocations not followed", extra={"why": str(error)})
                self._away = True
            except Exception:  # noqa: BLE001 - nobody else follows who is revoked from now on
                if not self._away:
                    _log.exception("revocations not followed")
                self._away = True
            else:
                if self._away:
                    _log.info("revocations followed again")
                self._away = False
            await asyncio.sleep(FOLLOW_SECONDS)

    async def _look(self) -> None:
        with rpc_errors("the vault"):
            answer = await self._vault.GetTrust(vault_pb2.GetTrustRequest(), timeout=_ANSWER)
        held = await asyncio.to_thread(self._files.ca.read_bytes)
        told = trusted(answer.ca_bundle, answer.cross_certificates, held)
        news = self.revocations.take(answer.revocations, told)
        self.revocations.trust(told)
        if news:
            _log.info("revocations changed", extra={"version": self.revocations.version})
        if news or told != held:  # what is kept must be by one that is trusted then
            self._unsaved = answer.revocations.SerializeToString()
        if answer.ca_bundle != self._bundle:
            shown = await asyncio.to_thread(self._files.certificate.read_bytes)
            if not is_by_newest(shown, answer.ca_bundle):
                self._changed()
        self._bundle = answer.ca_bundle
        # What is in force is in force, whatever the disk says to this.
        if told != held:
            await asyncio.to_thread(self._save_bundle, told)
        if self._unsaved:
            await asyncio.to_thread(write_file, self._path, self._unsaved)
            self._unsaved = b""

    def _save_bundle(self, told: bytes) -> None:
        try:
            with self._files.writing(_TURN):
                write_file(self._files.ca, told)
        except CarpalError as error:  # the identity is being renewed: the next look saves it
            _log.info("the authorities to trust are not saved yet", extra={"why": str(error)})
        else:
            _log.warning("the authorities to trust changed")

    def _recall(self) -> None:
        try:
            kept = types_pb2.SignedBytes.FromString(self._path.read_bytes())
            self.revocations.take(kept, self._files.ca.read_bytes())
        except FileNotFoundError:
            _log.info("nobody is served before the vault says who is revoked")
        except (OSError, DecodeError, CarpalError) as error:
            # Whoever can write the file could also have removed it.
            _log.warning("the kept revocations are not used", extra={"why": str(error)})
