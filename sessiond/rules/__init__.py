"""What may be done to sessions, leases, blobs and documents: pure, and once for every store."""
