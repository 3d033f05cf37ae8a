"""Attempts at jobs, each in a process of its own."""
