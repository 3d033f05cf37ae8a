"""What Bayesian optimisation learns from: a Gaussian process over configurations, and what goes with it."""
