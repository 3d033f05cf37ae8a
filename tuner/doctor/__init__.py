"""Checks of a machine for problems that affect measurements; nothing is changed."""
