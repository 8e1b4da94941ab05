"""Applies a table of renames to a checkout, in place.

    python3.12 results/renames/rename.py --check
    python3.12 results/renames/rename.py --package hwopt.optim
    python3.12 results/renames/rename.py

Needs Python 3.12 or newer, git and, on the PATH or by `--ruff`, ruff; no other package. Rows that were applied before are skipped,
so that a second run changes nothing. Columns of the table: `kind,old,new,why,public`.

- `module`: `hwopt.optim.held` to `hwopt.solver.held`. A package takes all files in its folder that have no row of their own.
- `package`: a new package, and the sentence of its `__init__.py`.
- `name`: `hwopt.optim.choices:Asked` to `ChoiceState`, a class, function or constant of a module.
- `member`: `hwopt.optim.choices:Asked.refused` to `refusal`, a field or method of a class.
- `path`: a file or folder such as `tests/unit/optim`.

Old paths are those before all renames, in every row. Rows with `public` filled keep their old name usable: `hwopt/renamed.py`.

The script changes what it can prove and reports the rest: lines that start with `LOOK` need a person's decision. It exits with 1,
before it changes a file, if a new name collides with another.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from scopes import Element, Reader, Scope, Site

HERE = Path(__file__).parent
OWN = "results/renames/"
RENAMED = "hwopt/renamed.py"
"""Where the old public names stay usable."""
HISTORY = ("CHANGELOG.md", "LICENSE")
"""Files that tell what was, under the names of that time."""
TEXTS = {".md", ".toml", ".yaml", ".yml", ".txt", ".json", ".ipynb", ".cfg", ".slurm", ".csv", ".html", ".c", ""}

Module = tuple[str, str]  # ("module", "hwopt.optim.held")
Name = tuple[str, str, str]  # ("name", module that defines it, name)
Entity = Module | Name
Typed = tuple["Source", Scope, ast.AST]  # an annotation and where it stands


@dataclass
class Row:
    """A line of the table."""

    kind: str
    old: str
    new: str
    public: bool
    line: int
    state: str = "pending"  # or "done", "missing", "other package"

    @property
    def module(self) -> str:
        return self.old.partition(":")[0].replace("/", ".").removesuffix(".py")


class Edits:
    """Replacements of byte ranges of one text."""

    def __init__(self) -> None:
        self.of: dict[tuple[int, int], bytes] = {}

    def put(self, start: int, end: int, new: str) -> None:
        self.of[start, end] = new.encode()

    def applied(self, data: bytes) -> bytes:
        parts, place = [], 0
        for (start, end), new in sorted(self.of.items()):
            if start < place:
                continue  # inside a range that was replaced whole
            parts += [data[place:start], new]
            place = end
        return b"".join([*parts, data[place:]])


@dataclass(eq=False)
class Source:
    """A parsed Python text: a file, the code blocks of a page, or the cells of a notebook."""

    path: str
    data: bytes
    dotted: str = ""

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.data)

    @cached_property
    def reader(self) -> Reader:
        return Reader(self.tree)

    @cached_property
    def starts(self) -> list[int]:
        starts = [0]
        for line in self.data.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    def start(self, node) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node) -> int:
        return self.starts[node.end_lineno - 1] + node.end_col_offset

    def line(self, place: int) -> int:
        return self.data.count(b"\n", 0, place) + 1


@dataclass
class Class:
    """A class of the checkout."""

    entity: Name
    source: Source
    node: ast.ClassDef
    scope: Scope
    members: set[str] = field(default_factory=set)
    bases: list[Name] = field(default_factory=list)


class Renames:
    """A table and a checkout."""

    def __init__(self, root: Path, rows: list[Row], package: str = "") -> None:
        self.root, self.rows = root, rows
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            check=True,
        )
        names = [name for name in listed.stdout.decode().split("\0") if name and not name.startswith(OWN)]
        self.files = sorted(name for name in set(names) if (root / name).is_file() and not (root / name).is_symlink())
        self.folders = {"/".join(name.split("/")[:i]) for name in self.files for i in range(1, name.count("/") + 1)}
        self.reports: list[str] = []
        self.errors: list[str] = []
        self.sources: dict[str, Source] = {}
        self.of_path: dict[str, Source] = {}
        for name in self.files:
            if name.endswith(".py"):
                dotted = name[:-3].replace("/", ".").removesuffix(".__init__")
                source = Source(name, (root / name).read_bytes(), dotted)
                self.sources[dotted] = self.of_path[name] = source
        self.packages = {folder.replace("/", ".") for folder in self.folders}
        self._planned: dict[tuple[Scope, str], tuple[str | None, bool]] = {}
        self._states(package)
        self._tables()

    # --- which rows apply

    def _exists(self, path: str) -> str | None:
        """Return the file or folder of a dotted or written path."""
        plain = path if "/" in path or "." not in path or path in self.files else path.replace(".", "/")
        return next((each for each in (plain + ".py", plain) if each in self.files or each in self.folders), None)

    def _states(self, package: str) -> None:
        moves = [row for row in self.rows if row.kind in ("module", "path")]
        targets = {row.new: row for row in moves}
        for row in moves:
            old, new = self._exists(row.old), self._exists(row.new)
            below = row.new.startswith((row.old + ".", row.old + "/"))
            chain = targets.get(row.old)
            if new and (not old or below or (chain and not self._exists(chain.old))):
                row.state = "done"
            elif not old:
                row.state = "missing"
            elif new and new not in self.folders and row.new not in {each.old for each in moves}:
                self.errors.append(f"line {row.line}: {row.new} exists already")
        self.now = {row.module: row.new for row in moves if row.state == "done"}
        for row in self.rows:
            if row.kind in ("name", "member"):
                module, _, name = row.old.partition(":")
                row_module = self._current(module)
                source = self.sources.get(row_module)
                if source is None:
                    row.state = "missing"
                elif row.kind == "name":
                    sites = source.reader.module.sites
                    chained = any(
                        each.kind == "name" and each.old.partition(":")[0] == module and each.new == name
                        for each in self.rows
                    )
                    if row.new in sites and (name not in sites or (chained and _defined(sites[row.new]))):
                        row.state = "done"
                    elif name not in sites or not _defined(sites[name]):
                        row.state = "missing"
                    elif row.new in sites and not any(each.old == f"{module}:{row.new}" for each in self.rows):
                        self.errors.append(f"line {row.line}: {module} has a name '{row.new}' already")
        for row in self.rows:
            if (
                package
                and not (row.module == package or row.module.startswith(package + "."))
                and row.kind != "package"
            ):
                row.state = "other package" if row.state == "pending" else row.state

    def _current(self, module: str) -> str:
        """Where a module is now that rows applied earlier may have moved it."""
        parts = module.split(".")
        for i in range(len(parts), 0, -1):
            if (moved := self.now.get(".".join(parts[:i]))) and "/" not in moved:
                return ".".join([moved, *parts[i:]])
        return module

    def _tables(self) -> None:
        live = [row for row in self.rows if row.state == "pending"]
        self.moves: dict[str, str] = {}
        for row in live:
            if row.kind in ("module", "path"):
                old = self._exists(row.old) or ""
                new = row.new if row.kind == "path" else row.new.replace(".", "/") + ".py" * old.endswith(".py")
                self.moves[old] = new
        self.moved = {name: new for name in self.files if (new := self._new_path(name)) != name}
        for new, count in Counter(self._new_path(name) for name in self.files).items():
            if count > 1:
                self.errors.append(f"{count} files would be {new}")
        self.names: dict[tuple[str, str], str] = {}
        for row in live:
            if row.kind == "name":
                self.names[self._current(row.module), row.old.partition(":")[2]] = row.new
        self.members: dict[Name, dict[str, str]] = defaultdict(dict)
        self.classes: dict[Name, Class] = {}
        self._read_classes()
        for row in live:
            if row.kind == "member":
                name, _, member = row.old.partition(":")[2].rpartition(".")
                entity = self.lookup(self._current(row.module), self._renamed_before(row.module, name))
                known = self.classes.get(entity) if entity and entity[0] == "name" else None
                if known is None:
                    row.state = "missing"
                elif member not in known.members:
                    row.state = "done" if row.new in known.members else "missing"
                elif row.new in self._all_members(known):
                    self.errors.append(
                        f"line {row.line}: {row.old.rpartition('.')[0]} has a member '{row.new}' already"
                    )
                else:
                    self.members[known.entity][member] = row.new
        self.wanted_members = {name for each in self.members.values() for name in each}
        self.roots = {row.module.split(".")[0] for row in live} | {"hwopt"}
        self.unique = self._unique_names()

    def _renamed_before(self, module: str, name: str) -> str:
        for row in self.rows:
            if row.kind == "name" and row.state == "done" and row.old == f"{module}:{name}":
                return row.new
        return name

    def _unique_names(self) -> dict[str, tuple[str, str]]:
        """Renamed names that no other module or class of the checkout gives to anything else."""
        counts: Counter[str] = Counter()
        for source in self.sources.values():
            for scope in source.reader.every:
                counts.update(
                    name for name, sites in scope.sites.items() if any(s.kind not in ("from", "import") for s in sites)
                )
        counts.update(name for known in self.classes.values() for name in known.members)
        return {name: (module, name) for module, name in self.names if counts[name] == 1 and _distinct(name)}

    # --- where things are and will be

    def _new_path(self, path: str) -> str:
        parts = path.split("/")
        for i in range(len(parts), 0, -1):
            if (new := self.moves.get("/".join(parts[:i]))) is not None:
                return "/".join([new, *parts[i:]])
        return path

    def new_module(self, module: str) -> str:
        source = self.sources.get(module)
        path = source.path if source else module.replace(".", "/")
        return self._new_path(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    def is_module(self, module: str) -> bool:
        return module in self.sources or module in self.packages

    def lookup(self, module: str, name: str, seen: frozenset = frozenset()) -> Entity | None:
        """What a name of a module is."""
        source = self.sources.get(module)
        if source and (module, name) not in seen:
            found = self.bound(source, source.reader.module, name, seen | {(module, name)})
            if found:
                return found
        return ("module", f"{module}.{name}") if self.is_module(f"{module}.{name}") else None

    def bound(self, source: Source, scope: Scope, name: str, seen: frozenset = frozenset()) -> Entity | None:
        """What a name is that a scope binds: a module or a name of one; None for locals and what is not ours."""
        sites = scope.sites.get(name, [])
        for site in sites:
            if site.kind == "import":
                return ("module", site.node.name if site.node.asname else name)
            if site.kind == "from":
                module = site.statement.module or ""
                return (
                    self.lookup(module, site.node.name, seen)
                    if self.is_module(module) and not site.statement.level
                    else None
                )
        for site in sites:
            if module := _import_module(site.target):
                return ("module", module)
        return ("name", source.dotted, name) if sites and scope.kind == "module" and source.dotted else None

    def entity(self, source: Source, scope: Scope, node: ast.AST | None) -> Entity | None:
        """What an expression names."""
        if isinstance(node, ast.Name):
            owner = scope.owner(node.id)
            return self.bound(source, owner, node.id) if owner else None
        if isinstance(node, ast.Attribute):
            base = self.entity(source, scope, node.value)
            return self.lookup(base[1], node.attr) if base and base[0] == "module" else None
        module = _import_module(node)
        return ("module", module) if module else None

    # --- new names of bindings

    def planned(self, source: Source, scope: Scope, name: str) -> str:
        """The new name of a binding; the old one if it stays."""
        return self._plan(source, scope, name)[0] or name

    def kept_as(self, source: Source, scope: Scope, name: str) -> bool:
        """Whether an import keeps its old local name by `as`, because the new one would collide."""
        return self._plan(source, scope, name)[1]

    def exposed(self, module: str, name: str) -> str:
        """The new name of an attribute of a module."""
        source = self.sources.get(module)
        if source and name in source.reader.module.sites:
            return self.planned(source, source.reader.module, name)
        return name

    def _plan(self, source: Source, scope: Scope, name: str) -> tuple[str | None, bool]:
        key = (scope, name)
        if key in self._planned:
            return self._planned[key]
        self._planned[key] = (None, False)
        new = self._wanted(source, scope, name)
        kept = False
        if new and new != name and (clash := self._clash(source, scope, name, new)):
            if any(site.kind in ("from", "import") for site in scope.sites[name]):
                new, kept = None, True
                self.look(source, clash, f"'{name}' keeps its local name by `as`: its new name would collide here")
            else:
                self.errors.append(f"{source.path}:{clash}: the new name of '{name}' collides here")
        self._planned[key] = (new if new != name else None, kept)
        return self._planned[key]

    def _wanted(self, source: Source, scope: Scope, name: str) -> str | None:
        imports = [site for site in scope.sites.get(name, []) if site.kind in ("from", "import")]
        for site in imports:
            alias = site.node
            if site.kind == "from":
                module = site.statement.module or ""
                if alias.asname not in (None, alias.name) or site.statement.level or not self.is_module(module):
                    return None
                return self.new_from(module, alias.name)[1]
            if alias.asname and alias.asname == alias.name.rpartition(".")[2]:
                return self.new_module(alias.name).rpartition(".")[2]
            return None
        if scope.kind == "module" and source.dotted:
            return self.names.get((source.dotted, name))
        return None

    def new_from(self, module: str, name: str) -> tuple[str, str]:
        """The new module and name of `from module import name`."""
        source = self.sources.get(module)
        if (
            source
            and name in source.reader.module.sites
            and self.lookup(module, name) != ("module", f"{module}.{name}")
        ):
            return self.new_module(module), self.exposed(module, name)
        if self.is_module(f"{module}.{name}"):
            package, _, last = self.new_module(f"{module}.{name}").rpartition(".")
            return package, last
        return self.new_module(module), name

    def _clash(self, source: Source, scope: Scope, name: str, new: str) -> int:
        """The line where a binding's new name would mean something else, or hide something; 0 if nowhere."""
        for site in scope.sites.get(new, []):
            if not self._goes(source, scope, new):
                return site.statement.lineno
        for node, inner in source.reader.names:
            if node.id == name and inner.owner(name) is scope:
                other = inner.owner(new)
                while other and other is not scope and _within(other, scope):
                    return node.lineno
            elif node.id == new and _within(inner, scope):
                owner = inner.owner(new)
                if owner is None or (owner is not scope and not _within(owner, scope)):
                    return node.lineno
        return 0

    def _goes(self, source: Source, scope: Scope, name: str) -> bool:
        """Whether a binding is renamed itself, so that its name becomes free."""
        wanted = self._wanted(source, scope, name)
        return bool(wanted) and wanted != name

    # --- classes

    def _read_classes(self) -> None:
        for source in self.sources.values():
            for node, scope in source.reader.classes.items():
                entity: Name = ("name", source.dotted, node.name if scope.parent.kind == "module" else f"{id(node)}")
                known = self.classes[entity] = Class(entity, source, node, scope)
                known.members |= set(scope.sites)
                for function in (each for each in scope.children if each.kind == "function"):
                    known.members |= {each.attr for each in _of_self(function) if isinstance(each.ctx, ast.Store)}
        for known in self.classes.values():
            for base in known.node.bases:
                base = base.value if isinstance(base, ast.Subscript) else base
                found = self.entity(known.source, known.scope.parent, base)
                if found and found[0] == "name":
                    known.bases.append(found)

    def _lineage(self, entity: Entity | None, seen: frozenset = frozenset()) -> Iterator[Class]:
        known = self.classes.get(entity)
        if known and entity not in seen:
            yield known
            for base in known.bases:
                yield from self._lineage(base, seen | {entity})

    def _all_members(self, known: Class) -> set[str]:
        return {name for each in self._lineage(known.entity) for name in each.members}

    def new_member(self, entity: Entity | None, name: str) -> str | None:
        """The new name of a member of a class of the checkout; None if the class does not rename it."""
        for known in self._lineage(entity) if entity and entity[0] == "name" else ():
            if name in self.members.get(known.entity, {}):
                return self.members[known.entity][name]
        return None

    @cached_property
    def definers(self) -> dict[str, int]:
        """How many classes outside one lineage define each renamed member."""
        counts: dict[str, int] = {}
        for name in self.wanted_members:
            own = {entity for entity, each in self.members.items() if name in each}
            others = [
                known
                for known in self.classes.values()
                if name in known.members and not own & {each.entity for each in self._lineage(known.entity)}
            ]
            counts[name] = len(own) + len(others)
        return counts

    def of_class(self, source: Source, scope: Scope, node: ast.AST | None, depth: int = 0) -> Entity | None:
        """The class of an expression's value where annotations and constructors show it."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
            return self._around(source, scope)
        owner = scope.owner(node.id) if isinstance(node, ast.Name) and node.id in ("self", "cls") else None
        if owner and owner.kind == "function" and owner.parent and owner.parent.kind == "class":
            return self._around(source, owner)
        found = self._annotation(source, scope, node, depth)
        return self._annotated(*found) if found else None

    def _annotation(self, source: Source, scope: Scope, node, depth: int) -> Typed | None:
        """The annotation of an expression's value, and where it stands. A constructor's is its class."""
        if depth > 8:
            return None
        deeper = depth + 1
        if isinstance(node, ast.Name):
            owner = scope.owner(node.id)
            sites = owner.sites[node.id] if owner else []
            if len({type(site.target) for site in sites}) != 1 or len(sites) > 3 or sites[0].target is None:
                return None
            found = {self._of_site(source, owner, site, deeper) for site in sites}
            return found.pop() if len(found) == 1 else None
        if isinstance(node, ast.Call):
            called = self.entity(source, scope, node.func)
            if called and called in self.classes:
                return source, scope, node.func
            if called and called[0] == "name":
                there = self.sources[called[1]]
                sites = there.reader.module.sites.get(called[2], [])
                return next(((there, there.reader.module, site.target) for site in sites if site.kind == "def"), None)
            return self._member(source, scope, node.func, deeper) if isinstance(node.func, ast.Attribute) else None
        if isinstance(node, ast.Attribute):
            return self._member(source, scope, node, deeper)
        if isinstance(node, ast.Subscript):
            found = self._annotation(source, scope, node.value, deeper)
            if isinstance(node.slice, ast.Slice):
                return found
            return _part(found, -1) or (None if found else self._element(source, scope, node.value, deeper))
        if isinstance(node, ast.IfExp):
            return self._annotation(source, scope, node.body, deeper)
        return None

    def _of_site(self, source: Source, owner: Scope, site: Site, depth: int) -> Typed | None:
        if site.kind == "argument":
            return (source, owner.parent, site.target) if owner.parent else None
        if isinstance(site.statement, ast.AnnAssign):
            return source, owner, site.target
        if not isinstance(site.target, Element):
            return self._annotation(source, owner, site.target, depth) if site.kind == "store" else None
        iterable, index = site.target
        if isinstance(iterable, ast.Call):
            function = iterable.func
            if (
                isinstance(function, ast.Name)
                and function.id in ("sorted", "reversed", "list", "tuple", "tqdm")
                and index is None
            ):
                iterable = iterable.args[0] if iterable.args else None
            elif isinstance(function, ast.Name) and function.id == "enumerate" and index == 1:
                iterable, index = iterable.args[0], None
            elif isinstance(function, ast.Name) and function.id == "zip" and index is not None:
                iterable, index = (iterable.args[index] if index < len(iterable.args) else None), None
            elif isinstance(function, ast.Attribute) and (function.attr, index) in (("values", None), ("items", 1)):
                return _part(self._annotation(source, owner, function.value, depth), -1)
        return self._element(source, owner, iterable, depth) if index is None else None

    def _element(self, source: Source, scope: Scope, iterable: ast.AST | None, depth: int) -> Typed | None:
        """The annotation of what a loop over an expression takes."""
        if found := _part(self._annotation(source, scope, iterable, depth), 0):
            return found
        if isinstance(iterable, ast.ListComp | ast.GeneratorExp | ast.SetComp):
            inside = next((each for each in source.reader.every if each.node is iterable), scope)
            return self._annotation(source, inside, iterable.elt, depth + 1)
        if isinstance(iterable, ast.List | ast.Tuple) and iterable.elts:
            return self._annotation(source, scope, iterable.elts[0], depth + 1)
        owner = scope.owner(iterable.id) if isinstance(iterable, ast.Name) and depth < 8 else None
        if not owner:
            return None
        sites = owner.sites[iterable.id]
        if len(sites) == 1 and isinstance(sites[0].target, ast.ListComp | ast.List | ast.Tuple):
            if found := self._element(source, owner, sites[0].target, depth + 1):
                return found
            for call, inner in source.reader.calls:  # a list that grows
                grows = isinstance(call.func, ast.Attribute) and call.func.attr == "append" and len(call.args) == 1
                named = grows and isinstance(call.func.value, ast.Name) and call.func.value.id == iterable.id
                if named and inner.owner(iterable.id) is owner:
                    return self._annotation(source, inner, call.args[0], depth + 1)
        return None

    def _member(self, source: Source, scope: Scope, node: ast.Attribute, depth: int) -> Typed | None:
        for known in self._lineage(self.of_class(source, scope, node.value, depth)):
            for site in known.scope.sites.get(node.attr, []):
                if site.kind == "def" or isinstance(site.statement, ast.AnnAssign):
                    return known.source, known.scope, site.target
        return None

    def _around(self, source: Source, scope: Scope | None) -> Entity | None:
        while scope and scope.kind != "class":
            scope = scope.parent
        return next((known.entity for known in self.classes.values() if known.scope is scope), None) if scope else None

    def _annotated(self, source: Source, scope: Scope, node: ast.AST | None) -> Entity | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return None
        if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant) and node.right.value is None:
            node = node.left
        if isinstance(node, ast.Subscript):
            node = node.value  # of a generic class
        if isinstance(node, ast.Name) and node.id == "Self":
            return self._around(source, scope)
        found = self.entity(source, scope, node)
        return found if found in self.classes else None

    # --- text

    def look(self, source: Source | str, line: int, what: str) -> None:
        path = source if isinstance(source, str) else source.path
        self.reports.append(f"LOOK {path}:{line}: {what}")

    def dotted(self, text: str, prefer_module: bool = False) -> str:
        """A dotted path, possibly `module:name.member`, under its new names."""
        path, colon, rest = text.partition(":")
        parts = path.split(".")
        module, i = parts[0], 1
        if not self.is_module(module):
            return text
        while i < len(parts):
            below, last = f"{module}.{parts[i]}", i == len(parts) - 1
            own = self.sources[module].reader.module.sites if module in self.sources else {}
            if not self.is_module(below) or (last and parts[i] in own and not (prefer_module or colon)):
                break
            module, i = below, i + 1
        named = [*parts[i:], *(rest.split(".") if colon else [])]
        for j, (name, entity) in enumerate(self._followed(module, named)):
            named[j] = name
            if entity is None:
                break
        count = len(parts) - i
        new = ".".join([self.new_module(module), *named[:count]])
        return new + colon + ".".join(named[count:])

    def _followed(self, module: str, named: list[str]) -> Iterator[tuple[str, Entity | None]]:
        entity: Entity | None = ("module", module)
        for name in named:
            if entity is None:
                return
            if entity[0] == "module":
                new, entity = self.exposed(entity[1], name), self.lookup(entity[1], name)
            else:
                new, entity = self.new_member(entity, name) or name, None
            yield new, entity

    @cached_property
    def links(self) -> dict[str, str]:
        """Public names, for anchors of the guide."""
        pairs = {}
        for package in ("hwopt", "hwopt.catalog"):
            for name in self.sources[package].reader.module.sites if package in self.sources else ():
                old = f"{package}.{name}"
                if (new := self.dotted(old)) != old:
                    pairs[old] = new
        return pairs

    @cached_property
    def _dotted(self) -> re.Pattern[str]:
        roots = "|".join(sorted(map(re.escape, self.roots)))
        return re.compile(rf"(?<![\w./\-\\])(?:{roots})(?:\.[A-Za-z_]\w*)+(?::[A-Za-z_]\w*(?:\.\w+)*)?(?![\w/])")

    def text(self, text: str, prefer_module: bool = False) -> str:
        """Prose, or a string: dotted paths and file paths under their new names."""
        if not any(root in text for root in self.roots) and "/" not in text:
            return text
        text = _IMPORT.sub(self._import_in_text, text)
        text = self._dotted.sub(lambda found: self.dotted(found[0], prefer_module), text)
        return _PATH.sub(lambda found: self.path(found[0]), text) if "/" in text else text

    def _import_in_text(self, found: re.Match[str]) -> str:
        module, names = found[2], [each.strip() for each in found[4].split(",")]
        if not self.is_module(module) or not all(re.fullmatch(r"\w+", each) for each in names):
            return found[0]
        new = [self.new_from(module, each) for each in names]
        if len({each for each, _ in new}) > 1 or new == [(module, each) for each in names]:
            return found[0]
        return f"{found[1]}{new[0][0]}{found[3]}{', '.join(each for _, each in new)}"

    def path(self, path: str) -> str:
        if self.moves:
            bare = path.rstrip("/.,")
            for prefix in ("", "hwopt/"):
                plain = prefix + bare
                there = next(
                    (each for each in (plain, plain + ".py") if each in self.files or each in self.folders), None
                )
                if there and (not prefix or there.endswith(".py")) and (new := self._new_path(there)) != there:
                    new = new.removesuffix(".py") if not plain.endswith(".py") and there.endswith(".py") else new
                    return (new.removeprefix(prefix) if prefix else new) + path[len(bare) :]
        return path

    def spans(self, text: str, scope: Scope | None = None, source: Source | None = None) -> str:
        """Code spans whose first word is a renamed name that this scope binds, or that is unique."""

        def replaced(found: re.Match[str]) -> str:
            name, rest, link = found[1], found[2], found[3] or ""
            owner = scope.owner(name) if scope else None
            if link:  # [`name`](#hwopt.name): the target, renamed before this, says what the name is
                target = re.search(r"#([\w.]+)\)$", link)
                old = next((old for old, new in self.links.items() if target and new == target[1]), "")
                return (
                    f"`{self.links[old].rpartition('.')[2]}`{link}"
                    if old.rpartition(".")[2] == name and not rest
                    else found[0]
                )
            if owner and source:
                new = self.planned(source, owner, name)
            elif name in self.unique:
                new = self.names[self.unique[name]]
            elif (path := re.match(r"(?:\.[A-Za-z_]\w*)+", rest)) and self.is_module(f"hwopt.{name}"):
                new = self.dotted(f"hwopt.{name}{path[0]}").removeprefix("hwopt.")
                rest = rest[path.end() :]
            else:
                return found[0]
            return f"`{new}{rest}`"

        return _SPAN.sub(replaced, text)

    # --- Python

    def python(self, source: Source, prose: bool = True) -> bytes:
        """A Python text under the new names."""
        edits, reader = Edits(), source.reader
        handled: set[int] = set()
        for statement, scope in reader.imports:
            self._imports(source, statement, scope, edits)
        for node, scope in reader.names:
            owner = scope.owner(node.id)
            if owner and (new := self.planned(source, owner, node.id)) != node.id:
                edits.put(source.start(node), source.end(node), new)
        for scope in reader.every:
            for name, sites in scope.sites.items():
                new = self.planned(source, scope, name)
                for site in sites if new != name else ():
                    if site.kind in ("def", "class"):
                        self._definition(source, site.node, new, edits)
        for statement, scope in reader.shared:
            for name in statement.names:
                owner = scope.owner(name)
                if owner and (new := self.planned(source, owner, name)) != name:
                    self._word(source, statement, name, new, edits)
        for node, scope in reader.attributes:
            self._attribute(source, node, scope, edits)
        for node, scope in reader.calls:
            self._call(source, node, scope, edits, handled)
        for node, scope in reader.patterns:
            entity = self.entity(source, scope, node.cls)
            for name in node.kwd_attrs:
                if new := self.new_member(entity, name):
                    self._word(source, node, name, new, edits, "=")
        self._class_bodies(source, edits)
        for node, scope in reader.annotations:
            self._forward(source, node, scope, edits, handled)
        self._listed(source, edits, handled)
        self._strings(source, edits, handled)
        if prose:
            self._prose(source, edits)
        return edits.applied(source.data)

    def _imports(self, source: Source, statement: ast.Import | ast.ImportFrom, scope: Scope, edits: Edits) -> None:
        if isinstance(statement, ast.Import):
            for each in statement.names:
                if not self.is_module(each.name):
                    continue
                new, named = self.new_module(each.name), each.asname
                if named:
                    named = self.planned(source, scope, named)
                if (new, named) != (each.name, each.asname):
                    edits.put(source.start(each), source.end(each), f"{new} as {named}" if named else new)
            return
        if statement.level:
            self.look(source, statement.lineno, "a relative import stays as it is")
            return
        if not statement.module or not self.is_module(statement.module):
            return
        news = []
        for each in statement.names:
            local = each.asname or each.name
            module, new = (
                self.new_from(statement.module, each.name)
                if each.name != "*"
                else (self.new_module(statement.module), "*")
            )
            name = self.planned(source, scope, local) if each.name != "*" else "*"
            again = each.asname == each.name and name == new  # `import x as x` marks what a module exports
            news.append((module, new, name if name != new or again else None))
        modules = list(dict.fromkeys(module for module, _, _ in news))
        shown = lambda new, named: f"{new} as {named}" if named else new
        if len(modules) == 1:
            found = re.compile(rb"from\s+([\w.]+)").match(source.data, source.start(statement))
            if modules[0] != statement.module and found:
                edits.put(*found.span(1), modules[0])
            for each, (_, new, named) in zip(statement.names, news, strict=True):
                if (new, named) != (each.name, each.asname):
                    edits.put(source.start(each), source.end(each), shown(new, named))
            return
        lines = [
            f"from {module} import {', '.join(shown(new, named) for at, new, named in news if at == module)}"
            for module in modules
        ]
        if b"#" in source.data[source.start(statement) : source.end(statement)]:
            self.look(source, statement.lineno, "a comment inside this import was lost")
        edits.put(source.start(statement), source.end(statement), ("\n" + " " * statement.col_offset).join(lines))

    def _definition(self, source: Source, node: ast.AST, new: str, edits: Edits) -> None:
        found = re.compile(rb"(?:async\s+)?(?:def|class)\s+(\w+)").match(source.data, source.start(node))
        if found:
            edits.put(*found.span(1), new)

    def _word(self, source: Source, node: ast.AST, old: str, new: str, edits: Edits, after: str = "") -> None:
        start, end = source.start(node), source.end(node)
        for found in re.finditer(rf"\b{old}\b(?=\s*{after})".encode(), source.data[start:end]):
            edits.put(start + found.start(), start + found.end(), new)

    def _attribute(self, source: Source, node: ast.Attribute, scope: Scope, edits: Edits) -> None:
        base = self.entity(source, scope, node.value)
        end = source.end(node)
        start = end - len(node.attr.encode())
        if base and base[0] == "module":
            below = f"{base[1]}.{node.attr}"
            found = self.lookup(base[1], node.attr)
            if found != ("module", below):
                new = self.exposed(base[1], node.attr)
                if new != node.attr:
                    edits.put(start, end, new)
                return
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            at = self.entity(source, scope, root)
            old, new = self.new_module(at[1]) if at else "", self.new_module(below)
            if new == below:
                return
            if at and at[0] == "module" and new.startswith(old + "."):
                edits.put(source.end(root), end, new[len(old) :])
            else:
                self.look(source, node.lineno, f"{below} is now {new}, which this attribute cannot reach")
            return
        if node.attr not in self.wanted_members:
            return
        entity = base if base in self.classes else self.of_class(source, scope, node.value)
        if new := self.new_member(entity, node.attr):
            edits.put(start, end, new)
        elif entity is None or entity not in self.classes:
            if self.definers[node.attr] == 1 and node.attr not in _COMMON and not isinstance(node.value, ast.Constant):
                (new,) = {each[node.attr] for each in self.members.values() if node.attr in each}
                edits.put(start, end, new)
            else:
                self.look(source, node.lineno, f"'.{node.attr}' may be a renamed member")

    def _call(self, source: Source, node: ast.Call, scope: Scope, edits: Edits, handled: set[int]) -> None:
        if module := _import_module(node):
            new, text = self.new_module(module) if self.is_module(module) else module, node.args[0]
            handled.add(id(text))
            if new != module:
                self._inside_quotes(source, text, new, edits)
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in _BY_NAME and len(node.args) > 1 and _is_text(node.args[1]):
            name, base = node.args[1].value, self.entity(source, scope, node.args[0])
            new = None
            if base and base[0] == "module":
                new = self.exposed(base[1], name)
            elif name in self.wanted_members:
                kind = base if base in self.classes else self.of_class(source, scope, node.args[0])
                new = self.new_member(kind, name)
            if new is not None:
                handled.add(id(node.args[1]))
                if new != name:
                    self._inside_quotes(source, node.args[1], new, edits)
        if called == "cast" and node.args and _is_text(node.args[0]):
            self._forward(source, node.args[0], scope, edits, handled)
        named = [each for each in node.keywords if each.arg in self.wanted_members]
        if not named:
            return
        kind = self.entity(source, scope, node.func)
        if kind not in self.classes and isinstance(node.func, ast.Name) and node.func.id == "cls":
            kind = self._around(source, scope)
        if called == "replace" and node.args:
            kind = self.of_class(source, scope, node.args[0])
        elif called == "_replace" and isinstance(node.func, ast.Attribute):
            kind = self.of_class(source, scope, node.func.value)
        for each in named:
            if new := self.new_member(kind, each.arg):
                edits.put(source.start(each), source.start(each) + len(each.arg.encode()), new)
            elif kind not in self.classes and (called in ("replace", "_replace") or kind is None):
                self.look(source, each.value.lineno, f"'{each.arg}=' may be a renamed member")

    def _class_bodies(self, source: Source, edits: Edits) -> None:
        if not self.wanted_members:
            return
        for node, scope in source.reader.classes.items():
            name = node.name if scope.parent.kind == "module" else f"{id(node)}"
            for member, sites in scope.sites.items():
                new = self.new_member(("name", source.dotted, name), member)
                for site in sites if new else ():
                    if site.kind in ("def", "class"):
                        self._definition(source, site.node, new, edits)
                    elif isinstance(site.node, ast.Name):
                        edits.put(source.start(site.node), source.end(site.node), new)
                if new:
                    for used, inner in source.reader.names:
                        if used.id == member and inner is scope:
                            edits.put(source.start(used), source.end(used), new)

    def _forward(self, source: Source, node: ast.Constant, scope: Scope, edits: Edits, handled: set[int]) -> None:
        raw = source.data[source.start(node) : source.end(node)]
        quote = re.match(rb"[rRuU]?('''|\"\"\"|'|\")", raw)
        if not quote or b"\\" in raw:
            return
        try:
            inner = Reader(ast.parse(node.value, mode="eval"))
        except SyntaxError:
            return
        start = source.start(node) + quote.end()
        handled.add(id(node))
        for name, _ in inner.names:
            owner = scope.owner(name.id)
            if owner and name.lineno == 1 and (new := self.planned(source, owner, name.id)) != name.id:
                edits.put(start + name.col_offset, start + name.end_col_offset, new)
        for each, _ in inner.attributes:
            base = self.entity(source, scope, each.value)
            if base and base[0] == "module" and (new := self.exposed(base[1], each.attr)) != each.attr:
                edits.put(start + each.end_col_offset - len(each.attr), start + each.end_col_offset, new)

    def _inside_quotes(self, source: Source, node: ast.Constant, new: str, edits: Edits) -> None:
        raw = source.data[source.start(node) : source.end(node)]
        found = re.fullmatch(rb"([rRuU]?)(['\"])([^'\"\\]*)\2", raw)
        if found and found[3].decode() == node.value:
            edits.put(source.start(node) + found.start(3), source.start(node) + found.end(3), new)
        else:
            self.look(source, node.lineno, f"this string should be {new!r}")

    def _listed(self, source: Source, edits: Edits, handled: set[int]) -> None:
        """`__all__`, and dictionaries from a name to its module."""
        for site in source.reader.module.sites.get("__all__", []):
            for node in ast.walk(site.statement if site.target is None else site.target):
                if _is_text(node) and node.value in source.reader.module.sites:
                    handled.add(id(node))
                    if (new := self.planned(source, source.reader.module, node.value)) != node.value:
                        self._inside_quotes(source, node, new, edits)
        for statement in source.tree.body:
            if isinstance(statement, ast.AugAssign) and getattr(statement.target, "id", "") == "__all__":
                self.look(source, statement.lineno, "`__all__` grows here")
        for each in source.reader.dicts:
            for key, value in zip(each.keys, each.values, strict=True):
                known = _is_text(key) and _is_text(value) and self.is_module(value.value)
                if known and self.lookup(value.value, key.value):
                    handled.add(id(key))
                    new = self.new_from(value.value, key.value)[1]
                    if new != key.value:
                        self._inside_quotes(source, key, new, edits)

    def _strings(self, source: Source, edits: Edits, handled: set[int]) -> None:
        """Strings that are not docstrings: a report where one equals an old name of a module that this file uses."""
        used = self._used(source) | {source.dotted}
        by_name = any(
            (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) in _BY_NAME
            and len(node.args) > 1
            and not _is_text(node.args[1])
            for node, _ in source.reader.calls
        )
        short = {name for module, name in self.names if module in used and (by_name or _distinct(name))}
        lasts = {old.split("/")[-1].removesuffix(".py") for old in self.moves}
        for node, _ in source.reader.texts:
            if id(node) in handled:
                continue
            if node.value in short:
                self.look(source, node.lineno, f"the string {node.value!r} equals a renamed name")
            elif node.value in self.wanted_members:
                self.look(source, node.lineno, f"the string {node.value!r} equals a renamed member")
        for node in ast.walk(source.tree):
            joined = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and _is_text(node.right)
            if joined and node.right.value.removesuffix(".py") in lasts:
                self.look(source, node.lineno, f"the part {node.right.value!r} of a path may have moved")
            for part, after in (
                zip(node.values, node.values[1:], strict=False) if isinstance(node, ast.JoinedStr) else ()
            ):
                found = _OPEN.search(part.value) if _is_text(part) and isinstance(after, ast.FormattedValue) else None
                if found and any(module.startswith(found[1] + ".") for module in self._touched):
                    self.look(source, node.lineno, f"a path below '{found[1]}' is made here")

    @cached_property
    def _touched(self) -> set[str]:
        moved = {name[:-3].replace("/", ".") for name in self.moved if name.endswith(".py")}
        return moved | {f"{module}.{name}" for module, name in self.names}

    def _used(self, source: Source) -> set[str]:
        used = set()
        for statement, _ in source.reader.imports:
            for each in statement.names:
                if isinstance(statement, ast.Import):
                    used.add(each.name)
                elif statement.module:
                    used |= {statement.module, f"{statement.module}.{each.name}"}
                    if (found := self.lookup(statement.module, each.name)) and self.is_module(statement.module):
                        used.add(found[1])
        return used

    def _prose(self, source: Source, edits: Edits) -> None:
        """Comments and strings."""
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
            and _is_text(node.body[0].value)
        }
        plain = {
            id(statement.value)
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Module | ast.ClassDef)
            for statement in node.body
            if isinstance(statement, ast.Expr) and _is_text(statement.value)
        }
        scope_at: dict[int, Scope] = {}
        for node, scope in source.reader.texts:
            if id(node) in docstrings | plain:
                scope_at[source.start(node)] = scope
        lines = source.data.decode().splitlines(keepends=True)

        def offset(at: tuple[int, int]) -> int:
            line, column = at
            return (
                source.starts[line - 1] + len(lines[line - 1][:column].encode())
                if line <= len(lines)
                else len(source.data)
            )

        done = sorted(edits.of)
        for token in tokenize.tokenize(io.BytesIO(source.data).readline):
            if token.type not in (tokenize.STRING, tokenize.COMMENT, tokenize.FSTRING_MIDDLE):
                continue
            start, end = offset(token.start), offset(token.end)
            old = source.data[start:end].decode()
            if any(start <= a and b <= end for a, b in done if b > start):
                continue  # a forward reference or a name in quotes that changed above
            new = None
            if token.type == tokenize.STRING and start not in scope_at and "import" in old and "hwopt" in old:
                new = self._code(old, source)
            if new is None:
                new = self.text(old)
            if token.type == tokenize.COMMENT or start in scope_at:
                new = self.spans(new, scope_at.get(start) or self._scope_of(source, token.start[0]), source)
            if new != old:
                edits.put(start, end, new)

    def _scope_of(self, source: Source, line: int) -> Scope:
        best = source.reader.module
        for scope in source.reader.every[1:]:
            node = scope.node
            if node.lineno <= line <= node.end_lineno and scope.kind != "comprehension":
                best = scope  # inner scopes come after outer ones
        return best

    def _code(self, text: str, outer: Source) -> str | None:
        """A string of Python code, such as the argument of `python -c`; None if it is none."""
        found = re.fullmatch(r"([rR]?)('''|\"\"\"|'|\")(.*)\2", text, re.DOTALL)
        if not found or "\\" in found[3]:
            return None
        inner = found[3]
        for code in (inner, inner.replace("{", "_").replace("}", "_")):
            new = self._block(code, outer.path)
            if new is not None:
                if code is inner:
                    return found[1] + found[2] + new + found[2]
                return None if new == code else found[1] + found[2] + self._braces(inner, code, outer.path) + found[2]
        return None

    def _braces(self, inner: str, code: str, path: str) -> str:
        source = Source(path, code.encode())
        edits = self._code_edits(source)
        return edits.applied(inner.encode()).decode()

    def _code_edits(self, source: Source) -> Edits:
        edits = Edits()
        for statement, scope in source.reader.imports:
            self._imports(source, statement, scope, edits)
        for node, scope in source.reader.names:
            owner = scope.owner(node.id)
            if owner and (new := self.planned(source, owner, node.id)) != node.id:
                edits.put(source.start(node), source.end(node), new)
        for node, scope in source.reader.attributes:
            self._attribute(source, node, scope, edits)
        return edits

    def _block(self, code: str, path: str) -> str | None:
        """Python code inside another file; None if it cannot be parsed."""
        margin = re.match(r"\n?([ \t]*)", code)[1]
        data = textwrap.dedent(code) if margin else code
        try:
            source = Source(path, data.encode())
            new = self.python(source, prose=True).decode()
        except (SyntaxError, tokenize.TokenError, IndentationError):
            return None
        return textwrap.indent(new, margin) if margin and new != data else code if new == data else new

    # --- other files

    def other(self, path: str, text: str) -> str:
        if path.endswith(".ipynb"):
            return self._notebook(path, text)
        if path.endswith("mutants.json"):
            lines = text.splitlines(keepends=True)
            return "".join(
                line if line.lstrip().startswith(('"before"', '"after"')) else self.text(line) for line in lines
            )
        if path.endswith(".md"):
            return self._markdown(path, text)
        if path == "pyproject.toml":
            tops = {
                old.split("/")[1].removesuffix(".py")
                for old in self.moves
                if old.count("/") == 1 and old.startswith("hwopt/")
            }
            for i, line in enumerate(text.splitlines(), start=1):
                if found := tops & set(re.findall(r"\w+", line)) if re.match(r'\s*"[\w |]+",$', line) else None:
                    self.look(path, i, f"the layer of {', '.join(sorted(found))}, which moved")
        return self.text(text)

    def _markdown(self, path: str, text: str) -> str:
        lines = text.splitlines(keepends=True)
        blocks, began = [], None
        for i, line in enumerate(lines):
            if re.match(r"\s*```", line):
                if began is None:
                    began = i if re.match(r"\s*```\s*(python|py)\b", line) else -1
                else:
                    blocks += [(began + 1, i)] if began >= 0 else []
                    began = None
        code = {i for start, end in blocks for i in range(start, end)}
        together = "".join(line if i in code else "\n" for i, line in enumerate(lines))
        new = self._block(together, path)
        if new is not None and len(new.splitlines()) == len(together.splitlines()):
            for i, line in enumerate(new.splitlines(keepends=True)):
                lines[i] = line if i in code else lines[i]
        else:
            for start, end in blocks:
                each = self._block("".join(lines[start:end]), path)
                if each is None:
                    self.look(path, start + 1, "this Python block was read as text")
                    each = self.text("".join(lines[start:end]))
                lines[start:end] = [each, *[""] * (end - start - 1)]
        return "".join(line if i in code else self.spans(self.text(line)) for i, line in enumerate(lines))

    def _notebook(self, path: str, text: str) -> str:
        book = json.loads(text)
        cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
        joined = [re.sub(r"(?m)^(\s*)([%!])", r"\1# \2", "".join(cell["source"])) for cell in cells]
        mark = "\n# --- cell ---\n"
        new = self._block(mark.join(joined), path)
        pieces = new.split(mark) if new is not None else []
        if len(pieces) != len(cells):
            self.look(path, 1, "this notebook was read as text")
            return self.text(text)
        for cell, before, after in zip(cells, joined, pieces, strict=True):
            if after != before:
                cell["source"] = re.sub(r"(?m)^(\s*)# ([%!])", r"\1\2", after).splitlines(keepends=True)
        for cell in book["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = [self.spans(self.text(line)) for line in cell["source"]]
        return json.dumps(book, indent=1, ensure_ascii=False) + "\n"

    # --- the whole

    def contents(self) -> dict[str, bytes]:
        """Changed files by old path."""
        changed = {}
        for name in self.files:
            if name == RENAMED:
                continue
            if name in self.of_path:
                new, old = self.python(self.of_path[name]), self.of_path[name].data
            elif Path(name).suffix in TEXTS and Path(name).name not in HISTORY:
                old = (self.root / name).read_bytes()
                try:
                    new = self.other(name, old.decode()).encode()
                except UnicodeDecodeError:
                    continue
            else:
                continue
            if new != old:
                changed[name] = new
        if RENAMED in self.of_path:
            self._old_names(changed)
        return changed

    def _old_names(self, changed: dict[str, bytes]) -> None:
        """Rows marked `public` in the tables of `hwopt/renamed.py`, and a `__getattr__` in modules that stay."""
        source = self.of_path[RENAMED]
        values = {
            node.target.id: node.value
            for node in source.tree.body
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Dict)
        }
        before = {table: ast.literal_eval(values[table]) for table in ("NAMES", "MODULES")}
        names, modules = (
            {old: self.dotted(new) for old, new in before[table].items()} for table in ("NAMES", "MODULES")
        )
        for row in self.rows:
            if row.state != "pending" or not row.public:
                continue
            if row.kind == "name":
                here, name = self._current(row.module), row.old.partition(":")[2]
                names[f"{row.module}.{name}"] = f"{self.new_module(here)}.{row.new}"
                for package in self.sources.values():
                    sites = package.reader.module.sites.get(name, []) if package.path.endswith("/__init__.py") else []
                    if sites and self.lookup(package.dotted, name) == ("name", here, name) and package.dotted != here:
                        new = self.dotted(f"{package.dotted}.{name}")
                        if new != f"{package.dotted}.{name}":
                            names[f"{package.dotted}.{name}"] = new
            elif row.kind == "module":
                modules[row.old] = row.new
                for each in self.sources:
                    own = row.new + each.removeprefix(row.old)
                    if each.startswith(row.old + ".") and (new := self.new_module(each)) != own:
                        modules[each] = new
        for old in names:
            module = old.rpartition(".")[0]
            now = self.new_module(self._current(module))
            if now != module and not any(module == each or module.startswith(each + ".") for each in modules):
                modules[module] = now
            elif now == module and module != "hwopt" and old not in before["NAMES"]:
                self._getattr(module, changed)
        edits = Edits()
        for table, now in (("NAMES", names), ("MODULES", modules)):
            if now != before[table]:
                lines = [f'    "{old}": "{new}",\n' for old, new in sorted(now.items()) if old != new]
                edits.put(source.start(values[table]), source.end(values[table]), "{\n" + "".join(lines) + "}")
        if edits.of:
            changed[RENAMED] = edits.applied(source.data)

    def _getattr(self, module: str, changed: dict[str, bytes]) -> None:
        source = self.sources[module]
        data = changed.get(source.path, source.data)
        if b"renamed.getter(__name__)" in data:
            return
        if "__getattr__" in source.reader.module.sites or any(
            "renamed" in scope.sites for scope in source.reader.every
        ):
            self.look(source, 1, "its old public names need a `__getattr__` by hand")
            return
        first = next((node for node in ast.parse(data).body if not _opening(node)), None)
        lines = data.splitlines(keepends=True)
        at = first.lineno - 1 - len(getattr(first, "decorator_list", [])) if first else len(lines)
        lines.insert(at, b"from typing import TYPE_CHECKING\n\nfrom hwopt import renamed\n")
        lines.append(b"\nif not TYPE_CHECKING:  # old public names\n    __getattr__ = renamed.getter(__name__)\n")
        changed[source.path] = b"".join(lines)

    def write(self, changed: dict[str, bytes]) -> list[str]:
        """Write and move files; returns those that changed, by new path."""
        for name, data in changed.items():
            (self.root / name).write_bytes(data)
        for name in self.moved:
            (self.root / name).rename(self.root / f"{name}.moving")
        for name, new in self.moved.items():
            (self.root / new).parent.mkdir(parents=True, exist_ok=True)
            (self.root / f"{name}.moving").rename(self.root / new)
        made = self._packages()
        for name in sorted({os.path.dirname(name) for name in self.moved}, key=len, reverse=True):
            self._remove_empty(self.root / name)
        touched = sorted({*(self._new_path(name) for name in changed), *self.moved.values(), *made})
        if touched:
            subprocess.run(
                ["git", "add", "--all", "--", *{*touched, *self.moved}], cwd=self.root, check=False, capture_output=True
            )
        return touched

    def _packages(self) -> list[str]:
        sentences = {row.old: row.new for row in self.rows if row.kind == "package"}
        made = []
        for new in sorted(self.moved.values()):
            parts = new.split("/")[:-1]
            if not new.endswith(".py") or not parts or not (self.root / parts[0] / "__init__.py").exists():
                continue
            for i in range(1, len(parts) + 1):
                path = "/".join([*parts[:i], "__init__.py"])
                if not (self.root / path).exists():
                    dotted = ".".join(parts[:i])
                    if dotted not in sentences:
                        self.look(path, 1, "a new package without a row of kind 'package'")
                    (self.root / path).write_text(
                        f'"""{sentences[dotted]}"""\n' if dotted in sentences else "", encoding="utf-8"
                    )
                    made.append(path)
        return made

    def _remove_empty(self, folder: Path) -> None:
        while folder != self.root and folder.is_dir() and {each.name for each in folder.iterdir()} <= {"__pycache__"}:
            shutil.rmtree(folder)
            folder = folder.parent
        if folder.is_dir() and {each.name for each in folder.iterdir()} <= {"__pycache__", "__init__.py"}:
            self.look(str(folder.relative_to(self.root)), 1, "a package whose modules have all moved")


def _defined(sites: Iterable[Site]) -> bool:
    return any(site.kind in ("def", "class", "store") for site in sites)


def _part(of: Typed | None, index: int) -> Typed | None:
    """The annotation of what a container holds: its first part is what a loop takes, its last what an index takes."""
    if of is None:
        return None
    source, scope, node = of
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        with contextlib.suppress(SyntaxError):
            node = ast.parse(node.value, mode="eval").body
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant) and node.right.value is None:
        node = node.left
    if not isinstance(node, ast.Subscript):
        return None
    name = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
    if name not in _CONTAINERS:
        return None
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "tuple" and not (len(parts) == 2 and isinstance(parts[1], ast.Constant) and parts[1].value is ...):
        return None
    return source, scope, parts[0] if name == "tuple" else parts[index]


def _within(inner: Scope | None, outer: Scope) -> bool:
    while inner:
        if inner is outer:
            return True
        inner = inner.parent
    return False


def _opening(node: ast.stmt) -> bool:
    """Whether a statement is a module's docstring or a `__future__` import."""
    docstring = isinstance(node, ast.Expr) and _is_text(node.value)
    return docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def _distinct(name: str) -> bool:
    """Whether a name cannot be a plain English word."""
    return "_" in name.strip("_") or not name.islower()


