"""What is done with aliases of models on the vault's machine: made, listed, rotated, removed."""

from collections.abc import Sequence

from vault.files import VaultFiles
from vault.model_key import aliases
from vault.model_key.aliases import Alias
from vault.opened import local_actor, opened


def add(
    files: VaultFiles, name: str, key: bytes, *, url: str, header: str, networks: Sequence[str]
) -> Alias:
    """A new one. Raises as `aliases.add`."""
    told = {"actor": local_actor(), "name": name}
    with opened(files) as it, it.audit.intent_now("model.add", **told), it.safe.transaction():
        return aliases.add(it.safe, name, key, url=url, header=header, networks=networks)


def rotate(files: VaultFiles, name: str, key: bytes) -> Alias:
    """Another key for it. Raises as `aliases.rotate`."""
    told = {"actor": local_actor(), "name": name}
    with opened(files) as it, it.audit.intent_now("model.rotate", **told):
        with it.safe.transaction():
            alias = aliases.rotate(it.safe, name, key)
        it.safe.database.forget()
        return alias


def remove(files: VaultFiles, name: str) -> None:
    """Destroy it. Raises as `aliases.remove`."""
    told = {"actor": local_actor(), "name": name}
    with opened(files) as it, it.audit.intent_now("model.remove", **told):
        with it.safe.transaction():
            aliases.remove(it.safe, name)
        it.safe.database.forget()


def listed(files: VaultFiles) -> list[Alias]:
    """All there are."""
    with opened(files) as it, it.audit.intent_now("model.list", actor=local_actor()):
        return [aliases.load(it.safe, name) for name in aliases.names(it.safe)]
