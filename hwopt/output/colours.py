"""Colors with a meaning: the components of a step have the same color in every figure and on every page."""

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
"""Component of the step time -> its color.

**Source:** the frequent ones from Tol, Colour schemes, SRON/EPS/TN/09-002 (2021), designed for color-blind readers. The others
are as distant from them as possible, for normal vision and for readers without red or green cones.
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
"""Component of the cost -> its color. **Source:** as for `PARTS`, scheme "muted"."""

CHOICES = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB")
"""Colors of swept categorical choices, such as chips, in the question's order. **Source:** as for `PARTS`, scheme "bright"."""

OTHER = "#DDDDDD"
"""Color of components that are too small to distinguish or that have no color of their own."""

WITHIN, OVER = "#0077BB", "#C1121F"
"""Colors of a budget that is satisfied and of one that is exceeded; figures also say it in words."""

PALE, PALER = "#A9B8C6", "#DCDCDC"
"""Colors of designs in the background: feasible ones, and those over a budget."""


def part_colour(name: str) -> str:
    """Return the color of a component of the step time; a suffix `_s` of its name is ignored."""
    return PARTS.get(name.removesuffix("_s"), OTHER)


def ink_on(colour: str) -> str:
    """Return black or white, whichever is more legible on a color `#rrggbb` (threshold on luminance, sRGB weights)."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.5 else "white"


def contrast(colour: str, ground: str) -> float:
    """Return the contrast ratio of two colors, from 1 to 21.

    **Source:** W3C, Web Content Accessibility Guidelines 2.1, contrast ratio; marks of a chart need at least 3.
    """
    light, dark = sorted((_luminance(colour), _luminance(ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def on_ground(colour: str, ground: str, least: float = 3.0) -> str:
    """Return a color that is visible on a dark background.

    It is mixed with as little white as raises its contrast with the background `ground` to `least`.
    """
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    for white in range(101):
        mixed = "#" + "".join(f"{round(part + (255 - part) * white / 100):02X}" for part in parts)
        if contrast(mixed, ground) >= least:
            return mixed
    return "#FFFFFF"


def _luminance(colour: str) -> float:
    """Return the relative luminance of `#rrggbb` (sRGB)."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
