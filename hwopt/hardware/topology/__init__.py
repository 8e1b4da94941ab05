"""Topologies of a fabric: what connects endpoints, and what that takes in switches, cables and hops."""

from hwopt.hardware.topology.direct import FullMesh, Torus
from hwopt.hardware.topology.switched import Crossbar, Dragonfly, FatTree
from hwopt.hardware.topology.topology import Parts, Topology

__all__ = ["Crossbar", "Dragonfly", "FatTree", "FullMesh", "Parts", "Topology", "Torus"]
