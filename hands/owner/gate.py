"""The one gate for what is asked of this machine: the owner's policy, and then the audit.

Every hand, call, save and person passes here, of whatever type. What is refused is in the audit
too. What hands say goes out by `hands/owner/outward.py`, and the audit has its digests.
"""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carpal.errors import CarpalError, refuse
from carpal.mounts import Mount
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.contract import Call, Description, Order
from hands.owner.audit import Audit, refusal
from hands.owner.outward import Outward
from hands.owner.policy import NOTHING_SAID, Policy
from hands.owner.policy_file import PolicyFile


@dataclass(frozen=True)
class Person:
    """A person who asks to enter a hand."""

    operator: str
    """SPIFFE URI, as the brain says."""
    workspace: str
    hand_type: str
    kind: str
    """`shell`, `copy`, `forward`, `view` or `control`."""
    take: bool
    """The hand's calls are to wait: that is `control`, and to be allowed too."""
    hand_id: str
    session_id: str
    tunnel_id: str


class Gate:
    """Of one daemon."""

    def __init__(self, file: PolicyFile | None = None, audit: Audit | None = None) -> None:
        """Without `file` there is no policy, and without `audit` nothing is written down."""
        self._file = file
        self._audit = audit
        self.outward = Outward(lambda: self.policy)
        """By which all that hands say leaves."""
        self.changed: list[Callable[[Policy], None]] = []
        """Each is told a policy that came into force."""

    @property
    def policy(self) -> Policy:
        """As it is in force."""
        return self._file.policy if self._file else NOTHING_SAID

    @property
    def problem(self) -> str:
        """Why nothing new is done; empty while the audit can be written."""
        return self._audit.problem if self._audit else ""

    def close(self) -> None:
        """The daemon ends."""
        if self._audit is not None:
            self._audit.close()

    def started(self, version: str) -> None:
        """The daemon starts: whoever reads the audit knows by which policy."""
        self.note("started", version=version, **self._by())

    def reload(self) -> None:
        """Read the policy again. Raises what is wrong with it; then the one before stays."""
        if self._file is None:
            return
        if error := self._file.reload():
            self.note("policy_refused", **refusal(error))
            raise error
        if self._audit is not None:
            self._audit.copy_to(self.policy.syslog)
        self.note("policy", **self._by())
        for tell in self.changed:
            tell(self.policy)

    # What is asked.

    @contextmanager
    def asked(self, what: str, **facts: str) -> Iterator[None]:
        """Around a request: its refusal is written down."""
        try:
            yield
        except CarpalError as error:
            self.note("refused", asked=what, **facts, **refusal(error))
            raise

    def provision(
        self,
        request: pb.ProvisionRequest,
        order: Order,
        description: Description,
        mounted: list[Mount],
        digest: bytes,
    ) -> Order:
        """A hand that may be made, with the owner's limits where none is asked for."""
        policy, driver, type_name = self.policy, request.driver, request.type
        policy.check_workspace(driver.workspace)
        policy.check_type(type_name)
        isolated = "isolated" in description.capabilities
        folder = order.config.get("workspace")  # of any type: what has that name is the machine's
        real = _real(folder) if isinstance(folder, str) else ""
        nested = "namespaces" in description.capabilities
        policy.check_config(type_name, order.config, real, isolated=isolated, namespaces=nested)
        cartridge = order.config.get("cartridge")
        if isinstance(cartridge, str) and cartridge.startswith("/"):
            policy.check_path("config.cartridge", cartridge, _real(cartridge))
        policy.check_mounts(mounted)
        given = request.HasField("orphan_deadline")
        allowed = dataclasses.replace(
            order,
            limits=policy.within(order.limits),
            orphan_deadline=policy.orphan_seconds(order.orphan_deadline, given=given),
        )
        self._write(
            "provision",
            hand=order.hand_id,
            type=type_name,
            session=driver.session_id,
            epoch=driver.epoch,
            sha256=digest.hex(),
        )
        return allowed

    def call(
        self, driver: pb.Driver, hand: tuple[str, str], call: Call, given: bytes, digest: bytes
    ) -> Call:
        """A call that may run, within the owner's time; `hand` is its id and type.

        `given` is its input, `digest` that over the tool and it.
        """
        policy, (hand_id, type_name) = self.policy, hand
        policy.check_workspace(driver.workspace)
        policy.check_type(type_name)
        policy.check_tool(type_name, call.tool)
        policy.check_time_of(call.input)
        ceiling = policy.call_seconds(call.time_limit)
        self._write(
            "call",
            hand=hand_id,
            call=call.call_id,
            session=driver.session_id,
            epoch=driver.epoch,
            tool=call.tool,
            input_bytes=len(given),
            sha256=digest.hex(),
        )
        return dataclasses.replace(call, ceiling=ceiling)

    def save(self, driver: pb.Driver, hand_id: str, type_name: str, save_id: str) -> None:
        """A workspace that may leave the machine."""
        self.policy.check_workspace(driver.workspace)
        self.policy.check_type(type_name)
        self._write("save", hand=hand_id, save=save_id, session=driver.session_id)

    def enter(self, person: Person) -> None:
        """A person who may enter a hand. POLICY_FORBIDS, AUDIT_NOT_WRITTEN."""
        who = {
            "tunnel": person.tunnel_id,
            "hand": person.hand_id,
            "session": person.session_id,
            "kind": person.kind,
            "type": person.hand_type,
            "operator": person.operator,
            "control": "yes" if person.take else "no",
        }
        with self.asked("enter", **who):
            self.check_person(person)
            self._write("entered", **who)

    def check_person(self, person: Person) -> None:
        """Who may be in a hand, as the policy is now. POLICY_FORBIDS."""
        self.policy.check_workspace(person.workspace)
        self.policy.check_type(person.hand_type)
        self.policy.check_entry(person.kind)
        if person.kind == "control":  # of what is seen
            self.policy.check_entry("view")
        if person.take:
            self.policy.check_entry("control")

    def note(self, what: str, **facts: Any) -> None:
        """Something happened: the audit has it in a moment."""
        if self._audit is not None:
            self._audit.note(what, **facts)

    def of_owner(self, error: CarpalError, asked: Mapping[str, float]) -> CarpalError:
        """A refusal of a limit that only the owner asked for says that it is theirs."""
        name = error.fields.get("field", "").removeprefix("limits.")
        if error.reason is not Reason.LIMIT_NOT_ENFORCEABLE or name in asked:
            return error
        if name not in self.policy.limits:
            return error
        whose = f"{error.message}{self.rule_of(name)}"
        return refuse(error.reason, whose, action="ask the machine's owner", **{
            key: value for key, value in error.fields.items() if key != "action"
        })  # fmt: skip

    def rule_of(self, limit: str) -> str:
        """In brackets, by which rule a limit holds; empty when it is not the owner's."""
        policy = self.policy
        return f" (limits.{limit} in {policy.file})" if limit in policy.limits else ""

    def says(self, event: pb.EventsResponse) -> None:
        """What a hand said unasked leaves, as it is here; the audit has it in a moment."""
        self.note(
            "said",
            hand=event.hand_id,
            event=event.event_id,
            kind=event.kind,
            output_bytes=len(event.data),
            sha256=hashlib.sha256(event.data).hexdigest(),
        )

    def became(self, what: str, **facts: Any) -> None:
        """What the journal has now of a hand, a call or a save; of what it gave only digests."""
        if what == "ended" and self._audit is not None:
            self._ended(**facts)
        elif what == "saved":
            saved = pb.Attachment.FromString(facts.pop("answer"))
            self.note(what, **facts, bytes=saved.size, sha256=saved.digest.hex())
        elif what != "ended":
            self.note(what, **facts)

    def _ended(self, hand: str, call: str, outcome: str, result: bytes) -> None:
        told = self.outward.result(pb.Result.FromString(result))
        attached = sum(each.size for each in told.attachments)
        self.note(
            "ended",
            hand=hand,
            call=call,
            outcome=outcome,
            output_bytes=told.output_bytes,
            attached_bytes=attached + sum(each.size for each in told.files if each.kept),
            sha256=hashlib.sha256(told.content.encode()).hexdigest(),
        )

    def _by(self) -> dict[str, str]:
        return {"policy": self.policy.file, "sha256": self.policy.digest}

    def _write(self, what: str, **facts: Any) -> None:
        if self._audit is not None:
            self._audit.write(what, **facts)


def _real(path: str) -> str:
    """The path with its symlinks followed; empty for what is no path, which no folder allows."""
    try:
        return os.path.realpath(path)
    except ValueError:  # a NUL in it, or half of a surrogate pair
        return ""


def audited(folder: Path, file: PolicyFile) -> Gate:
    """The gate of the daemon whose files are in `folder`."""
    return Gate(file, Audit(folder, syslog=file.policy.syslog))
