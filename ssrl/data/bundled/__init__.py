"""The bundled question set: short facts, split by entity."""
