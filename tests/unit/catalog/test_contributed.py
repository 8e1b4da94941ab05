"""Data files of other packages stand beside ours, and never in place of them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from hwopt import catalog
from hwopt.catalog.contributed import GROUP, contributed
from hwopt.errors import UserError

load, names = (importlib.import_module(f"hwopt.catalog.{room}") for room in ("load", "names"))
SITE = (names.data_root() / "sites" / "norway.toml").read_text(encoding="utf-8")


def forget() -> None:
    for each in (contributed, names.names, load._entry):
        each.cache_clear()


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield tmp_path
    forget()
    for name in [name for name in sys.modules if name.startswith("acme")]:
        del sys.modules[name]


def install(folder: Path, distribution: str, package: str, **files: str) -> None:
    """Lay a distribution into `folder` as an installer would; files of kind `sites` by their stems."""
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nany = {package}\n")
    held = folder.joinpath(*package.split("."))
    (held / "sites").mkdir(parents=True, exist_ok=True)
    (held / "__init__.py").write_text("raise RuntimeError('imported')\n")
    for stem, text in files.items():
        (held / "sites" / f"{stem.replace('_', '-')}.toml").write_text(text)


def test_an_entry_is_found_by_name_and_its_package_is_not_imported(site):
    own = SITE.replace('source = "ember-2023"', 'source = "acme-survey"')
    own += '\n[sources]\nacme-survey = "ACME, a survey of our valley, 2026"\n'
    install(site, "acme", "acme_sites", my_valley=own)
    assert "my-valley" in catalog.names("sites") and "norway" in catalog.names("sites")
    held = catalog.record("sites", "My Valley")
    assert held.slug == "my-valley"
    assert catalog.cluster("h100-sxm", 8, site="my-valley").facility is not None
    assert "acme_sites" not in sys.modules
    assert "ACME, a survey of our valley, 2026" in catalog.sources_of(held)


def test_other_kinds_of_the_package_are_empty(site):
    install(site, "acme", "acme_sites", my_valley=SITE)
    assert contributed("chips") == {}


def test_a_bad_file_is_refused_with_its_path(site):
    install(site, "acme", "acme_sites", my_valley="pue = 1.1\n")
    with pytest.raises(UserError, match=r"my-valley\.toml: 'pue'|my-valley\.toml: unknown key 'pue'"):
        catalog.record("sites", "my-valley")


def test_a_name_of_ours_is_refused_by_both_owners_and_others_stay(site):
    install(site, "acme", "acme_sites", norway=SITE)
    assert catalog.names("sites").count("norway") == 1
    with pytest.raises(
        UserError, match=r"'norway' in the catalog's sites is offered by distribution 'acme'.*and by hwopt"
    ):
        catalog.record("sites", "norway")
    assert catalog.record("sites", "us-average").slug == "us-average"


def test_a_name_of_two_packages_is_refused(site):
    install(site, "acme_one", "acme_a", my_valley=SITE)
    install(site, "acme_two", "acme_b", my_valley=SITE)
    with pytest.raises(UserError, match=r"'acme_one'.*'acme_two'"):
        catalog.find("sites", "my-valley")


def test_an_alias_of_ours_is_refused(site, monkeypatch):
    install(site, "acme", "acme_sites", valhalla=SITE)
    monkeypatch.setattr(names, "aliases", lambda kind: {"valhalla": "norway"})
    with pytest.raises(UserError, match=r"another name of 'norway'"):
        catalog.find("sites", "valhalla")


def test_a_file_that_is_no_slug_says_what_to_call_it(site):
    install(site, "acme", "acme_sites")
    (site / "acme_sites" / "sites" / "My Valley.toml").write_text(SITE)
    with pytest.raises(UserError, match=r"rename the file to my-valley\.toml"):
        catalog.find("sites", "my valley")


@pytest.mark.parametrize("package", ["acme_gone", "acme_gone.data"])
def test_a_package_that_is_gone_is_named_on_one_line(site, package):
    install(site, "acme", "acme_sites")
    (site / "acme-1.0.dist-info" / "entry_points.txt").write_text(f"[{GROUP}]\nany = {package}\n")
    with pytest.raises(UserError) as caught:
        catalog.names("sites")
    assert "distribution 'acme'" in str(caught.value) and "\n" not in str(caught.value)


def test_metadata_met_twice_is_one_offer(site, monkeypatch):
    install(site, "acme", "acme_sites", my_valley=SITE)
    copy = site / "checkout"
    info = copy / "acme-1.0.dist-info"
    info.mkdir(parents=True)
    for name in ("METADATA", "entry_points.txt"):
        (info / name).write_text((site / "acme-1.0.dist-info" / name).read_text())
    monkeypatch.syspath_prepend(copy)
    forget()
    assert catalog.record("sites", "my-valley").slug == "my-valley"
