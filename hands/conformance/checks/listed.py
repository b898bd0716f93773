"""What a hand says of its own tools, where its type has none for all."""

from carpal.verdict import equal, must
from hands.conformance.bench import Bench
from hands.conformance.group import Group

lists_tools = Group("lists_tools")


@lists_tools("h22")
async def listed_by_the_hand(bench: Bench) -> None:
    """A provision's result lists the hand's own tools, at least one, and Describe lists none."""
    equal("the tools that Describe lists", bench.subject.described, 0)
    result = await bench.provision(bench.order())
    must(bool(result.tools), "the result lists no tool")


@lists_tools("h22", "h43", daemons=True)
async def listed_again(bench: Bench) -> None:
    """A hand's tools stay the same when its provision is asked again."""
    request = bench.order()
    first = await bench.provision(request)
    again = await bench.provision(request)
    equal("the tools, again", [*again.tools] == [*first.tools], True)
