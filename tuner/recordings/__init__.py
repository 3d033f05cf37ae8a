"""Recorded spaces: measurements of every configuration on one GPU, for searches without it."""