def _is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _import_module(node: ast.AST | None) -> str | None:
    if isinstance(node, ast.Call) and node.args and _is_text(node.args[0]):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return node.args[0].value if name in ("import_module", "__import__", "find_spec", "importorskip") else None
    return None


def _of_self(scope: Scope) -> Iterator[ast.Attribute]:
    arguments = scope.node.args.posonlyargs + scope.node.args.args
    first = arguments[0].arg if arguments else ""
    for node in ast.walk(scope.node):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == first:
            yield node


_CONTAINERS = {
    "list",
    "tuple",
    "set",
    "frozenset",
    "dict",
    "Sequence",
    "Iterable",
    "Iterator",
    "Collection",
    "Mapping",
    "deque",
}
_CONTAINERS |= {"MutableMapping", "Generator", "defaultdict", "OrderedDict", "Counter"}
_BY_NAME = {"setattr", "getattr", "hasattr", "delattr", "object"}
_COMMON = {name for kind in vars(builtins).values() if isinstance(kind, type) for name in dir(kind)}
_COMMON |= {
    "T",
    "at",
    "shape",
    "size",
    "dtype",
    "ndim",
    "item",
    "sum",
    "min",
    "max",
    "mean",
    "name",
    "path",
    "parent",
    "stem",
    "args",
}
_SPAN = re.compile(r"(?<!`)`([A-Za-z_]\w*)((?:[.(\[][^`\n]*)?)`(?!`)(?<!\[)(\]\([^)\s]*#[\w.]+\))?")
_IMPORT = re.compile(r"(\bfrom )([A-Za-z_][\w.]*)( import )(\w+(?:, \w+)*)")
_PATH = re.compile(r"(?<![\w:/.\-])[\w.\-]+(?:/[\w.\-]+)+/?")
_OPEN = re.compile(r"\b(hwopt(?:\.\w+)*)\.$")


