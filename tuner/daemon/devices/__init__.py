"""One queue per device: which job runs next, whether it may run now, and what became of it."""
