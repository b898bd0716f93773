"""What to change when a server answers with a status where there is nothing to refuse. Pure."""

from collections.abc import Mapping

import grpc

_ALL_SERVE = frozenset({"Provision", "Execute", "Cancel", "Release"})
_CODES: Mapping[grpc.StatusCode, str] = {
    grpc.StatusCode.NOT_FOUND: "Keep the hand that Provision made under its hand_id until its "
    "Release, and take each tool that Describe lists.",
    grpc.StatusCode.UNAVAILABLE: "Keep the process and its connections up: it went away in the "
    "middle of it.",
    grpc.StatusCode.INVALID_ARGUMENT: "Take what fits the schemas of Describe, or say in them what "
    "you take.",
    grpc.StatusCode.CANCELLED: "End the stream yourself, with a result: nobody cancelled it.",
}


def change(rpc: str, code: grpc.StatusCode) -> str:
    """A sentence for whoever wrote what answered so; empty where the check itself says it."""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        if rpc in _ALL_SERVE:
            return f"Serve {rpc}: every hand server must."
        return f"Serve {rpc}, or take the capability that promises it out of Describe."
    if code in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL):
        if rpc == "Execute":
            return (
                "Catch what a tool raises, and end Execute with a `result` of OUTCOME_ERROR that "
                "says it: a status means that the call did not start."
            )
        if rpc == "Provision":
            return (
                "Read what it says, and the server's own output: its Provision raised, or the "
                "reset of the unit before it."
            )
        return f"Read the server's own output: its {rpc} raised."
    return _CODES.get(code, "")
