"""The safe: every sealed value of the vault, in its place, under a manifest over all of them."""
