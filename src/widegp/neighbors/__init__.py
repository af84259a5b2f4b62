"""Orders of conditioning, nearest rows, and blocks of rows that lie close together."""

from widegp.neighbors.blocks import localise, locality_blocks
from widegp.neighbors.cells import Cells
from widegp.neighbors.later import nearest_before
from widegp.neighbors.ordering import conditioning_order
from widegp.neighbors.search import NeighborIndex, nearest, nearest_earlier

__all__ = [
    "Cells",
    "NeighborIndex",
    "conditioning_order",
    "localise",
    "locality_blocks",
    "nearest",
    "nearest_before",
    "nearest_earlier",
]
