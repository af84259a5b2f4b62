"""Priors, transforms, optimisers: from a likelihood to a maximum a posteriori fit."""
