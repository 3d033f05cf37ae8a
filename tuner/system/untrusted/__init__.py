"""Limits for input from outside (files, compilers, devices, clients), checked before it is used."""
