"""A certificate authority for tests: the vault's own, so that what passes here passes there."""

from datetime import UTC, datetime
from pathlib import Path

from carpal.identity import BACKDATE, DEFAULT_TRUST_DOMAIN, Role
from carpal.signed import sign
from carpal.tls import IdentityFiles, key_pem, new_key, write_file
from carpal.trust_watch import REVOCATIONS
from carpal.v1.vault_pb2 import RevocationList
from vault.authority import ca


class Pki:
    """One trust domain whose identities are written below `tmp_path`."""

    def __init__(self, tmp_path: Path, trust_domain: str = DEFAULT_TRUST_DOMAIN) -> None:
        self.root = tmp_path
        self.trust_domain = trust_domain
        self.authority = ca.new_authority(new_key(), trust_domain, datetime.now(UTC))

    @property
    def ca_pem(self) -> bytes:
        """What everyone of this domain trusts."""
        return self.authority.pem

    def identity_dir(self, role: Role | str, name: str) -> Path:
        """Where `issue` writes that identity."""
        return self.root / self.trust_domain / str(role) / name / "identity"

    def issue(
        self,
        role: Role | str,
        name: str,
        workspace: str = "",
        pool: str = "",
        *,
        not_before: datetime | None = None,
        not_after: datetime | None = None,
        directory: Path | None = None,
    ) -> IdentityFiles:
        """An identity on disk, valid for a day unless told otherwise.

        A daemon or an operator is of workspace `default` unless told otherwise.
        Beside a server's is the list of nobody revoked, as one that heard of the vault has it.
        """
        role = Role(role)
        now = datetime.now(UTC)
        key = new_key()
        leaf = ca.issue(
            self.authority,
            ca.Claims(role, name, workspace or ("default" if role.has_workspace else ""), pool),
            public_key=key.public_key(),
            not_before=not_before or now - BACKDATE,
            not_after=not_after or now + ca.LEAF_LIFETIME,
        )
        files = IdentityFiles(directory or self.identity_dir(role, name))
        files.install(key_pem(key), ca.chain_pem(self.authority, leaf), self.ca_pem)
        if not role.has_workspace:
            nobody = RevocationList(version=1).SerializeToString()
            told = sign(self.authority.key, self.ca_pem, nobody).SerializeToString()
            write_file(files.directory.parent / REVOCATIONS, told)
        return files
