"""The energy engine: from samples to mean power and joules, of trials and of programs."""
