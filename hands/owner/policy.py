"""What the machine's owner allows: the last word, which no brain can widen. Pure.

A key that is not given leaves its matter open, but for `people`: nobody enters a hand unless the
file says so. A list that is empty allows nothing. What is asked for beyond a limit is refused and
never cut down; a refusal names the key and the file, so that both ends know whose word it was.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from carpal.errors import CarpalError, invalid, refuse
from carpal.mounts import Mount
from carpal.status import Reason
from hands.forwarder import hosts
from hands.forwarder.paths import fits
from hands.forwarder.rules import Rule, parse
from hands.owner.redact import Redactor

LIMITS = ("memory_bytes", "disk_bytes", "processes", "cpus")
"""Of a hand, each at most what the owner gives one; a hand that asks for none gets that."""
ENTRIES = ("shell", "copy", "forward", "view", "control")
MOUNTS = ("blob", "tar", "text", "git")
_MS_MAX = 10**15


@dataclass(frozen=True)
class Policy:
    """One owner's. `None` is a key that is not given."""

    file: str = ""
    """Where it was read; empty when there is none, and everything but entering is allowed."""
    digest: str = ""
    """SHA-256 of the file, in hex."""
    workspaces: tuple[str, ...] | None = None
    types: tuple[str, ...] | None = None
    tools: tuple[tuple[str, str], ...] | None = None
    """Type and tool each, `*` for any."""
    images: tuple[str, ...] | None = None
    folders: tuple[str, ...] | None = None
    """Folders of the machine that may be a hand's workspace, they and what is below."""
    mounts: tuple[str, ...] | None = None
    """Kinds of sources."""
    hosts: tuple[Rule, ...] | None = None
    """What hands may reach."""
    open_network: tuple[str, ...] = ()
    """Types whose network is the machine's, and which may be made all the same."""
    namespaces: tuple[str, ...] | None = None
    """Types whose hands may have a sandbox in which others can be made."""
    people: tuple[str, ...] = ()
    """What a person may do inside a hand."""
    limits: Mapping[str, float] = field(default_factory=dict)
    redactor: Redactor = field(default_factory=lambda: Redactor(()))
    syslog: str = ""
    """Socket that gets a copy of the audit; empty for none."""

    def offers(self, type_name: str) -> bool:
        """Whether hands of the type may be."""
        return _names(self.types, type_name)

    def offers_tool(self, type_name: str, tool: str) -> bool:
        """Whether a hand of the type may run the tool."""
        if self.tools is None:
            return True
        return any(of in ("*", type_name) and each in ("*", tool) for of, each in self.tools)

    def check_workspace(self, workspace: str) -> None:
        """POLICY_FORBIDS, as all below."""
        if self.workspaces is not None and workspace not in self.workspaces:
            raise self._forbids("workspaces", f"workspace {workspace!r}", self.workspaces)

    def check_type(self, type_name: str) -> None:
        """Of a hand to be made, or of one that is there."""
        if not self.offers(type_name):
            raise self._forbids("types", f"hand type {type_name!r}", self.types)

    def check_config(
        self,
        type_name: str,
        config: Mapping[str, Any],
        real: str,
        *,
        isolated: bool,
        namespaces: bool = False,
    ) -> None:
        """What a hand's configuration asks of the machine; `real` is its workspace resolved.

        `namespaces`: every hand of the type has what others have by `config.namespaces`.
        """
        image = config.get("image")
        if image is not None:
            self.check_type("container")  # whatever the type is called, it makes one
        if image is not None and not _fits_one(str(image), self.images):
            raise self._forbids("images", f"config.image {image!r}", self.images)
        given = config.get("workspace")
        if given is not None:
            self.check_path("config.workspace", str(given), real)
        if (namespaces or config.get("namespaces")) and not _names(self.namespaces, type_name):
            asked = f"config.namespaces of a {type_name} hand"
            if namespaces:
                asked = f"a {type_name} hand, in which sandboxes of its own are made,"
            raise self._forbids("namespaces", asked, self.namespaces)
        if self.hosts is None:
            return
        if not isolated and type_name not in self.open_network:
            raise self._forbids(
                "hosts", f"a {type_name} hand here has the machine's network, which"
            )
        for index, rule in enumerate(parse(config.get("egress", []))):
            self._check_host(rule, f"config.egress[{index}]")

    def check_path(self, field: str, given: str, real: str) -> None:
        """A path of the machine's that is asked for; `real` is it resolved."""
        if not all(_below(path, self.folders) for path in (given, real)):
            raise self._forbids("folders", f"{field} {given!r}", self.folders)

    def takes(self, kind: str) -> bool:
        """Whether such a source may come into a hand."""
        return self.mounts is None or kind in self.mounts

    def check_mounts(self, mounts: Iterable[Mount]) -> None:
        """Their kinds, and where repositories come from."""
        for index, mount in enumerate(mounts):
            if not self.takes(mount.kind):
                raise self._forbids("mounts", f"mounts[{index}], a {mount.kind}:", self.mounts)
            if mount.kind == "git" and self.hosts is not None:
                (rule,) = parse([{"host": urlsplit(mount.source).netloc}], "mounts")
                self._check_host(rule, f"mounts[{index}]")

    def within(self, limits: Mapping[str, float]) -> dict[str, float]:
        """A hand's limits: those asked for, and the owner's where none is."""
        for name, asked in limits.items():
            self._check_limit(name, asked, f"limits.{name}")
        own = {name: value for name, value in self.limits.items() if name in LIMITS}
        return {**own, **limits}

    def orphan_seconds(self, asked: float, *, given: bool) -> float:
        """A hand's orphan deadline, `given` or the usual one."""
        if given:
            self._check_limit("orphan_seconds", asked, "orphan_deadline")
        return min(asked, self.limits.get("orphan_seconds", asked))

    def call_seconds(self, asked: float) -> float:
        """What a call may take at most, 0 for any; `asked` is its time limit, 0 for none."""
        self._check_limit("call_seconds", asked, "time_limit")
        return self.limits.get("call_seconds", 0.0)

    def hands_max(self, otherwise: int) -> int:
        """Hands at once."""
        return int(min(otherwise, self.limits.get("hands_max", otherwise)))

    def check_tool(self, type_name: str, tool: str) -> None:
        """Of a call."""
        if not self.offers_tool(type_name, tool):
            named = tuple(f"{of}/{each}" for of, each in self.tools or ())
            raise self._forbids("tools", f"tool {type_name}/{tool}", named)

    def check_entry(self, kind: str) -> None:
        """Of a person who wants into a hand."""
        if kind in self.people:
            return
        if self.file:
            raise self._forbids("people", f"{kind} by a person", self.people)
        raise refuse(
            Reason.POLICY_FORBIDS,
            f"{kind} by a person is not allowed: this machine's owner wrote no policy, and without "
            "one nobody enters",
            action=f'ask the machine\'s owner for a line `people = ["{kind}"]` in '
            "/etc/carpal/policy.toml, or whatever file its hand.toml names",
            rule="people",
        )

    def check_time_of(self, given: Mapping[str, Any]) -> None:
        """A tool's own time limit, where its input names one in `timeout_ms`."""
        asked = given.get("timeout_ms")
        if isinstance(asked, int | float):
            asked = min(asked, _MS_MAX)  # of any size, where a tool's schema says none
            self._check_limit("call_seconds", asked / 1000, "input.timeout_ms, in seconds,")

    def _check_limit(self, name: str, asked: float, what: str) -> None:
        most = self.limits.get(name)
        if most is not None and asked > most:
            raise self._forbids(f"limits.{name}", f"{what} {asked:g}, above {most:g},")

    def _check_host(self, rule: Rule, what: str) -> None:
        assert self.hosts is not None
        if not any(covers(allowed, rule) for allowed in self.hosts):
            host = rule.host if rule.port is None else hosts.joined(rule.host, rule.port)
            raise self._forbids("hosts", f"{what}: {host}", [each.host for each in self.hosts])

    def _forbids(self, rule: str, what: str, allowed: Sequence[str] | None = None) -> CarpalError:
        only, action = "", "ask for what it allows, or ask the machine's owner"
        if allowed is not None:
            only = f"; it allows {', '.join(sorted(allowed)[:8]) or 'none'}"
            action = action if allowed else "ask the machine's owner"
        return refuse(
            Reason.POLICY_FORBIDS,
            f"{what} is not allowed by {rule} in {self.file}, the policy of this machine's owner"
            + only,
            action=action,
            rule=rule,
            file=self.file,
        )


