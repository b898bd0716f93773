"""Access to models: providers, what they lack, how they fail, what they say."""
