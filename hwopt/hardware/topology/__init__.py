"""Topologies of a fabric: what connects endpoints, and what that takes in switches, cables and hops."""

from hwopt.hardware.topology.crossbar import Crossbar
from hwopt.hardware.topology.dragonfly import Dragonfly
from hwopt.hardware.topology.fat_tree import FatTree
from hwopt.hardware.topology.full_mesh import FullMesh
from hwopt.hardware.topology.parts import Parts
from hwopt.hardware.topology.topology import Topology
from hwopt.hardware.topology.torus import Torus

__all__ = ["Crossbar", "Dragonfly", "FatTree", "FullMesh", "Parts", "Topology", "Torus"]
