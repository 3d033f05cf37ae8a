"""Offline comparison of policies with the exhaustive ground truth: answers and evaluations."""
