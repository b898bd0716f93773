"""A hand type of ours whose tools a Python class runs, in a container: as `sandboxed`, but there.

The container is the container hand's, hardened as it is, and its supervisor has a host. That is run
by the Python which every container is brought, with the daemon's packages to read: so the class
needs nothing of an image, and what it starts there is the image's own.
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hands.builtin import common, container_python, noted
from hands.builtin.container import ContainerType
from hands.builtin.container_box import Hosting
from hands.builtin.plugin import PluginHand, end, make
from hands.builtin.sandboxed import Kind, check_least, without_env
from hands.builtin.supervised import PULSE, Pulse
from hands.contract import Health, Order, Provisioned, ProvisionFailed
from hands.isolation import bwrap

OF_CONTAINERS = ("image", "runtime", "workspace", "env", "egress")
"""What of a kind's config is the container's."""
_HANDS = Path(__file__).resolve().parents[1]
_CODE, _PACKAGES = "/opt/carpal-code", "/opt/carpal-packages"
"""Where hands see our own code, and the daemon's packages."""
_BEGIN = "from hands.plugins.host import main; main()"


class HostedContainers(ContainerType):
    """Makes hands of one kind in containers."""

    hand = PluginHand

    def __init__(
        self,
        kind: Kind,
        pulse: Pulse = PULSE,
        *,
        engine: str | None = None,
        pythons: Path | None = None,
    ) -> None:
        """As a container type is made; `kind` says the rest."""
        super().__init__(engine, pythons=pythons, pulse=pulse)
        self._kind = kind

    async def probe(self) -> Health:
        """Ready when an engine answers, and what the class needs is there."""
        if why := self._why_not():
            return Health(ready=False, broken=True, reason=why)
        return await super().probe()

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        """Make a container with a host in it, and have the class make the hand."""
        if why := self._why_not():
            raise ProvisionFailed(why, "see what it says, and `carpal hand check` on the machine")
        common.checked(self._kind.description.config_schema, order, apart=self._kind.apart)
        check_least(self._kind, order)
        noted.note(order.folder)
        ours = without_env(order).config if self._kind.apart else order.config
        config = {name: ours[name] for name in OF_CONTAINERS if name in ours}
        made = await super().provision(dataclasses.replace(order, config=config), progress)
        hand, name = made.hand, self._kind.description.type
        assert isinstance(hand, PluginHand)
        hand.limits = self._kind.limits
        try:
            result = await make(hand, name, order, progress, self._kind.provision_limit)
            tools = self._kind.listed(order.folder, result)
        except BaseException:
            await end(hand)
            raise
        note = f"{result.content} It runs in a container of the image {config['image']}."
        return dataclasses.replace(made, note=note, tools=tools)

    async def adopt(self, hand_id: str, folder: Path, state: Mapping[str, Any]) -> PluginHand:
        """Connect to the very supervisor that was started; its host never noticed."""
        hand = await super().adopt(hand_id, folder, state)
        assert isinstance(hand, PluginHand)
        hand.limits = self._kind.limits
        return hand

    def hosting(self, order: Order) -> Hosting:
        """The host, which sees our own code and the daemon's packages beside its Python."""
        packages = {path: f"{_PACKAGES}/{number}" for number, path in enumerate(_packages())}
        inside = common.INSIDE
        about = (inside["workspace"], order.hand_id, inside["folder"])
        return Hosting(
            container_python.hosting(
                (_CODE, *packages.values()),
                _BEGIN,
                ("run", self._kind.target, "{line}", *about),
            ),
            {_HANDS: f"{_CODE}/{_HANDS.name}", **packages},
            int(self._kind.defaults["memory_bytes"]),
        )

    def removed(self, folder: Path) -> None:
        """Nobody need look for it again."""
        noted.forget(folder)

    def _why_not(self) -> str:
        return self._kind.unready() or bwrap.unreadable()


def _packages() -> list[Path]:
    """Where the daemon's Python finds packages, in its order."""
    places = (Path(place) for place in sys.path)
    return [path for path in places if path.name in ("site-packages", "dist-packages")]
