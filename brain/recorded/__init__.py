"""What a log proves: the exact input of each model call, and what a harness would do now."""
