"""Keys of model services, which brains use by an alias and never have."""
