"""From a name or a file to questions, and the resumable order in which they are asked."""
