"""Colours with a meaning: the parts of a step look the same in every figure and on every page."""

from collections.abc import Mapping

PARTS: Mapping[str, str] = {
    "compute": "#332288",
    "memory_bound": "#88CCEE",
    "host": "#DDCC77",
    "tp_comm": "#CC6677",
    "cp_comm": "#6A2C5C",
    "ep_comm": "#8888FF",
    "pp_comm": "#3D7FB8",
    "pp_bubble": "#117733",
    "pp_imbalance": "#FFCC00",
    "dp_comm": "#EE7733",
    "optimizer": "#3A2A00",
    "offload": "#0000FF",
    "input": "#5544DD",
    "sites_comm": "#110044",
    "overhead": "#111111",
    "jitter": "#A8A8A8",
    "production": "#7D6B8A",
}
"""Part of a step -> its colour.

**Source:** the frequent ones from Tol, Colour schemes, SRON/EPS/TN/09-002 (2021), made for colour-blind readers; the others
as far from them as can be, to readers with full sight, without red and without green cones.
"""

MONEY: Mapping[str, str] = {
    "chips": "#332288",
    "network": "#CC6677",
    "hosts": "#DDCC77",
    "pool": "#AA4499",
    "racks": "#999933",
    "building": "#44AA99",
    "upkeep": "#88CCEE",
    "electricity": "#EE7733",
    "lines": "#882255",
}
"""Part of the cost -> its colour. **Source:** as above, scheme "muted"."""

CHOICES = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB")
"""Choices that were swept, such as chips, in the question's order. **Source:** as above, scheme "bright"."""

OTHER = "#DDDDDD"
"""Parts too small to tell apart, and those without a colour of their own."""

WITHIN, OVER = "#0077BB", "#C1121F"
"""A budget that holds and one that does not; figures say it in words too."""

PALE, PALER = "#A9B8C6", "#DCDCDC"
"""Designs in the background: feasible ones, and those over a budget."""


def part_colour(name: str) -> str:
    """Colour of a part of the step; `_s` at the end of its name counts for nothing."""
    return PARTS.get(name.removesuffix("_s"), OTHER)


def ink_on(colour: str) -> str:
    """Black or white, whichever is read better on a colour `#rrggbb` (relative luminance, sRGB weights)."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.5 else "white"


def contrast(colour: str, ground: str) -> float:
    """How well two colours are told apart, 1 to 21.

    **Source:** W3C, Web Content Accessibility Guidelines 2.1, contrast ratio; marks of a chart want 3.
    """
    light, dark = sorted((_luminance(colour), _luminance(ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def on_ground(colour: str, ground: str, least: float = 3.0) -> str:
    """A colour that is seen on a dark ground: mixed with as little white as brings its contrast to `least`."""
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    for white in range(101):
        mixed = "#" + "".join(f"{round(part + (255 - part) * white / 100):02X}" for part in parts)
        if contrast(mixed, ground) >= least:
            return mixed
    return "#FFFFFF"


def _luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb`, sRGB."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
