"""The certificate authority: its keys, what it signs and for whom, and what it takes back."""
