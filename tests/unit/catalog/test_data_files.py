"""Every shipped file loads, and a file that says too little or too much is refused in one line."""

from __future__ import annotations

import ast
import math
import tomllib
from pathlib import Path

import pytest

from hwopt import catalog
from hwopt.catalog.load import sources
from hwopt.catalog.names import data_root
from hwopt.errors import UserError
from hwopt.units import MULTIPLIERS

ROOT = Path(__file__).parents[3]
ENTRIES = [(kind, name) for kind in catalog.kinds for name in catalog.names(kind)]
KINDS_OF_NUMBERS = {"datasheet", "measured", "paper", "estimate", "assumption", "derived"}
GOOD = '{ value = 1.2, unit = "1", kind = "estimate", source = "hwopt-estimate" }'
COOLING = "".join(
    line
    for line in (data_root() / "cooling" / "air.toml").read_text(encoding="utf-8").splitlines(keepends=True)
    if not line.startswith(("title", "heat_captured"))
)


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_every_number_has_unit_kind_and_source(kind, name):
    held = catalog.record(kind, name)
    assert held.slug == name and held.title
    assert held.quantities or "unsupported" in held.text
    for key, quantity in held.quantities.items():
        assert quantity.unit in MULTIPLIERS and quantity.kind in KINDS_OF_NUMBERS, key
        assert len(held.citation(key)) > 10, key
        assert math.isfinite(held.si(key)) and held.si(key) >= 0.0, key
        if quantity.kind in ("estimate", "assumption") and kind not in ("workloads", "blueprints"):  # what others state
            assert quantity.low is not None and quantity.high is not None, f"{key}: an estimate states its range"


CODE = [
    path
    for room in ("model", "hardware", "workload", "catalog")
    for path in sorted((ROOT / "hwopt" / room).glob("*.py"))
]


@pytest.mark.parametrize("path", [*CODE, *sorted((ROOT / "objectives").glob("*.py"))], ids=lambda path: path.stem)
def test_every_number_named_in_code_says_what_it_is(path):
    """A constant of the model that is no data still has a sentence: what it means, where it comes from."""
    source = path.read_text(encoding="utf-8")
    body, lines = ast.parse(source).body, source.splitlines()
    for index, node in enumerate(body):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        try:
            value = ast.literal_eval(node.value)
        except ValueError:
            continue
        if not isinstance(value, (int, float)):
            continue
        after = body[index + 1] if index + 1 < len(body) else None
        described = isinstance(after, ast.Expr) and isinstance(getattr(after.value, "value", None), str)
        assert described or "#" in lines[node.lineno - 1], f"{path.name}: {lines[node.lineno - 1]}"


def test_no_source_is_left_unused():
    own, used = set(), set()
    for kind, name in ENTRIES:
        file = tomllib.loads((data_root() / kind / f"{name}.toml").read_text(encoding="utf-8"))
        cited = {q.source for q in catalog.record(kind, name).quantities.values()}
        assert set(file.get("sources", {})) <= cited, f"{kind}/{name}"
        own |= set(file.get("sources", {}))
        used |= cited
    assert set(sources()) == used - own and not own & set(sources())


def test_aliases_lead_to_entries():
    table = tomllib.loads((data_root() / "aliases.toml").read_text(encoding="utf-8"))
    for kind, spellings in table.items():
        assert set(spellings.values()) <= set(catalog.names(kind))
        assert not set(spellings) & set(catalog.names(kind))


def test_links_of_chips_exist():
    for name in catalog.names("chips"):
        text = catalog.record("chips", name).text
        for key in ("scale_up", "scale_out"):
            assert text[key] in catalog.names("links")
        assert catalog.default_stack(name) in catalog.names("stacks")


def test_a_good_file_of_ones_own_loads(tmp_path):
    path = tmp_path / "mine.toml"
    mine = GOOD.replace("hwopt-estimate", "me")
    path.write_text(f'{COOLING}heat_captured = {mine}\n[sources]\nme = "our own bench"\n')
    held = catalog.record("cooling", path)
    assert (held.slug, held.si("rack_power")) == ("mine", 30e3)
    assert held.citation("heat_captured") == "our own bench"
    assert catalog.sources_of(held, held) == sorted(set(catalog.sources_of(held)))


def test_a_value_of_ones_own_widens_the_range_of_the_entry_it_was_copied_from(tmp_path):
    """A site a third cheaper than the catalogue's cheapest was refused."""
    path = tmp_path / "mine.toml"
    path.write_text(COOLING + f"heat_captured = {GOOD}".replace("}", ", low = 2, high = 3 }") + "\n")
    found = catalog.record("cooling", path).quantities["heat_captured"]
    assert (found.low, found.value, found.high) == (1.2, 1.2, 3.0)


