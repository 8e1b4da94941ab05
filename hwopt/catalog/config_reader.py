"""Checked access to the keys of a `config.json`. No key that could change the model's shape is ignored."""

import math
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NoReturn

from hwopt.catalog.config_families import OFF, UNKNOWN, ConfigFamily, families, harmless, mechanisms
from hwopt.errors import UserError, suggest

MOST_LAYERS = 10_000.0
"""Upper limit of the number of layers: more than any model has."""

MOST = 1e8
"""Upper limit of a width, head count, expert count or vocabulary: more than any model has."""

MOST_TOKENS = 1e10
"""Upper limit of a window or a position table, in tokens: more than any model has."""

_ABOUT_SHAPE = re.compile(
    "expert|moe|attn|attention|mixer|mixture|ssm|mamba|rwkv|conv|recurren|rnn|lru|linear|delta|rank|layer_type|layers|block"
    "|heads|head_dim|_kv|kv_|ffn|mlp|feed_forward|intermediate|hidden_size|d_model|_dim$|embed|dense|sparse|window|chunk|cross"
    "|encoder|decoder|vision|audio|latent|compress|index_|indexer|altup|laurel|per_layer|hash|gram|positions|hyper|hc_|cycles"
)
"""Pattern of key names that may describe the model's shape."""


def near(word: str, known: Iterable[str]) -> list[str]:
    """Return up to three known words that are similar to `word`, the most similar first.

    Similarity is the ratio of `difflib`: at least 0.8, or 0.6 for words of up to four letters.
    """
    return get_close_matches(word, list(known), n=3, cutoff=0.6 if len(word) <= 4 else 0.8)


