"""The daemon's client, for programs: small, synchronous, and nothing but the standard library."""
