"""The classes by which gRPC's calls are made and served, from the description of a service.

They are what gRPC's generator would write out: a third of a megabyte with its byte code, in which
nothing is said that the description does not say. Their types are in the `.pyi` files.
"""

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass


def service(file: FileDescriptor, name: str) -> tuple[type, type, Callable[[Any, Any], None]]:
    """Service `name` of `file`: its stub, its servicer, and what adds a servicer to a server."""
    described = file.services_by_name[name]
    methods = list(described.methods)

    def dialled(self: Any, channel: Any) -> None:
        for method in methods:
            asked, answered = _messages(method)
            made = getattr(channel, _kind(method))(
                f"/{described.full_name}/{method.name}",
                request_serializer=asked.SerializeToString,
                response_deserializer=answered.FromString,
                _registered_method=True,
            )
            setattr(self, method.name, made)

    def add(servicer: Any, server: Any) -> None:
        handlers = {}
        for method in methods:
            asked, answered = _messages(method)
            handlers[method.name] = getattr(grpc, f"{_kind(method)}_rpc_method_handler")(
                getattr(servicer, method.name),
                request_deserializer=asked.FromString,
                response_serializer=answered.SerializeToString,
            )
        generic = grpc.method_handlers_generic_handler(described.full_name, handlers)
        server.add_generic_rpc_handlers((generic,))
        server.add_registered_method_handlers(described.full_name, handlers)

    stub = type(f"{name}Stub", (), {"__init__": dialled})
    servicer = type(f"{name}Servicer", (), dict.fromkeys((it.name for it in methods), _not_served))
    return stub, servicer, add


def _not_served(self: object, request: object, context: grpc.ServicerContext) -> None:
    context.set_code(grpc.StatusCode.UNIMPLEMENTED)
    context.set_details("Method not implemented!")
    raise NotImplementedError("Method not implemented!")


def _messages(method: MethodDescriptor) -> tuple[Any, Any]:
    return GetMessageClass(method.input_type), GetMessageClass(method.output_type)


def _kind(method: MethodDescriptor) -> str:
    ends = (method.client_streaming, method.server_streaming)
    return "_".join("stream" if streams else "unary" for streams in ends)
