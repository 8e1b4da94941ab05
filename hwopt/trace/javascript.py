"""Scalar programs as JavaScript functions in float64, for pages without Python.

A page defines the functions that JavaScript lacks: `even` rounds half to even, `made` is `dies_made`.
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
_SAME = ("exp", "log", "sqrt", "log1p", "expm1", "abs", "floor", "ceil", "sign", "tanh")
_FORMS = {
    **{name: f"({{0}}{sign}{{1}})" for name, sign in _INFIX.items()}, **{name: f"{name}({{0}})" for name in _SAME},
    **{name: f"{name}({{0}},{{1}})" for name in ("max", "min", "pow")},
    "neg": "(-{0})", "not": "(!{0})", "stop_gradient": "{0}", "square": "pow({0},2)", "integer_pow": "pow({0},{y})",
    "is_finite": "isFinite({0})", "round": "even({0})", "dies_made": "made({0},{1},{2},{3})", "select_n": "({0}?{2}:{1})",
    "convert_element_type": "(+{0})",
}  # fmt: skip
"""Operation -> its form in JavaScript, with its arguments by number and its parameters by name."""

_INLINE = 120
"""Length of an expression up to which it is written where its only user is."""


def javascript(line: ScalarProgram) -> str:
    """Return the source of a JavaScript function from an array of inputs to an array of outputs.

    **Raises:** `NotScalarArithmetic` for an operation without a form in JavaScript, by name.
    """
    texts, definitions = {id(each): f"x[{i}]" for i, each in enumerate(line.inputs)}, list[str]()
    users = Counter(id(each) for part in (*(each.arguments for each in line.operations), line.outputs) for each in part)
    written = lambda each: texts[id(each)] if isinstance(each, Symbol) else literal(each)
    for symbol in line.operations:
        text = _text(symbol, [written(each) for each in symbol.arguments])
        if users[id(symbol)] > 1 or len(text) > _INLINE:
            name = f"{chr(97 + len(definitions) % 26)}{len(definitions) // 26}"
            definitions.append(f"{name}={text}")
            text = name
        texts[id(symbol)] = text
    lines = ",\n".join(definitions or ["none=0"])
    return f"(x) => {{\nconst {lines};\nreturn [{','.join(map(written, line.outputs))}];\n}}"


def _text(symbol: Symbol, arguments: list[str]) -> str:
    name, params = symbol.name, dict(symbol.params)
    to_integer = name == "convert_element_type" and not np.issubdtype(params["new_dtype"], np.floating)
    if name not in _FORMS or to_integer or (name == "select_n" and len(arguments) != 3):
        raise NotScalarArithmetic(f"operation '{name}' has no form in JavaScript")
    return _FORMS[name].format(*arguments, **params)


def literal(value: Any) -> str:
    """Return the shortest literal of a number in JavaScript, in parentheses if negative, since `a--1` is not valid."""
    text = repr(float(value)).removesuffix(".0").replace("inf", "Infinity").replace("nan", "NaN")
    return f"({text})" if text.startswith("-") else text
