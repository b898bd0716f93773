"""The contract's checks: hold any hand type to it, through any server of the Hand service."""
