"""Hand types that come with Carpal."""
