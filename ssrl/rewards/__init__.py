"""What a rollout earns: pure functions of its text and the accepted answers."""
