"""Text in, values out: the grammar of a response, its format scores, answers, normalisers, metrics and prompts."""
