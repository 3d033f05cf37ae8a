"""Policies held against the exhaustive ground truth: what each finds, and how many evaluations it takes."""
