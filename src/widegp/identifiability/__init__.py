"""What data can tell about the parameters: kernel shapes, Fisher information, profiles, designs."""

from widegp.identifiability.boundary import BoundaryCase, boundary_cases
from widegp.identifiability.coordinates import four_components
from widegp.identifiability.information import Blocks, fisher_information
from widegp.identifiability.injectivity import InjectivityReport, injectivity_check
from widegp.identifiability.objectives import Computation, map_objective
from widegp.identifiability.plots import plot_profile, plot_shapes, plot_spectra
from widegp.identifiability.profiles import Profile, Steps, profile
from widegp.identifiability.shapes import ShapeCorrelations, shape_correlations
from widegp.identifiability.spectrum import Information, WeakDirection
from widegp.identifiability.study import DesignStudy, design_study
from widegp.identifiability.table import TableIdentifiability, identify_table

__all__ = [
    "Blocks",
    "BoundaryCase",
    "Computation",
    "DesignStudy",
    "Information",
    "InjectivityReport",
    "Profile",
    "ShapeCorrelations",
    "Steps",
    "TableIdentifiability",
    "WeakDirection",
    "boundary_cases",
    "design_study",
    "fisher_information",
    "four_components",
    "identify_table",
    "injectivity_check",
    "map_objective",
    "plot_profile",
    "plot_shapes",
    "plot_spectra",
    "profile",
    "shape_correlations",
]
