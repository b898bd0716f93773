"""The call of the model that was made of a log, once more. Pure."""

from brain.context.request import next_reply
from brain.context.window import next_cut
from brain.effects import CallModel
from brain.session.transcript import Transcript
from carpal.errors import refuse
from carpal.status import Reason


def made_again(transcript: Transcript, purpose: str, policy: str) -> CallModel:
    """The call that was made of this transcript, to a purpose, by a policy.

    CONFIG_INVALID when this brain has no such policy.
    """
    call = next_cut(transcript) if purpose == "compaction" else next_reply(transcript)
    if not isinstance(call, CallModel) or (call.purpose, call.policy) != (purpose, policy):
        raise refuse(
            Reason.CONFIG_INVALID,
            f"this brain does not know how policy {policy!r} makes a request for a {purpose}",
            action="use the version of Carpal that recorded it",
        )
    return call
