"""The operator's side of the `carpal` command: run, session and fleet."""
