"""Which tools the model is offered, and those that the brain has of its own."""
