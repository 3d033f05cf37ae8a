"""Formats of other tools: pure functions from documents to kernel files and recordings, and back."""
