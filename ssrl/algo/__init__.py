"""The mathematics of learning, on tensors alone: advantages, surrogates, KL estimators, corrections, aggregation."""
