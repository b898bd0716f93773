"""The service's door: shut until the seal is opened, at the start, or by an operator later.

What stands behind it is made when it opens, and stays until the process ends.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from vault.audit.audit import Audit
from vault.audit.opening import AuditReader
from vault.authority.revoking import Revoker
from vault.authority.signing import Signer
from vault.authority.tokens import Tokens
from vault.credentials.desk import CredentialDesk
from vault.credentials.rows import Rows
from vault.database import Database
from vault.files import Following, VaultFiles
from vault.opened import Opened, opened
from vault.safe.seal import seal_of
from vault.seal.keyring import TERM_DAYS, WRAPS_MAX
from vault.sources.sources import Sources

_log = logging.getLogger(__name__)

WRONG_SECONDS = 1.0
"""What a wrong key costs whoever tries the next."""
_STAY_SHUT = frozenset({Reason.VAULT_SEALED, Reason.VAULT_ROLLED_BACK})
"""Why a vault starts and stays shut: somebody must hand in a key, or accept a restore."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the service works with while the vault is open."""

    opened: Opened
    signer: Signer
    tokens: Tokens
    revoker: Revoker
    desk: CredentialDesk
    reader: AuditReader
    executor: ThreadPoolExecutor
    """One thread: the database's calls must not overlap."""
    seal_kind: str

    @property
    def audit(self) -> Audit:
        """Say there what you are about to do, before you do it."""
        return self.opened.audit


class Door:
    """Of one vault; what is behind it closes with `stack`."""

    def __init__(
        self,
        files: VaultFiles,
        clock: Callable[[], datetime],
        stack: ExitStack,
        sources: Sources | None = None,
    ) -> None:
        self.files = files
        self._sources = sources
        self.why = ""
        """Why it is shut."""
        self._clock = clock
        self._stack = stack
        self._parts: Parts | None = None
        self._turn = threading.Lock()
        self._wrong = 0.0
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    @property
    def parts(self) -> Parts:
        """What is behind it; VAULT_SEALED while it is shut."""
        if self._parts is None:
            raise refuse(Reason.VAULT_SEALED, f"the vault is sealed: {self.why}")
        return self._parts

    @property
    def is_open(self) -> bool:
        """Whether it is."""
        return self._parts is not None

    @property
    def seal_kind(self) -> str:
        """How the seal's key comes in."""
        if self._parts is not None:
            return self._parts.seal_kind  # the open database is its one thread's
        with closing(Database(self.files.store)) as database:
            return _kind(database)

    def start(self) -> None:
        """Open it with what the process was given; it stays shut if that needs somebody.

        Raises what nobody can mend by handing in a key: SEAL_KEY_WRONG, CONFIG_INVALID,
        VAULT_CORRUPT.
        """
        try:
            self._open(self.files, thorough=True)
        except CarpalError as error:
            if error.reason not in _STAY_SHUT:
                raise
            self.why = error.message
            _log.warning("the vault is sealed", extra={"why": self.why})

    def unseal(self, key: bytes) -> None:
        """Open it with a key; nothing when it is open. From any thread, one at a time.

        Raises SEAL_KEY_WRONG, a while later; UNAVAILABLE while another tries; as `start` else.
        """
        if not self._turn.acquire(blocking=False):
            raise refuse(Reason.UNAVAILABLE, "somebody else tries a key")
        try:
            if self.is_open:
                return
            given = replace(self.files.given, secret=key) if key else self.files.given
            try:
                self._open(replace(self.files, given=given), thorough=True)
            except CarpalError as error:
                _log.warning("not unsealed", extra={"reason": str(error.reason)})
                if error.reason in _STAY_SHUT:
                    self.why = error.message
                if error.reason is Reason.SEAL_KEY_WRONG:
                    threading.Event().wait(WRONG_SECONDS)
                raise
        finally:
            self._turn.release()

    async def opened(self) -> None:
        """Until it is open."""
        event = asyncio.Event()
        self._waiting.append((asyncio.get_running_loop(), event))
        if not self.is_open:
            await event.wait()

    def rotate_if_due(self) -> None:
        """Other terms, once those that wrap are old. In the store's thread. VAULT_SEALED."""
        _rotate_if_due(self.parts.opened, self._clock())

    def _open(self, files: VaultFiles, *, thorough: bool) -> None:
        with ExitStack() as stack:
            it = stack.enter_context(opened(files, thorough=thorough))
            authorities = Following(files, it.key_of)
            signer = Signer(authorities, it.store, self._clock, it.audit.denied)
            parts = Parts(
                it,
                signer,
                Tokens(signer.trust_domain, it.store, self._clock),
                Revoker(signer, it.store, self._clock),
                CredentialDesk(Rows(it.safe), self._clock, self._sources),
                stack.enter_context(closing(AuditReader(files.audit))),
                stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="vault-store")),
                _kind(it.safe.database),
            )
            _rotate_if_due(it, self._clock())
            mark = it.safe.mark
            it.audit.written("opened", epoch=mark.epoch, manifest=mark.manifest)
            self._stack.push(stack.pop_all())
        self._parts, self.why = parts, ""
        for loop, event in self._waiting:
            loop.call_soon_threadsafe(event.set)


@contextmanager
def door(
    files: VaultFiles, clock: Callable[[], datetime], sources: Sources | None = None
) -> Iterator[Door]:
    """A shut door, held against any second vault; what was behind it is closed at the end.

    `sources` are the owner's secret managers, if credentials may lie there.
    """
    files.check_made()  # before anything is made in a folder that may be mistyped
    with files.only_process(), ExitStack() as stack:
        yield Door(files, clock, stack, sources)


def _kind(database: Database) -> str:
    seal = seal_of(database)
    return str(seal.kind) if seal else ""


def _rotate_if_due(it: Opened, now: datetime) -> None:
    made, wraps = it.safe.age()
    if now.timestamp() - made < TERM_DAYS * 86_400 and wraps < WRAPS_MAX:
        return
    with it.audit.intent_now("rotate", actor="vault") as record:
        it.safe.rotate_terms(int(now.timestamp()))
        record.add(term=it.safe.term)