class Config:
    """The keys of a config in the spellings of its family.

    **Raises:** `UserError`, from every method, that names the key of the file.
    """

    def __init__(self, values: Mapping[str, Any], family: ConfigFamily, where: str):
        self.values, self.family, self.where = values, family, where

    def refuse(self, complaint: str) -> NoReturn:
        raise UserError(f"{self.where}: {complaint}")

    def value(self, key: str) -> Any:
        """Return the value of `key`; None where it is missing or null."""
        table, _, inner = key.partition(".")
        value = self.values.get(table)
        if not inner or value is None:
            return value
        if not isinstance(value, dict):
            self.refuse(f"'{table}' must be a table of keys, not {short(value)}")
        return value.get(inner)

    def look_up(self, keys: Iterable[str]) -> tuple[str, Any]:
        """Return the spelling in use and its value; None for no value. Several spellings must agree."""
        pairs = [(key, value) for key in keys if (value := self.value(key)) is not None]
        for key, value in pairs[1:]:
            if value != pairs[0][1]:
                self.refuse(f"'{pairs[0][0]}' = {short(pairs[0][1])} contradicts '{key}' = {short(value)}")
        return pairs[0] if pairs else ("", None)

    def number(
        self,
        keys: Iterable[str],
        *,
        least: float = 1.0,
        most: float = MOST,
        null: float | None = None,
        layers: float = 0.0,
    ) -> float:
        """Return an integer.

        **Arguments:**

        - `keys`: its spellings.
        - `least`, `most`: its bounds.
        - `null`: the meaning of a null value, if there is one.
        - `layers`: also accept a list of this length that repeats one number.
        """
        keys = tuple(keys)
        key, value = self.look_up(keys)
        if value is None:
            return self._absent(keys, null)
        if layers and isinstance(value, list) and len(value) == layers and all(each == value[0] for each in value):
            value = value[0]
        return self.check_number(key, value, least, most)

    def check_number(self, key: str, value: Any, least: float, most: float) -> float:
        """Return `value` as an integer between `least` and `most`."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.refuse(f"'{key}' must be a number, not {short(value)}")
        if not value >= 0 or value == math.inf:
            self.refuse(f"'{key}' must be a non-negative number, not {short(value)}")
        if value > most:
            self.refuse(f"'{key}' = {short(value)} exceeds the maximum of {most:g}")
        if value < least:
            bound = "above zero" if least == 1.0 else f"at least {least:g}"
            self.refuse(f"'{key}' must be {bound}, not {value}")
        if value != int(value):
            self.refuse(f"'{key}' must be an integer, not {short(value)}")
        return float(value)

    def _absent(self, keys: tuple[str, ...], null: float | None) -> float:
        nulls = [key for key in keys if self._null(key)]
        if nulls and null is not None:
            return null
        default = next((self.family.absent[key] for key in keys if key in self.family.absent), None)
        if isinstance(default, str):
            return self.role(default)
        if nulls:
            self.refuse(f"'{nulls[0]}' is null, but model_type '{self.kind}' needs a number")
        if default is None:
            self.missing(*keys)
        return float(default)

    def _null(self, key: str) -> bool:
        table, _, inner = key.partition(".")
        holder = self.values.get(table) if inner else self.values
        return isinstance(holder, dict) and (inner or table) in holder and holder[inner or table] is None

    def missing(self, key: str, *others: str) -> NoReturn:
        instead = f", or {' or '.join(map(repr, others))}" if others else ""
        self.refuse(f"'{key}' is missing, but model_type '{self.kind}' needs it{instead}")

    def role(self, name: str) -> float:
        """Return a number by its role instead of its key: "heads", "hidden" or "ffn"."""
        return self.number(getattr(self.family, name))

    def flag(self, key: str, absent: bool | None = None) -> bool:
        """Return a switch: its value, else the family's default, else `absent`."""
        value = self.value(key)
        if value is None:
            value = self.family.absent.get(key, absent)
        if value is None:
            self.missing(key)
        if not isinstance(value, bool):
            self.refuse(f"'{key}' must be true or false, not {short(value)}")
        return value

    def entries(self, key: str, count: float | None = None) -> list[Any] | None:
        """Return a list, of `count` entries if that is given; None where it is missing, null or empty."""
        value = self.value(key)
        if value is None:
            value = list(self.family.absent.get(key, ()))
        if not isinstance(value, list):
            self.refuse(f"'{key}' must be a list, not {short(value)}")
        if value and count is not None and len(value) != count:
            self.refuse(f"'{key}' has {len(value)} entries for {count:g} layers")
        return value or None

    def check(self) -> None:
        """Refuse unread keys that may change the shape, and values that mean another layout.

        In a known layout, a key passes if it is read, known to be harmless, disabled (null, false, 0), or its name does
        not suggest a shape. In an unknown layout, it must be read or known to be harmless.
        """
        reads, family = self.family.keys(), self.family
        tables = {key.partition(".")[0] for key in reads if "." in key}
        for key, value in self.values.items():
            if key in tables and isinstance(value, dict):
                inner = {each.partition(".")[2] for each in reads if each.startswith(f"{key}.")}
                for each, content in value.items():
                    self._check_key(f"{key}.{each}", each, content, inner, family.inner_harmless)
            elif key not in tables:
                self._check_key(key, key, value, reads, family.harmless)
        for key, wanted in family.fixed.items():
            self._check_fixed(key, wanted)
        for key, other in family.needs.items():
            if self.value(key) is not None and self.value(other) is None and not self._null(other):
                self.refuse(f"'{other}' is missing, but a config with '{key}' = {short(self.value(key))} states it")
        for key, other in family.equal.items():
            if self.value(key) is not None:
                wanted = self.role(other) if hasattr(family, other) else self.number([other])
                if self.number([key]) != wanted:
                    stated = short(self.value(key))
                    self.refuse(f"'{key}' = {stated} is not {wanted:g}, which hwopt does not model")

    def check_keys(self, reads: Iterable[str]) -> None:
        """Refuse keys that are not among those read, if they may change the shape or misspell a key that is read."""
        known = tuple(reads)
        for key, value in self.values.items():
            self._check_key(key, key, value, known, self.family.harmless)

    def _check_key(self, name: str, key: str, value: Any, reads: Iterable[str], also: tuple[str, ...]) -> None:
        if key in reads or key in also or key in harmless():
            return
        means = f" ({', '.join(mechanisms({key: value}))})" if mechanisms({key: value}) else ""
        slips = near(key, reads)
        if slips and not means:
            self.refuse(f"'{name}' is not a key of model_type '{self.kind}': {suggest(key, slips)}")
        if self.family is UNKNOWN:
            self.refuse(
                f"model_type '{self.kind}' is unknown, and '{name}' may change its shape{means}; "
                f"set model_type to a known one with the same layers: {suggest(self.kind, families())}"
            )
        if value not in OFF and (means or _ABOUT_SHAPE.search(key)):
            self.refuse(f"'{name}' may change the shape{means}, but is unknown for model_type '{self.kind}'")

    def _check_fixed(self, key: str, wanted: Any) -> None:
        value = self.value(key)
        if value is None:
            value = self.family.absent.get(key, wanted)
        same = [each == wanted and isinstance(each, bool) == isinstance(wanted, bool)
                for each in (value if isinstance(value, list) else [value])]  # fmt: skip
        if not all(same):
            named = ", ".join(mechanisms({key.rpartition(".")[2]: value})) or "layers"
            self.refuse(f"'{key}' = {short(value)} means {named} that hwopt does not model (only {wanted!r})")

    @property
    def kind(self) -> str:
        return str(self.values.get("model_type"))


def short(value: Any) -> str:
    """Return a value as messages show it, shortened to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