def covers(allowed: Rule, asked: Rule) -> bool:
    """Whether all that a hand's rule lets out, an owner's allows too."""
    if allowed.port != asked.port and not (allowed.port is None and asked.port in (80, 443)):
        return False
    if allowed.host == asked.host:
        return True
    name = asked.host.removeprefix("*.")
    return (
        allowed.host.startswith("*.")
        and name.endswith(allowed.host[1:])
        and hosts.address(name) is None
    )


def _names(allowed: Sequence[str] | None, name: str) -> bool:
    return allowed is None or name in allowed


def _fits_one(text: str, patterns: Sequence[str] | None) -> bool:
    return patterns is None or any(fits(pattern, text) for pattern in patterns)


def _below(path: str, folders: Sequence[str] | None) -> bool:
    if folders is None:
        return True
    parts = path.split("/")
    if not path.startswith("/") or ".." in parts:
        return False
    plain = "/" + "/".join(part for part in parts if part not in ("", "."))
    return any(plain == each or plain.startswith(each.rstrip("/") + "/") for each in folders)


NOTHING_SAID = Policy()
"""Of a machine whose owner wrote no file."""


def check_absolute(path: str, what: str) -> str:
    """An absolute path in its plain form. INVALID_FIELD."""
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise invalid(what, f"{path!r} is not an absolute path without '..'")
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
