"""The contract serves synchronous clients too: any program that has plain grpc and the stubs."""

from concurrent.futures import ThreadPoolExecutor

import grpc
import grpc_testing

from carpal.v1 import hand_pb2, hand_pb2_grpc

HAND = hand_pb2.DESCRIPTOR.services_by_name["Hand"]
SECONDS = 10.0


def test_a_synchronous_client_asks_what_a_hand_offers() -> None:
    channel = grpc_testing.channel([HAND], grpc_testing.strict_real_time())
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(hand_pb2_grpc.HandStub(channel).Describe, hand_pb2.DescribeRequest())
        _, request, rpc = channel.take_unary_unary(HAND.methods_by_name["Describe"])
        assert request == hand_pb2.DescribeRequest()
        offered = hand_pb2.DescribeResponse(types=[hand_pb2.HandTypeInfo(type="process")])
        rpc.send_initial_metadata(())
        rpc.terminate(offered, (), grpc.StatusCode.OK, "")
        assert asking.result(SECONDS).types[0].type == "process"


def test_a_synchronous_client_reads_output_and_then_the_one_result() -> None:
    channel = grpc_testing.channel([HAND], grpc_testing.strict_real_time())
    request = hand_pb2.ExecuteRequest(hand_id="h", call_id="c", name="bash", input=b"{}")
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: list(hand_pb2_grpc.HandStub(channel).Execute(request)))
        _, asked, rpc = channel.take_unary_stream(HAND.methods_by_name["Execute"])
        assert asked == request
        rpc.send_initial_metadata(())
        rpc.send_response(hand_pb2.ExecuteResponse(output=hand_pb2.OutputChunk(data=b"hi\n")))
        result = hand_pb2.Result(outcome=hand_pb2.OUTCOME_OK, content="hi")
        rpc.send_response(hand_pb2.ExecuteResponse(result=result))
        rpc.terminate((), grpc.StatusCode.OK, "")
        chunks, last = reading.result(SECONDS)
    assert chunks.output.data == b"hi\n"
    assert last.result.content == "hi"
