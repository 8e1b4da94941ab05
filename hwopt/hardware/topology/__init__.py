"""Topologies of a fabric: how endpoints are connected, and the switches, cables and hops that this takes."""

from hwopt.hardware.topology.direct import FullMesh, Torus
from hwopt.hardware.topology.switched import Crossbar, Dragonfly, FatTree
from hwopt.hardware.topology.topology import Parts, Topology

__all__ = ["Crossbar", "Dragonfly", "FatTree", "FullMesh", "Parts", "Topology", "Torus"]
