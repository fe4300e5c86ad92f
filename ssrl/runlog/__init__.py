"""The truth about a run, in files: identity, status, manifest, metrics and rollouts."""
