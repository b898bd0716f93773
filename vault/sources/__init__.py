"""Secret managers of the owner's: values that stay there, and are fetched for one request."""
