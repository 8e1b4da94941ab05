from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hwopt import registry
from hwopt.errors import UserError


def install(folder: Path, distribution: str, entries: dict[str, str], **modules: str) -> None:
    """Lay a distribution into `folder` as an installer would: metadata and modules."""
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = [f"[{registry.GROUP}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("acme_")]:
        del sys.modules[name]


def test_objective_of_a_third_party_is_found_and_loaded(site):
    install(site, "acme", {"acme_goal": "acme_goal:Goal"}, acme_goal="class Goal:\n    pass\n")
    assert "acme_goal" in registry.names()
    assert registry.load("acme_goal").__name__ == "Goal"


def test_names_are_sorted_and_import_nothing(site):
    install(site, "acme", {"acme_z": "acme_absent:Z", "acme_a": "acme_absent:A"})
    names = registry.names()
    assert names == sorted(names)
    assert {"acme_a", "acme_z"} <= set(names)


def test_unknown_name_suggests_the_close_one(site):
    install(site, "acme", {"acme_goal": "acme_goal:Goal"})
    with pytest.raises(UserError, match=r"no objective is named 'acme_gaol': did you mean 'acme_goal'"):
        registry.load("acme_gaol")


@pytest.mark.parametrize(
    ("target", "text", "reason"),
    [
        ("acme_gone:Goal", "", "ModuleNotFoundError"),
        ("acme_bad:Goal", "", "AttributeError"),
        ("acme_bad:Goal", "raise RuntimeError('no\\nluck')", "RuntimeError: no luck"),
        ("acme_bad:Goal", "Goal = 3", "is not a class: 3"),
    ],
)
def test_broken_entry_point_names_distribution_and_reason_on_one_line(site, target, text, reason):
    install(site, "acme-broken", {"acme_goal": target}, acme_bad=text)
    with pytest.raises(UserError) as caught:
        registry.load("acme_goal")
    assert "distribution 'acme-broken'" in str(caught.value)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_distributions_with_one_name_are_refused_by_both_names(site):
    install(site, "acme-one", {"acme_goal": "acme_goal:Goal"}, acme_goal="class Goal:\n    pass\n")
    install(site, "acme-two", {"acme_goal": "acme_goal:Goal"})
    assert registry.names().count("acme_goal") == 1
    with pytest.raises(UserError, match=r"'acme-one'.*'acme-two'"):
        registry.load("acme_goal")


def test_metadata_met_twice_is_one_claim(site, monkeypatch):
    install(site, "acme", {"acme_goal": "acme_goal:Goal"}, acme_goal="class Goal:\n    pass\n")
    copy = site / "checkout"
    install(copy, "Acme", {"acme_goal": "acme_goal:Goal"})
    monkeypatch.syspath_prepend(copy)
    assert registry.load("acme_goal").__name__ == "Goal"
