"""All that hands say leaves the machine by here, with the owner's patterns struck out of it.

What the daemon keeps in its own folder, so that it may be asked for again, is what the hand said.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import IO

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.owner.policy import Policy
from hands.owner.redact import Redactor

_PIECE = 1024 * 1024
_ANY = b'{"type": "object"}'
"""The schema of whatever it may be."""


class Outward:
    """Of one daemon."""

    def __init__(self, policy: Callable[[], Policy]) -> None:
        """`policy` gives the one that is in force."""
        self._policy = policy

    @property
    def redactor(self) -> Redactor:
        """What is struck out now."""
        return self._policy().redactor

    def error(self, error: CarpalError) -> CarpalError:
        """A refusal as it may leave: a hand type words some of them, and names their fields."""
        if self.redactor:
            error.message = self.redactor.text(error.message)
            error.fields = {key: self.redactor.text(text) for key, text in error.fields.items()}
        return error

    def text(self, text: str) -> str:
        """Words as they may leave."""
        return self.redactor.text(text) if self.redactor else text

    def passes(self, *words: str) -> bool:
        """Whether these may leave as they are."""
        return all(self.text(each) == each for each in words)

    def result(self, result: pb.Result) -> pb.Result:
        """A result as it may leave."""
        if not self.redactor:
            return result
        passed = pb.Result()
        passed.CopyFrom(result)
        passed.content = self.text(result.content)
        for change in passed.files:
            change.path = self.text(change.path)
        for attached in passed.attachments:
            attached.name = self.text(attached.name)
            attached.media_type = self.text(attached.media_type)
            if self.redactor.finds(attached.data):
                attached.data = b""
        return passed

    def made(self, step: pb.ProvisionResponse, type_name: str) -> pb.ProvisionResponse:
        """What a provision says, as it may leave; of a hand's own tools which it may run."""
        if not self.redactor and not step.result.tools:
            return step
        passed = pb.ProvisionResponse()
        passed.CopyFrom(step)
        if step.HasField("progress"):
            passed.progress.message = self.text(step.progress.message)
        else:
            passed.result.note = self.text(step.result.note)
            passed.result.not_enforced[:] = map(self.text, step.result.not_enforced)
            policy = self._policy()
            passed.result.forbidden_tools[:] = [
                tool.name
                for tool in step.result.tools
                if not policy.offers_tool(type_name, tool.name) and self.passes(tool.name)
            ]
            del passed.result.tools[:]
            passed.result.tools.extend(self._tools(step.result.tools, type_name))
        return passed

    def health(self, found: pb.ProbeResponse) -> pb.ProbeResponse:
        """Whether a type can provision, as it may leave."""
        not_enforceable = map(self.text, found.not_enforceable)
        return pb.ProbeResponse(
            state=found.state, reason=self.text(found.reason), not_enforceable=not_enforceable
        )

    def described(self, info: pb.HandTypeInfo) -> pb.HandTypeInfo:
        """What a type says of itself, as it may leave; what is called by a match is left out."""
        if not self.redactor:
            return info
        passed = pb.HandTypeInfo(
            type=info.type,
            description=self.text(info.description),
            tools=self._tools(info.tools, info.type),
            config_schema=self._schema(info.config_schema),
            capabilities=filter(self.passes, info.capabilities),
            forbidden_tools=filter(self.passes, info.forbidden_tools),
        )
        for unit in info.units:
            if self.passes(unit.unit_id):
                told = passed.units.add()
                told.CopyFrom(unit)
                told.reason = self.text(unit.reason)
                told.labels.clear()
                for name, value in unit.labels.items():
                    told.labels[self.text(name)] = self.text(value)
        return passed

    def _tools(self, tools: Iterable[pb.ToolInfo], type_name: str) -> Iterator[pb.ToolInfo]:
        for tool in tools:
            if not self._policy().offers_tool(type_name, tool.name) or not self.passes(tool.name):
                continue
            passed = pb.ToolInfo()
            passed.CopyFrom(tool)
            passed.description = self.text(tool.description)
            passed.input_schema = self._schema(tool.input_schema)
            yield passed

    def _schema(self, schema: bytes) -> bytes:
        # With something struck out of it, it would be none: it says no more then.
        return _ANY if self.redactor.finds(schema) else schema

    def content_check(self) -> Callable[[IO[bytes]], None] | None:
        """What looks at a file that is to leave; None when there is nothing to strike out."""
        return self._check_content if self.redactor else None

    def _check_content(self, content: IO[bytes]) -> None:
        """POLICY_FORBIDS for a file in which there is something to strike out. Reads it all."""
        redactor = self.redactor
        content.seek(0)
        before = b""
        while piece := content.read(_PIECE):
            if redactor.finds(before + piece):
                raise refuse(
                    Reason.POLICY_FORBIDS,
                    "a file stays on its machine: what is in it is to be struck out, by redact in "
                    f"{self._policy().file}, the policy of this machine's owner",
                    rule="redact",
                    file=self._policy().file,
                )
            before = piece[-redactor.context :]
        content.seek(0)
