"""Scopes of a Python file: which statement binds each name.

`ast` gives exact positions inside f-strings from Python 3.12 on, so the script of renames needs that version.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import NamedTuple


class Site(NamedTuple):
    """A place that binds a name."""

    kind: str  # "import", "from", "def", "class", "argument" or "store"
    node: ast.AST
    statement: ast.AST
    target: ast.AST | Element | None = None  # annotation or value, from which the class of the object can be read


class Element(NamedTuple):
    """What a loop takes from an iterable. **Arguments:** `index`: its place where the target of the loop is a tuple."""

    iterable: ast.AST
    index: int | None


@dataclass(eq=False)
class Scope:
    """A module, class, function or comprehension."""

    kind: str
    node: ast.AST
    parent: Scope | None
    sites: dict[str, list[Site]] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)  # names of `global` and `nonlocal` statements
    children: list[Scope] = field(default_factory=list)

    def owner(self, name: str) -> Scope | None:
        """Return the scope that binds a name used here; None means a builtin or an undefined name."""
        if self.shared.get(name) == "global":
            top = self
            while top.parent:
                top = top.parent
            return top if name in top.sites else None
        scope: Scope | None = self
        while scope:
            if name in scope.sites and (scope is self or scope.kind != "class"):
                return scope
            scope = scope.parent
        return None


class Reader(ast.NodeVisitor):
    """Collects scopes, and every node that may need a rename together with its scope."""

    def __init__(self, tree: ast.Module) -> None:
        self.module = self.scope = Scope("module", tree, None)
        self.names: list[tuple[ast.Name, Scope]] = []
        self.attributes: list[tuple[ast.Attribute, Scope]] = []
        self.calls: list[tuple[ast.Call, Scope]] = []
        self.texts: list[tuple[ast.Constant, Scope]] = []
        self.annotations: list[tuple[ast.Constant, Scope]] = []
        self.imports: list[tuple[ast.Import | ast.ImportFrom, Scope]] = []
        self.classes: dict[ast.ClassDef, Scope] = {}
        self.functions: dict[ast.AST, Scope] = {}
        self.shared: list[tuple[ast.Global | ast.Nonlocal, Scope]] = []
        self.patterns: list[tuple[ast.MatchClass, Scope]] = []
        self.dicts: list[ast.Dict] = []
        self.every: list[Scope] = [self.module]
        self._in_annotation = self._in_shape = False
        self.visit(tree)
        for scope in self.every:
            for name, kind in scope.shared.items():
                sites = scope.sites.pop(name, [])
                if kind == "global":
                    self.module.sites.setdefault(name, []).extend(sites)

    def _bind(self, name: str, site: Site, scope: Scope | None = None) -> None:
        (scope or self.scope).sites.setdefault(name, []).append(site)

    def _inside(self, kind: str, node: ast.AST) -> Scope:
        scope = Scope(kind, node, self.scope)
        self.scope.children.append(scope)
        self.every.append(scope)
        self.scope = scope
        return scope

    def _each(self, *nodes) -> None:
        for node in nodes:
            if isinstance(node, list):
                self._each(*node)
            elif node is not None:
                self.visit(node)

    def _annotation(self, node: ast.AST | None) -> None:
        if node is not None:
            before, self._in_annotation = self._in_annotation, True
            self.visit(node)
            self._in_annotation = before

    def visit_Name(self, node: ast.Name) -> None:
        self.names.append((node, self.scope))
        if not isinstance(node.ctx, ast.Load):
            self._bind(node.id, Site("store", node, node))

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.texts.append((node, self.scope))
            if self._in_annotation and not self._in_shape:
                self.annotations.append((node, self.scope))

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.visit(node.value)
        base = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        before = self._in_shape
        self._in_shape |= base in _SHAPED
        self.visit(node.slice)
        self._in_shape = before

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.attributes.append((node, self.scope))
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        self.calls.append((node, self.scope))
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        self.dicts.append(node)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self.imports.append((node, self.scope))
        for each in node.names:
            self._bind(each.asname or each.name.partition(".")[0], Site("import", each, node))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.imports.append((node, self.scope))
        for each in node.names:
            self._bind(each.asname or each.name, Site("from", each, node))

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self.shared.append((node, self.scope))
        kind = "global" if isinstance(node, ast.Global) else "nonlocal"
        self.scope.shared.update(dict.fromkeys(node.names, kind))

    visit_Nonlocal = visit_Global

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._bind(node.name, Site("store", node, node))
        self.generic_visit(node)

    def _pattern(self, node) -> None:
        if name := getattr(node, "name", None) or getattr(node, "rest", None):
            self._bind(name, Site("store", node, node))
        self.generic_visit(node)

    visit_MatchAs = visit_MatchStar = visit_MatchMapping = _pattern

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        self.patterns.append((node, self.scope))
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        self._typed(node.targets[0], node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._annotation(node.annotation)
        self._each(node.target, node.value)
        if isinstance(node.target, ast.Name):
            sites = self.scope.sites[node.target.id]
            sites[-1] = Site("store", node.target, node, node.annotation)

    def _looped(self, target: ast.AST, iterable: ast.AST) -> None:
        self._typed(target, Element(iterable, None))
        for i, each in enumerate(target.elts if isinstance(target, ast.Tuple) else ()):
            self._typed(each, Element(iterable, i))

    def visit_For(self, node: ast.For) -> None:
        self.generic_visit(node)
        self._looped(node.target, node.iter)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        scope = self.scope
        while scope.kind == "comprehension" and scope.parent:
            scope = scope.parent
        self.names.append((node.target, self.scope))
        self._bind(node.target.id, Site("store", node.target, node, node.value), scope)

    def _typed(self, target: ast.AST, value: ast.AST | Element) -> None:
        if isinstance(target, ast.Name):
            sites = self.scope.sites[target.id]
            sites[:] = [each._replace(target=value) if each.node is target else each for each in sites]

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bind(node.name, Site("def", node, node, node.returns))
        self._each(node.decorator_list)
        self._annotation(node.returns)
        self._function(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        asked = node.args
        self._each(asked.defaults, asked.kw_defaults)
        every = [*asked.posonlyargs, *asked.args, *asked.kwonlyargs, *filter(None, (asked.vararg, asked.kwarg))]
        for each in every:
            self._annotation(each.annotation)
        before = self.scope
        self.functions[node] = self._inside("function", node)
        plain = {*asked.posonlyargs, *asked.args, *asked.kwonlyargs}
        for each in every:
            self._bind(each.arg, Site("argument", each, node, each.annotation if each in plain else None))
        inside, self._in_annotation = self._in_annotation, False
        self._each(node.body)
        self.scope, self._in_annotation = before, inside

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind(node.name, Site("class", node, node))
        self._each(node.decorator_list, node.bases, [each.value for each in node.keywords])
        before = self.scope
        self.classes[node] = self._inside("class", node)
        self._each(node.body)
        self.scope = before

    def _comprehension(self, node) -> None:
        first, *others = node.generators
        self.visit(first.iter)
        before = self.scope
        self._inside("comprehension", node)
        self._each(first.target, first.ifs)
        for each in others:
            self._each(each.target, each.iter, each.ifs)
        for each in node.generators:
            self._looped(each.target, each.iter)
        self._each(*([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]))
        self.scope = before

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension


_SHAPED = {"Float", "Int", "Bool", "Num", "Shaped", "Inexact", "Integer", "UInt", "Real", "Complex", "Key", "Literal"}
"""Subscripts whose strings are shapes or values, not forward references."""
