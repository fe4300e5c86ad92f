"""Where documents come from: local indexes over a corpus of passages."""
