"""Pictures of shapes, spectra and profiles; each returns a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from widegp.identifiability.profiles import Profile
from widegp.identifiability.shapes import ShapeCorrelations
from widegp.identifiability.spectrum import Information

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_shapes(shapes: ShapeCorrelations) -> Figure:
    """The curves of Table (corr-kernels) over rho, centred and scaled to unit standard deviation."""
    figure, axes = _figure()
    for name, curve in zip(shapes.names, shapes.curves, strict=True):
        axes.plot(shapes.rho, (curve - curve.mean()) / curve.std(), label=name)
    axes.set(xlabel="correlation of the pre-activations, rho", ylabel="kernel, centred and scaled")
    axes.legend(frameon=False)
    return figure


def plot_spectra(informations: Mapping[str, Information]) -> Figure:
    """Eigenvalues of the information on the log scale, largest first, one line per entry."""
    figure, axes = _figure()
    for name, information in informations.items():
        values = information.spectrum.log[::-1]
        floor = values[0] * np.finfo(float).eps
        axes.semilogy(np.arange(1, len(values) + 1), np.maximum(values, floor), "o-", label=name)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set(xlabel="direction", ylabel="information per unit of log parameter")
    axes.legend(frameon=False)
    return figure


def plot_profile(profile: Profile) -> Figure:
    """The profile over its parameter with the drop that ends the interval."""
    figure, axes = _figure()
    axes.plot(profile.values, profile.curve, "o-")
    axes.axhline(profile.drop, color="grey", linewidth=0.8)
    for end in profile.interval:
        if end is not None:
            axes.axvline(end, color="grey", linestyle=":", linewidth=0.8)
    if profile.values[0] > 0 and profile.values[-1] > 10 * profile.values[0]:
        axes.set_xscale("log")
    axes.set(xlabel=profile.name, ylabel="MAP objective above its minimum")
    return figure


def _figure():  # type: ignore[no-untyped-def]
    from matplotlib.figure import Figure

    # Without pyplot: no global state, and nothing to close.
    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    return figure, figure.subplots()
