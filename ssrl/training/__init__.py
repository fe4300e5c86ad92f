"""The Lightning module, its data and its callbacks."""
