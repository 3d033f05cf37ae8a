"""The surrogate of Bayesian optimisation: a Gaussian process over configurations, and its parts."""
