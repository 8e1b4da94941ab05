"""The guide: pages show what commands and Python print; every command, name and module has its place; links lead somewhere."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

import hwopt
from hwopt import catalog
from hwopt.cli import main
from hwopt.cli.parser import COMMANDS, build_parser, objective_of
from hwopt.output import guide
from hwopt.output.schema.commands import schema_of
from tests.rotation import shared_out

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "notebooks" / "guide"
sys.path.insert(0, str(GUIDE))

from writing import api, numbers, quoted, studies  # noqa: E402
from writing.examples import examples, json_keys, pages, python_output, write_files  # noqa: E402

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]

BLOCKS = {page: examples(page) for page in pages()}
EXAMPLES = [each for blocks in BLOCKS.values() for each in blocks]
LINES = [
    pytest.param(line, id=f"{each.page}: {line[:70]}")
    for each in EXAMPLES
    if each.language == "bash"
    for line in each.commands
]
WITH_PYTHON = [page for page, blocks in BLOCKS.items() if any(each.language == "python" for each in blocks)]
WITH_RUNS = [page for page, blocks in BLOCKS.items() if any("runs" in each.marks for each in blocks)]
WITH_SLOW = [page for page, blocks in BLOCKS.items() if any("slow" in each.marks for each in blocks)]
WITH_KEYS = [page for page in BLOCKS if json_keys(page)]


def named(path: Path) -> str:
    return path.relative_to(GUIDE / "pages").as_posix()


def said_by(line: str) -> tuple[int, str]:
    """Exit code and what a command prints on both streams."""
    program, *words = shlex.split(line)
    assert program == "hwopt"
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(words)
    return code, said.getvalue()


@pytest.mark.parametrize("line", LINES)
def test_every_command_line_parses(line):
    program, *words = shlex.split(line.partition(" '>' ")[0])  # without a redirection
    assert program == "hwopt"
    if not any(each.code.find(line) >= 0 and each.marks.get("exits") == "2" for each in EXAMPLES):
        options = build_parser(*objective_of(words)).parse_args(words)
        assert options.command == words[0]


def test_what_a_mark_says_is_run_is_shown():
    """A mark that is not read, or has no output below it, is one that `renew.py` passes over."""
    marked = [each for each in EXAMPLES if each.language == "bash" and each.marks.keys() & {"runs", "slow"}]
    written = sum(len(re.findall("^<!-- (?:runs|slow)", page.read_text(encoding="utf-8"), re.M)) for page in pages())
    assert [f"{each.page}: {each.code}" for each in marked if each.printed is None] == []
    assert len(marked) == written


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_RUNS, ids=named)
def test_commands_print_what_stands_below_them(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCKS[page]
    write_files(blocks, tmp_path)
    for each in blocks:
        if "runs" in each.marks:
            answers = [said_by(line) for line in each.commands]
            assert answers[-1][0] == int(each.marks.get("exits", "0"))
            assert each.shown("".join(text for _, text in answers)) == each.printed, "python notebooks/guide/renew.py"


@pytest.mark.search
@pytest.mark.usefixtures("solved_once")
@pytest.mark.parametrize("page", shared_out(WITH_SLOW, 3), ids=named)
def test_slow_commands_print_what_stands_below_them(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCKS[page]
    write_files(blocks, tmp_path)
    for each in blocks:
        if "slow" in each.marks:
            (code, text) = said_by(each.commands[-1])
            assert code == int(each.marks.get("exits", "0"))
            assert each.shown(text) == each.printed, "python notebooks/guide/renew.py --slow"


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PYTHON, ids=named)
def test_python_prints_what_stands_below_it(page):
    for each, printed in python_output(BLOCKS[page]):
        assert printed == (each.printed or ""), "python notebooks/guide/renew.py"


def keys_missing(page: Path, folder: Path) -> list[str]:
    blocks = BLOCKS[page]
    write_files(blocks, folder)
    first = next(each for each in blocks if each.language == "bash")
    document = json.loads(said_by(f"{first.commands[0]} --json")[1])
    missing = []
    for key in json_keys(page):
        within = document
        for part in key.split("."):
            within = within.get(part) if isinstance(within, dict) else None
        if within is None:
            missing.append(key)
    return missing


def within(schema: dict, key: str, shared: dict) -> list[dict]:
    """What a schema says of a key, in each of its kinds."""
    if "$ref" in schema:
        return within(shared[schema["$ref"].rpartition("/")[2]], key, shared)
    own = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
    kinds = [each for kind in schema.get("anyOf", []) for each in within(kind, key, shared)]
    return kinds if own is None else [own, *kinds]


@pytest.mark.parametrize("page", WITH_KEYS, ids=named)
def test_schemas_have_the_keys_that_a_page_names(page):
    first = next(each for each in BLOCKS[page] if each.language == "bash")
    schema = schema_of(first.commands[0].split()[1])
    for name in json_keys(page):
        found = [schema]
        for key in name.split("."):
            found = [each for kind in found for each in within(kind, key, schema["$defs"])]
        assert found, name


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in WITH_KEYS if page in WITH_RUNS], ids=named)
def test_json_has_the_keys_that_a_page_names(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not keys_missing(page, tmp_path)


@pytest.mark.search
@pytest.mark.usefixtures("solved_once")
@pytest.mark.parametrize("page", [page for page in WITH_KEYS if page not in WITH_RUNS], ids=named)
def test_json_of_slow_commands_has_the_keys_that_a_page_names(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not keys_missing(page, tmp_path)


def test_every_command_has_a_page_with_its_flags_and_an_example():
    for name in COMMANDS:
        page = GUIDE / "pages" / "commands" / f"{name}.md"
        text = page.read_text(encoding="utf-8")
        assert text.startswith(f"# hwopt {name}\n") and f"\n<!-- flags: {name} -->\n" in text
        first = next(each for each in BLOCKS[page] if each.language == "bash")
        assert first.commands[0].split()[:2] == ["hwopt", name] and first.printed


def test_every_public_name_is_in_the_reference():
    for room, root in (("hwopt", hwopt), ("hwopt.catalog", catalog)):
        text = api.reference(room)
        for name in root.__all__:
            if callable(getattr(root, name)):
                assert f"{{ #{room}.{name} }}" in text, f"{room}.{name}"


def test_every_module_of_the_model_is_on_a_page_of_physics():
    written = "".join(path.read_text(encoding="utf-8") for path in (GUIDE / "pages" / "physics").glob("*.md"))
    shown = set(re.findall(r"^<!-- module: (\S+) -->$", written, re.MULTILINE))
    model = ROOT / "hwopt" / "model"
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in model.rglob("*.py")
        if path.name != "__init__.py"
    }
    # What a report declares is listed by its fields (api/inputs.md).
    assert modules - shown == {"hwopt.model.report"}


def test_numbers_that_pages_show_carry_a_source():
    stated = 0
    for kind, entry, key, citation in numbers.stated():
        assert citation.strip(), f"{kind} {entry} {key}"
        stated += 1
    for kind in ("chips", "cooling"):
        assert numbers.page(kind).count("<tr>") > 20
    assert stated > 7000


@pytest.mark.parametrize("path", sorted({each.path() for each in quoted.QUOTED}), ids=lambda path: path.stem)
def test_sentences_quote_results_as_committed(path):
    assert path.read_text(encoding="utf-8") == quoted.corrected(path), "python notebooks/guide/renew.py --quoted"


def test_links_between_pages_lead_somewhere():
    made = {f"numbers/{kind}.md" for kind in numbers.kinds()} | set(studies.results().values())
    made |= {f"studies/{path.stem}.md" for path in studies.NOTEBOOKS} | {
        f"studies/{path.stem}.ipynb" for path in studies.NOTEBOOKS
    }
    made |= {f"figures/{path.name}" for path in (ROOT / "results" / "figures").glob("*.png")}
    known = made | {named(path) for path in pages()}
    for page in pages():
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                resolved = (page.parent / target).resolve().relative_to((GUIDE / "pages").resolve()).as_posix()
                assert resolved in known, f"{named(page)}: {target}"


def test_pages_name_no_address_that_does_not_exist():
    for page in pages():
        addresses = re.findall(r"https?://[^\s\"')>]+", page.read_text(encoding="utf-8"))
        assert all("example.org" in each or "json-schema.org" in each for each in addresses), (
            f"{named(page)}: {addresses}"
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built strictly."""
    pytest.importorskip("mkdocs", reason="no mkdocs: pip install 'hwopt[docs]'")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(GUIDE / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


@pytest.mark.slow
def test_links_of_the_built_site_lead_somewhere_and_none_is_loaded_from_outside(site):
    sites = [
        path for path in site.rglob("*.html") if path.name != "404.html"
    ]  # which a server shows, by paths of its own
    assert len(sites) > 100
    anchors = {path: set(re.findall(r'\bid="([^"]+)"', path.read_text(encoding="utf-8"))) for path in sites}
    for path in sites:
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img|iframe|link rel="stylesheet")[^>]*(?:src|href)="(?:https?:)?//', text), (
            path
        )
        for target in re.findall(r'\b(?:href|src)="([^"]+)"', text):
            if not re.match(r"[a-z]+:|//", target):
                place, _, anchor = target.partition("#")
                place = (path.parent / place).resolve() if place else path
                assert place.exists(), f"{path.name}: {target}"
                if anchor and place in anchors and not anchor.startswith("__"):
                    assert anchor in anchors[place], f"{path.name}: {target}"


