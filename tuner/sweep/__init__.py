"""Sweeps: one file that stands for many jobs, and what runs them."""
