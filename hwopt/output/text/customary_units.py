"""Numbers in customary units and words, such as $/kWh, %/year and degC, and the size of one more unit."""

from hwopt.design.template_inputs import Input
from hwopt.output.text.token_prices import TOKENS, Work, counted
from hwopt.units import MULTIPLIERS, ZERO_CELSIUS_K, label, pretty

_WRITTEN = {
    "USD/J": ("USD/kWh", "$/kWh"),
    "USD/B": ("USD/GB", "$/GB"),
    "USD/(B/s)": ("USD/(GB/s)", "$/(GB/s)"),
    "USD/(FLOP/s)": ("USD/(TFLOP/s)", "$/(TFLOP/s)"),
    "USD/W": ("USD/W", "$/W"),
    "USD/m2": ("USD/cm2", "$/cm2"),
    "kg/J": ("g/kWh", "g/kWh"),
    "W/B": ("W/TB", "W/TB"),
    "m2": ("mm2", "mm2"),
    "J/m2": ("kWh/cm2", "kWh/cm2"),
    "K.m2/W": ("K.cm2/W", "K.cm2/W"),
    "W/m2": ("W/cm2", "W/cm2"),
}
"""SI unit -> customary unit, and how it is written."""

_POINT = 0.01

_ONE_MORE = {
    "USD/J": (_POINT * MULTIPLIERS["USD/kWh"][0], "1 ct/kWh"),
    "1/s": (_POINT * MULTIPLIERS["1/year"][0], "1 point a year"),
    "USD/W": (1.0, "1 $/W"),
}
"""SI unit of an input -> size of one step in its customary unit, in SI and in words, such as 1 ct/kWh for an energy price."""

_YEAR_S = MULTIPLIERS["year"][0]


def shown(each: Input, factor: float = 1.0) -> str:
    """Return an input's value times a factor, in its customary unit."""
    value, unit = each.value * factor, each.unit
    if each.is_temperature:
        return f"{value - ZERO_CELSIUS_K:.3g} degC"
    if unit == "1/s":
        return f"{100.0 * value / MULTIPLIERS['1/year'][0]:.3g} %/year"
    if not unit and each.quantity.most == 1.0:
        return pretty(value, "fraction", 3)
    if unit in _WRITTEN and not (unit == "m2" and value >= 1e-2):  # floors in m2, silicon in mm2
        name, written = _WRITTEN[unit]
        return f"{value / MULTIPLIERS[name][0]:.3g} {written}"
    return pretty(value, unit, 3)


def one_more(each: Input) -> tuple[float, str]:
    """Return one more unit of an input, as a factor on its value and in words; 10 % where no customary unit is small enough."""
    amount, words = _ONE_MORE.get(each.unit, (0.0, ""))
    if each.is_temperature:
        amount, words = 1.0, "1 K"
    elif each.unit == "s" and each.value >= 2.0 * _YEAR_S:
        amount, words = _YEAR_S, "1 year"
    elif not each.unit and each.quantity.most == 1.0:
        amount, words = _POINT, "1 point"
    if not amount or amount > 0.5 * each.value:
        return 1.1, "10 %"
    return 1.0 + amount / each.value, words


def words(each: Input) -> str:
    """Return an input's name without unit, module and underscores: `hbm bandwidth`, `matmul efficiency (bf16)`."""
    field = each.name.rpartition(".")[2].partition("[")[0]
    of = f" ({each.label.replace('_', '-')})" if each.label else ""
    return label(field, each.unit) + of


def amount(value: float, unit: str, digits: int = 3, work: Work = TOKENS) -> str:
    """Return an amount of an objective in words; a cost per token (or other unit of `work`) is given per million."""
    own, said = counted(value, unit, work)
    return f"{1e6 * own:.{digits}g} $/M{work[0]}" if unit == "USD/token" else pretty(own, said, digits)
