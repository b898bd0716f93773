"""What the vault did, for whom: written before it is done, each line chained to the one before."""
