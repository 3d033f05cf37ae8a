"""Integrity of the database and its mirror: rows verified, compared, repaired, isolated."""
