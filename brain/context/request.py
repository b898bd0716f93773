"""The request for the conversation's next reply: transcript → the Messages API's parameters. Pure.

The same transcript gives the same request, to the byte: `carpal session request`
makes it again from the log alone.
"""

import hashlib
from typing import Any

from brain.context import cache
from brain.context.conversation import Piece, joined
from brain.context.policies import policy_of
from brain.context.settings import MAX_TOKENS, settings
from brain.effects import CallModel
from brain.models import features, media
from brain.session.transcript import Transcript
from brain.text import canonical
from brain.tools import toolsets
from brain.tools.offered import offered

Json = dict[str, Any]


def next_reply(transcript: Transcript) -> CallModel:
    """The call of the model that answers all the transcript has."""
    chosen = settings(transcript.agent)
    policy = policy_of(chosen)
    request = parameters(transcript, policy.pieces(transcript, chosen))
    choice = transcript.models.choice(transcript.agent)
    return CallModel(request, policy.NAME, transcript.head, provider=choice.provider)


def parameters(transcript: Transcript, pieces: list[Piece]) -> Json:
    """A request's parameters, for messages that a context policy chose."""
    agent = transcript.agent
    models = transcript.models
    choice = models.choice(agent)
    request: Json = {
        "model": choice.model,
        "max_tokens": agent.get("max_tokens") or MAX_TOKENS,
        "messages": joined(pieces),
    }
    if system := agent.get("system"):
        request["system"] = system
    if tools := offered(transcript):
        request["tools"] = tools
    if thinking := agent.get("thinking"):
        request["thinking"] = thinking
    request = toolsets.fitted(transcript, request)
    fitting = media.without(features.without(request, models.lacks(choice)), models.refused)
    if "cache_control" in models.lacks(choice):
        return fitting
    return cache.marked(fitting)


def digest(request: Json) -> str:
    """SHA-256, in hex, of the canonical JSON of what is sent."""
    return digest_of(canonical(request))


def digest_of(body: bytes) -> str:
    """Of a request that is canonical JSON already."""
    return hashlib.sha256(body).hexdigest()
