"""Small statistics for lists of numbers."""


def mean(values):
    """The arithmetic mean; an empty list has none."""
    if not values:
        raise ValueError("mean of an empty list")
    return sum(values) / len(values)


def median(values):
    """The middle value; halfway between the two middle ones when there are two."""
    if not values:
        raise ValueError("median of an empty list")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return ordered[middle]
    return (ordered[middle] + ordered[middle + 1]) / 2


def spread(values):
    """The distance between the smallest and the largest value."""
    if not values:
        raise ValueError("spread of an empty list")
    return max(values) - min(values)
