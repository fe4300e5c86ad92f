"""Where documents come from, and the server that hands them out."""
