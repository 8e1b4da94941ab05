"""Mechanisms of layers beyond attention, MLP and mixture of experts: one file each, which adds its work to `LayerWork`."""
