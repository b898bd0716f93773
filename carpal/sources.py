"""Who appended an event, as its `source` says. Pure."""


def is_of_role(uri: str, role: str) -> bool:
    """Whether a SPIFFE URI names a process of a role, such as `operator`."""
    return uri.partition("://")[2].split("/")[1:2] == [role]
