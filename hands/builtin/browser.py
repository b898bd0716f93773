"""The browser hand: Debian's Chromium, one for each hand, in a sandbox, with its own sandbox on.

What runs in it is `hands/browser/`, which the daemon does not import.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from carpal import extras
from carpal.errors import invalid
from carpal.pictures import fit
from hands.browser.members import MEMBERS, OFF, TIME_LIMIT, TOOLSET, VIEWPORT
from hands.builtin import common, egress
from hands.builtin.sandboxed import Kind, SandboxedType
from hands.builtin.supervised import PULSE, Pulse
from hands.contract import Description, Order, Provisioned, Tool
from hands.inside.schema import check

PROGRAM = Path("/usr/lib/chromium/chromium")
_POLICIES = Path(__file__).resolve().parents[1] / "browser" / "policies"
_LEAST = {"memory_bytes": 400 * 1024**2, "processes": 256}
"""Of one with a plain page; of processes also threads count."""
_MEMORY = 2 * 1024**3
"""Bytes, where nothing else is asked for: three heavy pages, and no more of the machine."""
HOME = 512 * 1024**2
"""Bytes of its profile at most, and a quarter of its memory: what pages keep there is no file of
the machine's."""
_USER_NAMESPACES = Path("/proc/sys/user/max_user_namespaces")
_SIDE = {"type": "integer", "minimum": 200, "maximum": 1568}
_CONFIG_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "workspace": common.WORKSPACE,
        "egress": egress.SCHEMA,
        "allow": {
            "type": "array",
            "items": {"type": "string", "enum": [*sorted(OFF), "downloads"]},
            "description": "What is off unless it is named here.",
        },
        "dialogs": {
            "type": "string",
            "enum": ["dismiss", "accept"],
            "description": "How a page's alerts, questions and prompts are answered.",
        },
        "viewport": {
            "type": "object",
            "properties": {"width": _SIDE, "height": _SIDE},
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}


def unready() -> str:
    """What a browser hand lacks on this machine; empty when nothing."""
    if find_spec("playwright") is None:
        return f"Playwright is not installed: {extras.how('browser')}"
    if not PROGRAM.exists():
        return f"Chromium is not installed ({PROGRAM} is not there): apt-get install chromium"
    try:
        if int(_USER_NAMESPACES.read_text()) < 1:
            return "the kernel allows no user namespaces, which Chromium's own sandbox needs"
    except (OSError, ValueError):
        return ""  # a kernel that does not say so has no such limit
    return ""


class BrowserType(SandboxedType):
    """Hands that are browsers."""

    def __init__(self, pulse: Pulse = PULSE) -> None:
        """`pulse`: how a supervisor that hangs is noticed."""
        tools = [Tool(each.name, each.description, each.schema) for each in MEMBERS.values()]
        super().__init__(
            Kind(
                Description(
                    type="browser",
                    description="A web browser: Chromium, in a sandbox of its own.",
                    tools=tools,
                    config_schema=_CONFIG_SCHEMA,
                    capabilities=("adopt", "visual", "view", "control", "namespaces", TOOLSET),
                ),
                target="hands.browser.hand:Browser",
                limits=dict.fromkeys(MEMBERS, TIME_LIMIT),
                defaults={"memory_bytes": _MEMORY},
                least=_LEAST,
                unready=unready,
                readable=[
                    (Path("/etc/fonts"), "/etc/fonts"),
                    (_POLICIES, "/etc/chromium/policies"),
                ],
                namespaces=True,
                provision_limit=90.0,
                home_max=HOME,
                environment={"PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "1", "LANG": "C.UTF-8"},
            ),
            pulse,
        )

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        """As any; its viewport must be one whose pictures a model sees as they are."""
        if not check(_CONFIG_SCHEMA, dict(order.config), "config"):
            wide, high = ({**VIEWPORT, **order.config.get("viewport", {})}[s] for s in VIEWPORT)
            seen = fit(wide, high)
            if (seen.width, seen.height) != (wide, high):
                raise invalid(
                    "config.viewport",
                    f"{wide}x{high} is larger than a model sees; of that shape "
                    f"{seen.width}x{seen.height} is the largest",
                )
        return await super().provision(order, progress)
