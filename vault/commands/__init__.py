"""The commands of `carpal vault`: a file for each group, and beside it what it does."""
