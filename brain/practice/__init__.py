"""The practice model: a local server that speaks the Messages API and is not a model."""
