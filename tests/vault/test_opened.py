"""A command opens the vault while the service, or another command, writes to it."""

from dataclasses import dataclass
from pathlib import Path

from carpal.identity import Role
from tests.trust import Clock
from vault import setup
from vault.authority.ca import Claims
from vault.files import VaultFiles
from vault.opened import opened


@dataclass(frozen=True, slots=True)
class Between(VaultFiles):
    """Those of a vault to which another process writes whenever its audit is looked for."""

    @property
    def audit(self) -> Path:
        setup.revoke(VaultFiles(self.state), Role.BRAIN, "brain-1", "gone", Clock())
        return self.state / "vault" / "audit"


def test_what_is_written_while_a_command_opens_the_vault_does_not_roll_it_back(
    tmp_path: Path,
) -> None:
    setup.init(VaultFiles(tmp_path), "carpal.internal", [Claims(Role.BRAIN, "brain-1")], Clock())
    with opened(Between(tmp_path)) as it:
        assert it.store.revocation("spiffe://carpal.internal/brain/brain-1") is not None
