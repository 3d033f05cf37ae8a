"""Setting GPU clocks, and giving them back on every way out."""
