"""The commands of `carpal hand`, a file for each group."""
