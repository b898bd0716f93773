"""`carpal hand doctor`: what of this machine and its way to a brain is as a daemon needs it."""
