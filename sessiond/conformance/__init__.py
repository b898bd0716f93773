"""The contract's checks: hold any Session service to it, over the wire."""