def read(path: Path) -> list[Row]:
    """The rows of a table. **Raises:** `ValueError` for an unknown kind, or for two rows of one old name."""
    rows, seen = [], set()
    with path.open(encoding="utf-8", newline="") as file:
        for line, each in enumerate(csv.DictReader(file), start=2):
            row = Row(
                each["kind"], each["old"].strip(), each["new"].strip(), bool((each.get("public") or "").strip()), line
            )
            if row.kind not in ("module", "package", "name", "member", "path"):
                raise ValueError(f"{path}:{line}: unknown kind '{row.kind}'")
            if row.kind in ("name", "member") and (":" not in row.old or not row.new.isidentifier()):
                raise ValueError(f"{path}:{line}: needs module:name and a plain new name")
            if (row.kind, row.old) in seen:
                raise ValueError(f"{path}:{line}: a second row of {row.old}")
            seen.add((row.kind, row.old))
            if row.old != row.new:
                rows.append(row)
    return rows


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--table", type=Path, default=HERE / "names.csv")
    options.add_argument("--root", type=Path, default=HERE.parents[1], help="the checkout")
    options.add_argument(
        "--package", default="", metavar="hwopt.optim", help="apply only the rows whose old path is in a package"
    )
    options.add_argument(
        "--check", action="store_true", help="list rows that are gone or collide, and what needs a look; change nothing"
    )
    options.add_argument("--ruff", default="ruff")
    given = options.parse_args()
    if sys.version_info < (3, 12):
        sys.exit("needs Python 3.12 or newer")
    renames = Renames(given.root.resolve(), read(given.table), given.package)
    changed = renames.contents()
    counts = Counter(row.state for row in renames.rows if row.kind != "package")
    print(", ".join(f"{count} {state}" for state, count in sorted(counts.items())))
    for row in renames.rows:
        if row.state == "missing":
            print(f"MISSING line {row.line}: {row.kind} {row.old}")
    for each in dict.fromkeys(renames.errors):
        print(f"COLLISION {each}")
    if renames.errors:
        return 1
    if given.check:
        print(
            *dict.fromkeys(renames.reports), f"{len(changed)} files would change, {len(renames.moved)} move", sep="\n"
        )
        return 0
    touched = renames.write(changed)
    print(*dict.fromkeys(renames.reports), f"{len(changed)} files changed, {len(renames.moved)} moved", sep="\n")
    python = [name for name in touched if name.endswith(".py")]
    if python:
        subprocess.run([given.ruff, "check", "-q", "--select", "I", "--fix", *python], cwd=given.root, check=True)
        subprocess.run([given.ruff, "format", "-q", *python], cwd=given.root, check=True)
        subprocess.run(["git", "add", "--", *touched], cwd=given.root, check=False, capture_output=True)
        subprocess.run([given.ruff, "check", "--output-format", "concise", *python], cwd=given.root, check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
