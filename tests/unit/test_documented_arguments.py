"""Docstrings document arguments that exist: a list under **Arguments:** names parameters or fields, of a base class too."""

import ast
import re
from pathlib import Path

import hwopt
import objectives

PACKAGES = [Path(each.__path__[0]) for each in (hwopt, objectives)]
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for root in PACKAGES for path in root.rglob("*.py")}
CLASSES = {node.name: node for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def documented(node):
    """Names of the bullets under **Arguments:** in the docstring of a function or class."""
    part = re.search(r"\*\*Arguments:\*\*(.*?)(?=\n\n\*\*|\Z)", ast.get_docstring(node) or "", flags=re.DOTALL)
    bullets = re.findall(r"^- ((?:`\w+`(?:, | and )?)+)", part[1], flags=re.MULTILINE) if part else []
    return {name for each in bullets for name in re.findall(r"`(\w+)`", each)}


def parameters(node):
    """Names of the parameters of a function, or of the fields and parameters of a class and its bases in the packages."""
    if isinstance(node, ast.FunctionDef):
        of = node.args
        return {each.arg for each in (*of.posonlyargs, *of.args, *of.kwonlyargs, of.vararg) if each}
    fields = {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    made = [parameters(each) for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    bases = [parameters(CLASSES[each.id]) for each in node.bases if isinstance(each, ast.Name) and each.id in CLASSES]
    return fields.union(*made, *bases)


def test_documented_arguments_exist():
    nodes = [
        (path, node)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and documented(node)
        if not (isinstance(node, ast.FunctionDef) and node.args.kwarg)  # keywords are documented one by one
    ]
    stale = {
        f"{path.name}: {node.name}": sorted(names)
        for path, node in nodes
        if parameters(node) and (names := documented(node) - parameters(node))
    }
    assert len(nodes) > 100 and stale == {}


def test_a_stale_name_is_seen():
    (node,) = ast.parse('def f(a):\n    """Return.\n\n    **Arguments:**\n\n    - `a`, `b`: two.\n    """').body
    assert documented(node) - parameters(node) == {"b"}
