# SPDX-License-Identifier: Apache-2.0
"""Build the Jinja2 environment: template folder, filters and strictness."""

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from jinja2 import (
    Environment,
    FileSystemBytecodeCache,
    FileSystemLoader,
    StrictUndefined,
    pass_environment,
)
from jinja2.bccache import Bucket
from jinja2.filters import make_attrgetter

from calibration.base import units
from calibration.base.model import format_time
from calibration.base.places import CACHE, SHARE
from calibration.base.text import sentence_case, visible
from calibration.judge.words import amount, changed_fact, within
from calibration.measurements import registry
from calibration.report import composing, filters, parts
from calibration.report.blocks import Blocks
from calibration.report.composing import BlockEnvironment, compose

TEMPLATES = SHARE / "templates"
"""The folder of all templates."""

KINDS = "kinds"
"""Folder, below the templates, with one macro file per measurement kind, named after the kind."""

SHARED = ("common", "printing", "counted", "mixes", "readings")
"""Macro files available to every template under these names; each may use those before it."""


COMPILED: Final = (
    CACHE
    / "templates"
    / hashlib.sha256(Path(__file__).read_bytes() + Path(composing.__file__).read_bytes()).hexdigest()[:16]
)
"""Cache of compiled templates, keyed by the files that say how they are compiled."""


class _CompiledTemplates(FileSystemBytecodeCache):
    """Compiled templates on disk: compiling them all would cost each command that renders a page a second."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):  # the cache is optional
            super().dump_bytecode(bucket)


def _compiled_templates() -> FileSystemBytecodeCache | None:
    try:
        COMPILED.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return _CompiledTemplates(str(COMPILED))


@dataclass(frozen=True)
class Fact:
    """One line of a table of facts; ``None`` if unknown."""

    name: str
    value: str | None


@cache
def environment() -> BlockEnvironment:
    """Return the environment of the templates. Undefined names are errors."""
    built = BlockEnvironment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        bytecode_cache=_compiled_templates(),
        optimized=False,  # no constant folding of filters: they change independently of their templates
    )
    built.filters.update(functions_of(units) | functions_of(filters))
    built.filters.update(amount=amount, having=having, inner=inner, sentence_case=sentence_case)
    built.filters.update(time=format_time, visible=visible)
    built.globals.update(functions_of(parts), CAUSES=parts.CAUSES, changed_fact=changed_fact, within=within)
    for name in SHARED:
        built.globals[name] = built.get_template(f"macros/{name}.j2").module
    return built


def functions_of(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the public functions that *module* defines, by name."""
    return {
        name: found
        for name, found in vars(module).items()
        if isfunction(found) and found.__module__ == module.__name__ and not name.startswith("_")
    }


@pass_environment
def having(environment: Environment, items: Iterable[Any], attribute: str | int) -> list[tuple[Any, Any]]:
    """Return those *items* that have *attribute*, a Jinja2 attribute path, each with its value."""
    value_of = make_attrgetter(environment, attribute)
    return [(item, value) for item in items if (value := value_of(item))]


@pass_environment
def inner(environment: Environment, items: Iterable[Any], attribute: str) -> list[tuple[Any, Any]]:
    """Return the elements of the list *attribute* of each item, each paired with its item."""
    return [(item, part) for item, parts in having(environment, items, attribute) for part in parts]


def kind_modules(**names: Any) -> dict[str, Any]:
    """Return the macros and settings of each kind's file, ordered by the files' positions.

    A file has the macro ``one``, for a measurement and its values, or ``all``, for all measurements together, or both;
    what ``below`` says of all of them follows the section's charts.
    ``brief`` is a pattern of the metrics that the section's table shows, if not all.
    They may use *names* and the kind's ``declaration`` besides their arguments.

    Raises ``jinja2.TemplateNotFound`` if a kind has no file.
    """
    files = {kind: environment().get_template(f"{KINDS}/{kind}.j2") for kind in registry()}
    modules: dict[str, Any] = {
        kind: file.make_module({"declaration": registry()[kind], **names}) for kind, file in files.items()
    }
    return dict(sorted(modules.items(), key=lambda item: (item[1].position, item[0])))


def blocks_of(name: str, **names: Any) -> Blocks:
    """Return the blocks that a template makes of *names*."""
    template = environment().get_template(f"{name}.j2")
    return compose(BlockEnvironment.concat(template.root_render_func(template.new_context(names))))
