"""Saying something to a session: an inbox event that wakes it."""

import json

from carpal.ids import new_id
from carpal.operator.agent import message_data
from carpal.operator.changing import change
from carpal.operator.connection import Operator
from carpal.v1 import session_pb2, types_pb2


async def send_message(operator: Operator, session_id: str, text: str) -> types_pb2.Event:
    """Append a `user.message`; the event as the log has it."""
    return await _emit(operator, session_id, "user.message", message_data(text))


async def send_interrupt(operator: Operator, session_id: str) -> types_pb2.Event:
    """Append a `user.interrupt`: the running call is cancelled and the session goes idle."""
    return await _emit(operator, session_id, "user.interrupt", b"{}")


async def send_save(operator: Operator, session_id: str, hand: str) -> types_pb2.Event:
    """Append a `user.save`: the workspace of the hand of that name, or the default one."""
    data = {"hand": hand} if hand else {}
    return await _emit(operator, session_id, "user.save", json.dumps(data).encode())


async def send_confirmation(
    operator: Operator, session_id: str, call_id: str, *, allow: bool, message: str = ""
) -> types_pb2.Event:
    """Append a `user.tool_confirmation`: the first one that counts decides the call."""
    said = {"tool_use_id": call_id, "result": "allow" if allow else "deny"}
    if message:
        said["deny_message"] = message
    data = json.dumps(said, ensure_ascii=False).encode()
    return await _emit(operator, session_id, "user.tool_confirmation", data)


async def send_consent(
    operator: Operator, session_id: str, consent_id: str, *, given: bool, message: str = ""
) -> types_pb2.Event:
    """Append a `user.consent`: there is a credential now, and what waited for it is tried again.

    Or there will be none, and the model is told.
    """
    said = {"consent_id": consent_id, "result": "given" if given else "denied"}
    if message:
        said["message"] = message
    data = json.dumps(said, ensure_ascii=False).encode()
    return await _emit(operator, session_id, "user.consent", data)


async def _emit(operator: Operator, session_id: str, kind: str, data: bytes) -> types_pb2.Event:
    event = types_pb2.NewEvent(id=new_id("sevt"), type=kind, data=data)
    request = session_pb2.EmitEventRequest(session_id=session_id, event=event, wake=True)
    answer = await change(
        operator,
        lambda timeout: operator.sessions.EmitEvent(request, timeout=timeout),
        look="it may have been accepted: look with "
        f"`carpal session tail {session_id}` before you send it again",
    )
    return answer.event
