"""CUDA C++ read as text, without a compiler: signatures, variables, names, and what they let guess."""
