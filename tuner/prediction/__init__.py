"""Configurations for inputs that nobody tuned, predicted from those that somebody did."""
