"""Scalar programs as JavaScript: one function that returns the outputs of a program, in float64, for pages without Python.

The page defines the functions that JavaScript lacks: `even` rounds half to even, `made` is `dies_made`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from hwopt.trace.scalar_program import NotScalarArithmetic, ScalarProgram
from hwopt.trace.symbols import Symbol

_INFIX = {
    "add": "+", "add_any": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "gt": ">", "ge": ">=", "lt": "<", "le": "<=",
    "eq": "==", "ne": "!=", "and": "&", "or": "|",
}  # fmt: skip
_CALLS = {
    name: name
    for name in ("exp", "log", "sqrt", "pow", "log1p", "expm1", "abs", "floor", "ceil", "sign", "tanh", "max", "min")
}
_CALLS |= {"is_finite": "isFinite", "round": "even", "dies_made": "made"}
_AROUND = {
    "neg": "(-{0})",
    "not": "(!{0})",
    "stop_gradient": "{0}",
    "square": "pow({0},2)",
    "select_n": "({0}?{2}:{1})",
}

_INLINE = 120
"""Length of an expression up to which it is written where its only user is."""

_A_LINE = 40
"""Number of definitions in a line of the source."""


def javascript(line: ScalarProgram, name: str) -> str:
    """Return the source of a JavaScript function `name(x)`: an array of outputs for an array of inputs.

    **Raises:** `NotScalarArithmetic` for an operation without a form in JavaScript, by name.
    """
    texts = {id(each): f"x[{i}]" for i, each in enumerate(line.inputs)}
    users = Counter(id(each) for symbol in line.operations for each in symbol.arguments)
    users.update(map(id, line.outputs))
    written = lambda each: texts[id(each)] if isinstance(each, Symbol) else _constant(each)
    definitions: list[str] = []
    for symbol in line.operations:
        text = _operation(symbol, [written(each) for each in symbol.arguments])
        if users[id(symbol)] > 1 or len(text) > _INLINE:
            count = len(definitions)
            definitions.append(f"{(own := f'{chr(97 + count % 26)}{count // 26}')}={text}")
            text = own
        texts[id(symbol)] = text
    lines = (",".join(definitions[i : i + _A_LINE]) for i in range(0, len(definitions), _A_LINE))
    body = "".join(f"const {each};\n" for each in lines)
    return f"function {name}(x) {{\n{body}return [{','.join(map(written, line.outputs))}];\n}}\n"


def _operation(symbol: Symbol, arguments: list[str]) -> str:
    name, params = symbol.name, dict(symbol.params)
    if name in _INFIX:
        return f"({_INFIX[name].join(arguments)})"
    if name in _CALLS:
        return f"{_CALLS[name]}({','.join(arguments)})"
    if name in _AROUND and len(arguments) <= 3:
        return _AROUND[name].format(*arguments)
    if name == "integer_pow":
        return f"pow({arguments[0]},{params['y']})"
    if name == "convert_element_type" and np.issubdtype(params["new_dtype"], np.floating):
        return f"(+{arguments[0]})"
    raise NotScalarArithmetic(f"operation '{name}' has no form in JavaScript")


def _constant(value: Any) -> str:
    """Return the shortest literal of a constant; a negative one is in parentheses, since `a--1` is not a difference."""
    number = float(value)
    if not np.isfinite(number):
        return {np.inf: "Infinity", -np.inf: "(-Infinity)"}.get(number, "NaN")
    text = repr(number).removesuffix(".0").replace("e-0", "e-").replace("e+", "e")
    text = text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text
    return f"({text})" if text.startswith("-") else text
