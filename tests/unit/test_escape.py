"""External names are escaped in every output language."""

import ast
import json
import os
import shlex
import subprocess
import tomllib
from html.parser import HTMLParser

import pytest
import yaml

from hwopt import escape
from hwopt.errors import UserError
from hwopt.output.html.markup import element
from tests.names import names

NAMES = names()
ARGUMENTS = [name for name in NAMES if "\ud800" not in name]
"""Names that are valid command-line arguments."""


@pytest.mark.parametrize("write", [escape.line, escape.sentence, escape.comment])
def test_a_line_is_one_line_that_prints(write):
    for name in NAMES:
        written = write(name)
        assert written.isprintable() and escape.line(written) == written
        written.encode("utf-8")
    assert escape.line("plain é \u6f22") == "plain é \u6f22"
    assert escape.line("a\n\x1b[m\u202e\udcff") == r"a\n\x1b[m\u202e\udcff"
    assert escape.sentence("a  b\n  c") == "a b c"


def test_a_screen_keeps_its_lines_and_their_spaces():
    assert escape.terminal("a\n  b\x1b\r\n") == "a\n  b\\x1b\\r\n"
    for name in NAMES:
        assert all(line.isprintable() for line in escape.terminal(f"1\n{name}\n2").split("\n"))


def test_errors_print():
    for name in NAMES:
        error = UserError(f"{name}: no", name)
        assert str(error).isprintable() and all(line.isprintable() for line in error.lines)


def test_words_of_a_shell_are_the_words(tmp_path):
    """Bash reads the same names, one line each, and executes nothing."""
    words = [*ARGUMENTS, "", "it's \\ n\n"]
    line = escape.command(["printf", "%s\\0", *words])
    assert line.isprintable()
    ran = subprocess.run(["bash", "-c", line], capture_output=True, check=True, cwd=tmp_path)
    assert ran.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in words]
    assert not list(tmp_path.iterdir())
    assert escape.shell("plain-1.toml") == "plain-1.toml"
    assert all(shlex.split(escape.shell(word)) == [word] for word in words if word.isprintable())


def test_values_of_toml_and_yaml_are_the_values():
    for name in NAMES:
        wanted = "".join(f"\\u{ord(letter):04x}" if "\ud800" <= letter <= "\udfff" else letter for letter in name)
        text = escape.toml(name)
        assert text.isprintable()
        read = tomllib.loads(f"{text} = {text}\nafter = 1")
        assert read == {wanted: wanted, "after": 1}
        assert yaml.safe_load(f"a: {escape.yaml(name)}\nb: 1") == {"a": wanted, "b": 1}
        assert ast.literal_eval(text) == wanted
    values = [1, 2.5, True, ["a", "b"], "é\U0001f600"]
    for value in values:
        assert tomllib.loads(f"a = {escape.toml(value)}") == {"a": value}
        assert yaml.safe_load(f"a: {escape.yaml(value)}") == {"a": value}
    assert yaml.safe_load(escape.yaml({"a": {"b": [1]}})) == {"a": {"b": [1]}}


def test_comments_end_with_their_line():
    for name in NAMES:
        comment = escape.comment(name)
        assert tomllib.loads(f"{comment}\na = 1") == {"a": 1}
        assert yaml.safe_load(f"{comment}\na: 1") == {"a": 1}
        assert ast.dump(ast.parse(f"{comment}\na = 1")) == ast.dump(ast.parse("a = 1"))


class TagReader(HTMLParser):
    """Collect tags, attribute names and text."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags, self.data = [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, [key for key, _ in attrs]))

    def handle_data(self, data):
        self.data += data

    def handle_comment(self, data):
        raise AssertionError(data)


@pytest.mark.parametrize("tag", ["p", "title", "code"])
def test_text_and_attributes_of_html_stay_so(tag):
    for name in NAMES:
        reader = TagReader()
        reader.feed(element(tag, name, aria_label=name, href=name))
        reader.close()
        assert reader.tags == [(tag, ["aria-label", "href"])]
        assert reader.data == escape.terminal(name)


def test_json_is_ascii():
    for name in ARGUMENTS:
        text = json.dumps({name: name})
        assert text.isascii() and text.isprintable() and json.loads(text) == {name: name}
