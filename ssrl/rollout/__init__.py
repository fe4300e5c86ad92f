"""The episode loop, and the packing of its rollouts into rows of tokens."""
