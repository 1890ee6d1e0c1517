# SPDX-License-Identifier: Apache-2.0
"""The parsers of YAML, JSON and CSV, each bounded before it descends.

A parser that recurses may exhaust the C stack, which ends the process without a message. Only this module calls the
parsers themselves, and only ``calibration.base.files`` reads files that others wrote.
"""

import csv
import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final, TextIO

import yaml
from pydantic_core import from_json

from calibration.base.errors import InputError
from calibration.base.text import visible

LEVELS: Final = 64
"""Most levels of lists and mappings. Files that people write have about five, run documents twelve."""

YAML_BYTES: Final = 4 << 20
"""Most bytes of YAML: libyaml reads a MiB in a second."""

LINE_CHARACTERS: Final = 1 << 16
"""Longest line of a CSV file."""

VALUES: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEXTS: type[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""Loaders that convert scalars to values, and that keep them as text; ten times as fast if PyYAML has libyaml."""


class _Written(VALUES):  # type: ignore[misc]
    """As ``VALUES``, but whole numbers that are not in plain decimal digits stay texts: masks, ``0:30``."""


def _whole_number(loader: Any, node: yaml.Node) -> int | str:
    return int(loader.construct_yaml_int(node)) if re.fullmatch("[-+]?(0|[1-9][0-9_]*)", node.value) else node.value


_Written.add_constructor("tag:yaml.org,2002:int", _whole_number)

WRITTEN: type[Any] = _Written


class YamlError(InputError):
    """Not the expected YAML; ``place`` is the line and column if known. The message may quote the text."""

    def __init__(self, reason: str, mark: Any = None) -> None:
        """Describe the fault at *mark*."""
        self.place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"
        super().__init__(f"not valid YAML: {visible(reason)[:300]}{self.place and f', {self.place}'}")


def read_yaml(content: str | bytes, kind: type[Any] = VALUES) -> Any:
    """Return the YAML in *content*, its scalars as the loader *kind* converts them.

    Raises ``YamlError``, also for a key given twice, of which YAML would keep the last, and for an alias of anything
    but a scalar.
    """
    loader, root = yaml_tree(content, kind)
    return None if root is None else constructed(loader, root)


def yaml_tree(content: str | bytes, kind: type[Any] = TEXTS) -> tuple[Any, yaml.Node | None]:
    """Return the root node of *content*, like ``read_yaml``, and the loader for ``constructed``."""
    if len(content) > YAML_BYTES:
        raise YamlError(f"at most {YAML_BYTES} bytes are read, found {len(content)}")
    try:
        if isinstance(content, bytes):
            content = content.decode("utf-8")
        _check_events(content, kind)
        loader = kind(content)
        root = loader.get_single_node()
        if root is not None:
            _check_keys(root)
    except (yaml.YAMLError, UnicodeError) as error:
        raise _fault(error) from error
    return loader, root


def constructed(loader: Any, node: yaml.Node) -> Any:
    """Return the value of *node*. Raises ``YamlError``."""
    try:
        return loader.construct_object(node, deep=True)
    except yaml.YAMLError as error:
        raise _fault(error, node.start_mark) from error
    except ValueError as error:  # such as the 99th of a month
        raise _fault(error, _wrong_value(loader, node).start_mark) from error


def _wrong_value(loader: Any, root: yaml.Node) -> yaml.Node:
    """Return the first node below *root* that has no value, or *root*."""
    for node in _nodes(root):
        try:
            if isinstance(node, yaml.ScalarNode):
                loader.construct_object(node)
        except (yaml.YAMLError, ValueError):
            return node
    return root


def _fault(error: Exception, mark: Any = None) -> YamlError:
    if isinstance(error, yaml.reader.ReaderError):
        return YamlError(f"{error.reason}: #x{error.character:04x}, character {error.position + 1}")
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None) or mark
    return YamlError(getattr(error, "problem", None) or str(error), mark)


def _check_events(content: str, kind: type[Any]) -> None:
    """Refuse deep structure, and aliases by which a short text says very much. Events are parsed without recursion."""
    level = repeated = 0
    scalars: dict[str | None, int] = {}
    for event in yaml.parse(content, Loader=kind):
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
            if level > LEVELS:
                raise YamlError(f"nested deeper than {LEVELS} levels", event.start_mark)
            scalars.pop(event.anchor, None)
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1
        elif isinstance(event, yaml.ScalarEvent):
            scalars[event.anchor] = len(event.value)
        elif isinstance(event, yaml.AliasEvent):
            repeated += scalars.get(event.anchor, YAML_BYTES + 1)
            if repeated > YAML_BYTES:
                raise YamlError("an alias of a list or mapping is not allowed", event.start_mark)


def _nodes(root: yaml.Node) -> Iterator[yaml.Node]:
    """Yield *root* and all nodes below."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, yaml.MappingNode):
            pending += chain.from_iterable(node.value)
        elif isinstance(node, yaml.SequenceNode):
            pending += node.value


def _check_keys(root: yaml.Node) -> None:
    """Refuse mappings below *root* that have a key twice."""
    for node in _nodes(root):
        keys: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.value in keys:
                raise YamlError(f"duplicate key {key.value!r}", key.start_mark)
            if isinstance(key, yaml.ScalarNode):
                keys.add(key.value)


def parse_json(content: str | bytes) -> Any:
    """Return *content* as JSON.

    Raises ``ValueError`` if it is not JSON in UTF-8, contains NaN or Infinity, or is nested deeper than 201 levels, the
    limit of the parser. A number out of range, such as 1e999, is an infinity: models refuse it.
    """
    return from_json(content, allow_inf_nan=False)


def parse_json_sparingly(text: str, *, levels: int = LEVELS, unique: bool = False) -> Any:
    """Return *text* as JSON of at most *levels*; with *unique*, a key given twice is refused.

    For blocks with ``bounded_parsing``: raises ``MemoryError`` where the parser of ``parse_json`` would end the
    process. Raises ``ValueError`` like that one.
    """
    try:
        found = json.loads(text, parse_constant=_refuse, object_pairs_hook=_distinct if unique else None)
        deep = _is_nested(found, levels)
    except RecursionError:  # Python's own limit, before the stack ends
        deep = True
    if deep:
        raise ValueError(f"nested deeper than {levels} levels")
    return found


def _is_nested(value: Any, levels: int) -> bool:
    """Return whether *value* is nested deeper than *levels*."""
    inside: list[Any] = [[value]]
    for _ in range(levels + 1):
        inside = [
            item
            for part in inside
            for item in (part.values() if type(part) is dict else part)
            if type(item) in (dict, list)  # the only containers that json creates
        ]
        if not inside:
            return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not allowed")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object names a field twice")
    return found


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of the CSV file at *path*, each with its last line.

    Raises ``InputError`` if it cannot be read, is not CSV in UTF-8, or has a line longer than 64 Ki characters.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(_lines(stream), strict=True)
            try:
                for row in reader:
                    yield reader.line_num, row
            except csv.Error as error:
                raise InputError(f"{path}:{reader.line_num}: not valid CSV: {error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _lines(stream: TextIO) -> Iterator[str]:
    while line := stream.readline(LINE_CHARACTERS):
        if len(line) == LINE_CHARACTERS and not line.endswith(("\n", "\r")):
            raise csv.Error(f"a line of at least {LINE_CHARACTERS} characters")
        yield line
