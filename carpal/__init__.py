"""What all Carpal processes share. It imports none of them."""

import os

# grpc reads this once, when it is imported; without it, children spawned
# while streams are live crash before exec. tests/test_fork_safety.py.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Its core writes to stderr by itself what we say in one clear line.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

__version__ = "0.1.0"
