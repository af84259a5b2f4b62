"""Gaussian processes from wide Bayesian neural networks."""