@pytest.mark.slow
def test_the_site_is_searched_from_its_folder(site, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'hwopt[browser]'")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    with playwright.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(tmp_path, executable_path=program, args=FLAGS)
        page, outside, faults = context.new_page(), [], []
        page.on("request", lambda each: outside.append(each.url) if each.url.startswith("http") else None)
        page.on("pageerror", lambda each: faults.append(str(each)))
        page.goto((site / "index.html").as_uri())
        page.click("input.md-search__input")
        page.keyboard.type("dragonfly", delay=30)
        page.locator(".md-search-result__item", has_text="Collectives and topologies").wait_for(timeout=20_000)
        context.close()
    assert not outside and not faults


@pytest.mark.parametrize("topic", sorted(guide.topics()))
def test_every_topic_prints_without_markers(topic):
    text = guide.text(topic)
    assert text.startswith("# ") and "\n<!--" not in text


def test_unknown_topics_are_suggested(capsys):
    assert main(["docs", "colectives"]) == 2
    said = capsys.readouterr().err
    assert "did you mean 'collectives'" in said and said.count("\n") == 1


def test_docs_as_json(capsys):
    assert main(["docs", "--json"]) == 0
    assert "optimize" in json.loads(capsys.readouterr().out)["topics"]
    assert main(["docs", "plan", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "hwopt plan"


def test_errors_name_the_page_of_their_command(capsys):
    assert main(["estimate", "--workload", "nobody", "--chip", "h100-sxm", "--chips", "8"]) == 2
    assert capsys.readouterr().err.rstrip().endswith("(see hwopt docs estimate)")
    assert main(["estimate", "--worklod", "x"]) == 2
    assert "hwopt docs" not in capsys.readouterr().err  # says already where to look


def test_reports_link_to_the_site_that_an_installation_names(monkeypatch):
    from hwopt.output.html.page import page

    alone = page("hwopt plan", "", "question", None, [], "hwopt plan", [])
    assert "hwopt docs plan" in alone and "<a href" not in alone
    stated = {"Project-URL": ["Documentation, https://docs.example.org/hwopt/"]}
    monkeypatch.setattr(
        guide, "metadata", lambda name: type("Message", (), {"get_all": lambda self, key: stated[key]})()
    )
    linked = page("hwopt plan", "", "question", None, [], "hwopt plan", [])
    assert 'href="https://docs.example.org/hwopt/commands/plan.html"' in linked
