"""`google.rpc.Status` and its details, which every refusal carries, and gRPC's health protocol.

A process has room for one definition of a message. So where something else brought Google's own,
those are taken; else those that are generated here, from the same files in `proto/`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from carpal.rpc import error_details_pb2, health_pb2, status_pb2
else:
    try:
        from google.rpc import error_details_pb2, status_pb2
    except ImportError:
        from carpal.rpc import error_details_pb2, status_pb2
    try:
        from grpc_health.v1 import health_pb2
    except ImportError:
        from carpal.rpc import health_pb2

__all__ = ["error_details_pb2", "health_pb2", "status_pb2"]
