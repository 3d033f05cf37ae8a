"""From samples to mean power and joules, with an uncertainty that covers."""
