"""Which layer a refusal is of, for every reason there is."""

import re
from pathlib import Path

import pytest

from carpal.layers import CAUSES, Layer, layer_of
from carpal.status import Reason

EVENTS = Path(__file__).parent.parent / "docs" / "reference" / "events.md"

TABLE = {
    Layer.MODEL: {Reason.TOOL_NOT_FOUND, Reason.INPUT_INVALID},
    Layer.HARNESS: {Reason.HARNESS_FAILED, Reason.STALE_EPOCH},
    Layer.LINK: {
        *(Reason.UNREACHABLE, Reason.DAEMON_NOT_LINKED, Reason.LINK_SUPERSEDED),
        *(Reason.LINK_SILENT, Reason.MESSAGE_TOO_LARGE),
    },
    Layer.DAEMON: {
        *(Reason.LINK_VIOLATION, Reason.NAME_MISMATCH, Reason.VERSION_UNSUPPORTED),
        *(Reason.DAEMON_QUARANTINED, Reason.DAEMON_NOT_FOUND, Reason.HAND_TYPE_NOT_FOUND),
        *(Reason.AT_CAPACITY, Reason.LIMIT_NOT_ENFORCEABLE, Reason.POLICY_FORBIDS),
    },
    Layer.HAND: {
        *(Reason.HAND_NOT_FOUND, Reason.HAND_GONE, Reason.PROVISION_FAILED),
        *(Reason.SAVE_FAILED, Reason.MOUNT_NOT_FOUND),
    },
    Layer.VAULT: {
        *(Reason.IDENTITY_REVOKED, Reason.RENEWAL_REFUSED, Reason.VAULT_UNAVAILABLE),
        *(Reason.SEAL_KEY_WRONG, Reason.CREDENTIAL_NOT_FOUND, Reason.TICKET_REFUSED),
        *(Reason.VAULT_SEALED, Reason.VAULT_ROLLED_BACK, Reason.VAULT_CORRUPT),
        *(Reason.CREDENTIAL_CORRUPT, Reason.CREDENTIAL_NEEDS_CONSENT),
        *(Reason.CREDENTIAL_NOT_REFRESHED, Reason.CREDENTIAL_NOT_FETCHED, Reason.CONSENT_FAILED),
    },
}
"""Reasons that only one layer gives."""


@pytest.mark.parametrize("layer", list(Layer))
def test_a_reason_that_only_one_layer_gives_tells_it_whoever_was_asked(layer: Layer) -> None:
    for reason in TABLE[layer]:
        assert {layer_of(reason, asked) for asked in Layer} == {layer}, reason


def test_any_other_reason_is_of_the_layer_that_was_asked() -> None:
    told = {reason for reasons in TABLE.values() for reason in reasons}
    for reason in set(Reason) - told:
        assert [layer_of(reason, asked) for asked in Layer] == list(Layer), reason


def test_an_audit_that_cannot_be_written_is_that_of_whoever_refused() -> None:
    assert layer_of(Reason.AUDIT_NOT_WRITTEN, Layer.DAEMON) is Layer.DAEMON
    assert layer_of(Reason.AUDIT_NOT_WRITTEN, Layer.VAULT) is Layer.VAULT


def test_every_layer_and_cause_is_in_the_page_on_events() -> None:
    page = EVENTS.read_text()
    named = set(re.findall(r"`([a-z_]+)`", page))
    assert {str(layer) for layer in Layer} <= named
    assert named >= CAUSES
