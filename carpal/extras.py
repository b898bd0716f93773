"""How a part that an extra brings is installed: said in one way, whoever misses it. Pure.

There is no release in a registry, and the name there may be another's: so a clone is named.
"""


def how(name: str) -> str:
    """What to do for the extra `name`, whether Carpal came by pip or by a bundle."""
    return f"pip install '/path/to/clone[{name}]', or a bundle made with `--extra {name}`"
