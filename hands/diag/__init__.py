"""`carpal hand diag`: a file about this machine, for whoever helps; no secret is in it."""
