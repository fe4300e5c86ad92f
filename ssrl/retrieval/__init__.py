"""Where documents come from: indexes in this process, servers and the web."""
