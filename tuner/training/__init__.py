"""Training: a kernel measured at many inputs, from which configurations of others are predicted."""
