"""The expression language of kernel files: no ``eval``, the same on numbers and on NumPy arrays."""
