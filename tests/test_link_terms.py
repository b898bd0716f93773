"""What both ends take for granted is what the contract says."""

from carpal.link_terms import STREAMS, UNARY
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from hands.service import HandService


def test_each_request_of_the_contract_has_one_answer_or_many_as_its_method_says() -> None:
    arms = pb.Request.DESCRIPTOR.oneofs_by_name["call"].fields
    both_ways = {"tunnel"}
    assert {arm.name for arm in arms} == UNARY | STREAMS | both_ways
    hand = hand_pb2.DESCRIPTOR.services_by_name["Hand"]
    methods = {method.input_type.full_name: method for method in hand.methods}
    for arm in arms:
        asks = arm.message_type
        method = methods.get(asks.full_name) if asks else None
        if method is not None and arm.name not in both_ways:
            assert (arm.name in STREAMS) == method.server_streaming
            assert method.name == arm.name.title().replace("_", "")
            assert hasattr(HandService, arm.name)
