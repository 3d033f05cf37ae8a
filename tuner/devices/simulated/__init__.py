"""Simulated GPUs in virtual time; their numbers are modelled, and labelled so."""
