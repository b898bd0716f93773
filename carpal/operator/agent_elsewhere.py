"""What an agent needs of daemons and brains, held against those that answer now.

It is no mistake of the agent's: a daemon may link tomorrow, a provider be set up. So it is
said and nothing is refused; and nothing is said where no brain answers.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from carpal.agent import Agent, Fallback
from carpal.errors import CarpalError
from carpal.operator.connection import ANSWER_SECONDS, Operator
from carpal.v1 import orchestrator_pb2

if TYPE_CHECKING:
    from carpal.v1.orchestrator_pb2_grpc import OrchestratorAsyncStub

_LINKED = ("connected", "draining")


async def missing_elsewhere(operator: Operator, agent: Agent) -> list[str]:
    """A line for each thing that nobody has now."""

    async def ask(brain: "OrchestratorAsyncStub") -> orchestrator_pb2.ListDaemonsResponse:
        request = orchestrator_pb2.ListDaemonsRequest()
        return await brain.ListDaemons(request, timeout=ANSWER_SECONDS)

    try:
        told = await operator.ask_a_brain(ask, no_brain="no brain is running")
    except CarpalError:
        return []
    return missing(agent, told)


def missing(agent: Agent, told: orchestrator_pb2.ListDaemonsResponse) -> list[str]:
    """The same, of what a brain told."""
    return [*_types(agent, told), *_providers(agent, told)]


def _types(agent: Agent, told: orchestrator_pb2.ListDaemonsResponse) -> Iterator[str]:
    linked = [each for each in told.daemons if each.state in _LINKED]
    offered = sorted({kind for each in linked for kind in each.types})
    there = f"there is {', '.join(offered)}" if offered else "none is linked that offers any"
    for name, plan in agent.hands.items():
        if plan.type not in offered:
            yield (f"hands.{name}.type: no daemon that is linked now offers {plan.type!r}; {there}")


def _providers(agent: Agent, told: orchestrator_pb2.ListDaemonsResponse) -> Iterator[str]:
    named = {"provider": agent.provider}
    if isinstance(agent.fallback_model, Fallback):
        named["fallback_model.provider"] = agent.fallback_model.provider
    for key, name in named.items():
        if name and told.providers and name not in told.providers:
            yield (
                f"{key}: the brain that was asked has no provider {name!r}; "
                f"it has {', '.join(told.providers)}"
            )
