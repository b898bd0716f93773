"""Other keys for what is sealed: new terms while the vault runs, another seal while it does not."""

import time
from collections.abc import Mapping
from typing import Any

from carpal.errors import refuse
from carpal.status import Reason
from vault.files import VaultFiles
from vault.opened import local_actor, opened
from vault.safe.seal import seal_of
from vault.seal.seals import Given, SealKind, make


def rotate(files: VaultFiles) -> tuple[int, int]:
    """Wrap all keys by a new term; which that is, and how many values are damaged."""
    with opened(files) as it, it.audit.intent_now("rotate", actor=local_actor()) as record:
        left = it.safe.rotate_terms(int(time.time()))
        record.add(term=it.safe.term, count=left)
        return it.safe.term, left


def reseal(
    files: VaultFiles, kind: SealKind, settings: Mapping[str, Any], given: Given
) -> tuple[str, str]:
    """Seal it by another key: the ids of the one before and of this one.

    `given` is what the new seal needs. CONFIG_INVALID while the vault runs, whose keys are open.
    """
    with files.only_process(), opened(files) as it:
        before = seal_of(it.safe.database)
        row, kek = make(kind, settings, given, files.folder)
        if before is None or before.key_id == row.key_id:
            raise refuse(
                Reason.CONFIG_INVALID,
                "that is the key it is sealed by already",
                action="name another file with --seal-key; the one before can be removed after",
            )
        with it.audit.intent_now("reseal", actor=local_actor(), seal=str(kind)):
            it.safe.reseal(row, kek)
        return before.key_id, row.key_id