@pytest.mark.parametrize(
    "path", sorted(Path(str(data_root())).rglob("*.toml")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_values_that_are_shipped_lie_within_their_own_ranges(path):
    def numbers(table):
        for value in table.values():
            if isinstance(value, dict) and {"value", "unit"} <= value.keys():
                yield value
            elif isinstance(value, dict):
                yield from numbers(value)

    for each in numbers(tomllib.loads(path.read_text(encoding="utf-8"))):
        assert each.get("low", each["value"]) <= each["value"] <= each.get("high", each["value"]), each


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('heat_captured = { value = 1, unit = "1", kind = "estimate" }', "has no 'source'"),
        ('heat_captured = { value = 1, kind = "estimate", source = "eia-2025" }', "has no 'unit'"),
        ('heat_captured = { value = 1, unit = "1", source = "eia-2025" }', "has no 'kind'"),
        (f"heat_captured = {GOOD}".replace("hwopt-estimate", "hwopt-estimat"), "did you mean 'hwopt-estimate'"),
        (f"heat_captured = {GOOD}".replace('"estimate"', '"guess"'), "unknown kind 'guess'"),
        (f"heat_captured = {GOOD}".replace("1.2", "nan"), "must be finite"),
        (f"heat_captured = {GOOD}".replace("1.2", "inf"), "must be finite"),
        (f"heat_captured = {GOOD}".replace("1.2", "-1"), "not negative"),
        (f"heat_captured = {GOOD}".replace("1.2", '"1.2"'), "heat_captured"),
        (f"heat_captured = {GOOD}".replace("1.2", "true"), "heat_captured"),
        (f"heat_captured = {GOOD}".replace("}", ", lo = 1 }"), "unknown key 'lo'"),
        (f"heat_captured = {GOOD}".replace("}", ", low = 2, high = 1 }"), "reversed range"),
        (f"heat_captured = {GOOD}".replace('"1"', '"percent"'), "unknown unit 'percent'"),
        (f"heat_captured = {GOOD}".replace('"1"', '"kW"'), "SI unit is '1'"),
        ("heat_captured = [0.9]", "must be a table"),
        ('heat_captured = "90 W"', "'W' is not a unit of this quantity"),
        ('heat_captured = "most of it"', "'most of it' is not a number"),
        ('base = "airr"', "'base': unknown name 'airr'"),
        ('base = "mine.toml"', "refers back to the file itself"),
        ("base = 3", "must name a cooling"),
        (f"heat_capturd = {GOOD}", "did you mean 'heat_captured'"),
        ("title = 3", "must be text"),
        ("sources = 3", "must be a table of texts"),
        ("heat_captured = ", "is not TOML"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, line, complaint):
    path = tmp_path / "mine.toml"
    path.write_text(COOLING + line + "\n")
    with pytest.raises(UserError) as caught:
        catalog.record("cooling", str(path))
    text = str(caught.value)
    assert complaint in text and "mine.toml" in text and "\n" not in text


def test_all_that_is_wrong_of_a_file_is_said_at_once(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "h100-sxm"\nmemory_capacty = "96GB"\ntdp = "700"\nprice = "30k$"\n[peak]\nbf61 = 1\nfp8 = "2 W"\n'
    )
    with pytest.raises(UserError) as caught:
        catalog.record("chips", path)
    said = caught.value.lines
    assert len(said) == 4
    for words in (
        "did you mean 'memory_capacity'",
        "'700' has no unit",
        "did you mean 'bf16'",
        "'peak.fp8' = '2 W': 'W' is no",
    ):
        assert sum(words in line for line in said) == 1


def test_a_file_may_stand_on_an_entry_and_state_what_differs(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "gb200"\nmemory_capacity = "288 GB"\n[peak]\nfp4 = "15 PFLOP/s"\n')
    mine, base = catalog.record("chips", path), catalog.record("chips", "gb200")
    assert mine.si("memory_capacity") == 288e9 and mine.si("peak.fp4") == 15e15
    assert mine.si("peak.bf16") == base.si("peak.bf16") and mine.si("tdp") == base.si("tdp")
    assert mine.title == "mine" and "without a source" in mine.citation("memory_capacity")
    above = tmp_path / "above.toml"
    above.write_text('base = "mine.toml"\ntitle = "Above"\ntdp = "1.4 kW"\n')
    assert (
        catalog.record("chips", above).si("memory_capacity") == 288e9
        and catalog.record("chips", above).si("tdp") == 1400.0
    )
    assert float(catalog.chip(above).hbm_capacity_bytes) == 288e9


def test_a_missing_key_and_a_missing_file_are_named(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(COOLING)
    with pytest.raises(UserError, match="'heat_captured' is missing"):
        catalog.record("cooling", path)
    with pytest.raises(UserError, match="cannot read"):
        catalog.record("cooling", tmp_path / "none.toml")
    with pytest.raises(UserError, match=r"must be a \.toml"):
        catalog.record("cooling", tmp_path / "none.json")
    with pytest.raises(UserError, match="unknown kind"):
        catalog.record("chip", "h100-sxm")
    with pytest.raises(UserError, match="did you mean 'tdp'"):
        catalog.record("chips", "h100-sxm").si("tpd")
