"""The policy: loading a model by name, its samplers, and the log-probabilities of its tokens."""
