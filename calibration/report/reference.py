# SPDX-License-Identifier: Apache-2.0
"""The reference of the site: a Sphinx extension that writes what the code declares, so that nothing is written twice.

A page says ``.. reference:: TOPIC``; its sections are made when the page is read, from the roles' argument
specifications, the commands' options, the models' JSON Schema, the declarations' figures, the list of flags and the
exit codes. What belongs to no declaration stands on the page itself.
"""

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import click
import yaml
from docutils import nodes
from pydantic import TypeAdapter
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from calibration.cli import calibration
from calibration.errors import EXIT_CODES
from calibration.judge.references import LimitsFile
from calibration.judge.tolerances import ANY_OTHER, TOLERANCES
from calibration.judge.verdicts import NightVerdict
from calibration.measurements import registry
from calibration.places import PACKAGE, SHARE
from calibration.report.environment import TEMPLATES, environment
from calibration.results.store import Record, json_schema
from calibration.sutprobe import ProbeDocument
from calibration.validity import SEVERITIES

ROLES = SHARE / "roles"

COMMON_ROLE = "settings"
"""The role whose variables all others share: its part comes first."""


def _escaped(text: str) -> str:
    """Return *text*, written without markup, as reStructuredText that shows it as it is."""
    return re.sub(r"([\\*`|_])", r"\\\1", text)


def _linked(text: str) -> str:
    """Return *text*, in which pages of this guide may be named by their files, with links to them."""
    pieces = re.split(r"docs/([a-z0-9_/]+)\.rst", text)
    return "".join(f":doc:`/{piece}`" if place % 2 else _escaped(piece) for place, piece in enumerate(pieces))


def _literal(text: str) -> str:
    return f"``{text}``"


def _title(text: str) -> list[str]:
    return ["", text, "-" * len(text), ""]


def variables() -> Iterator[str]:
    """Yield the public variables of all roles with type, default and meaning, those that all roles share first.

    A variable that several roles take is explained once, by the first role that has it.
    """
    seen: set[str] = set()
    for role in sorted(ROLES.iterdir(), key=lambda path: (path.name != COMMON_ROLE, path.name)):
        specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
        options = {name: option for entry in specs.values() for name, option in (entry.get("options") or {}).items()}
        own = {name: option for name, option in options.items() if name not in seen}
        if not own:
            continue
        seen |= set(own)
        yield from _title(role.name)
        yield f"{_marked(specs['main']['short_description'])}."
        for paragraph in _paragraphs(specs["main"].get("description", [])):
            yield from ("", paragraph)
        for name, option in own.items():
            yield from ("", f".. confval:: {name}")
            yield f"   :type: {_type(option)}"
            if "default" in option:
                yield f"   :default: {_literal(_default(option['default']))}"
            for paragraph in _paragraphs(option["description"]):
                yield from ("", f"   {paragraph}")


def _type(option: Mapping[str, Any]) -> str:
    return f"list of {option['elements']}" if "elements" in option else str(option["type"])


def _default(value: Any) -> str:
    """Return *value* as an inventory would have it."""
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()


def _paragraphs(description: str | list[str]) -> list[str]:
    return [_marked(each) for each in ([description] if isinstance(description, str) else description)]


def _marked(text: str) -> str:
    """Return a text of an argument specification, which may have ``C()`` around code and name pages of this guide."""
    pieces = re.split(r"C\(([^()]*)\)", " ".join(text.split()))
    return "".join(_literal(piece) if place % 2 else _linked(piece) for place, piece in enumerate(pieces))


def commands() -> Iterator[str]:
    """Yield every subcommand with its usage, its help and its options; first what stands before a subcommand."""
    context = click.Context(calibration, info_name=calibration.name, **calibration.context_settings)
    yield from _command(context, calibration.get_params(context), calibration.name or "")
    for name in calibration.list_commands(context):
        command = calibration.get_command(context, name)
        if command is not None:
            inner = click.Context(command, info_name=name, parent=context)
            yield from _command(inner, command.params, f"{calibration.name} {name}")


def _command(context: click.Context, parameters: list[click.Parameter], name: str) -> Iterator[str]:
    command = context.command
    yield from _title(name)
    yield f"``{name} {' '.join(command.collect_usage_pieces(context))}``"
    for paragraph in (command.help or "").split("\n\n"):
        yield from ("", _linked(" ".join(paragraph.split())))
    yield from ("", f".. program:: {name}")
    for parameter in parameters:
        if not isinstance(parameter, click.Option):
            continue
        metavar = "" if parameter.is_flag else f" {parameter.make_metavar(context)}"
        yield from ("", f".. option:: {', '.join(f'{each}{metavar}' for each in parameter.opts)}", "")
        default = parameter.get_default(context)
        shown = parameter.show_default and default is not None
        yield f"   {_linked(' '.join((parameter.help or '').split()))}" + (
            f" Default: {_literal(str(default))}." if shown else ""
        )


def run_document() -> Iterator[str]:
    """Yield the fields of the run document and of all models in it."""
    return _models(json_schema(), "RunDocument", "run", {})


def records() -> Iterator[str]:
    """Yield the fields of the records, and of what ``sutprobe`` prints; models of the run document are linked."""
    known = dict.fromkeys(json_schema()["$defs"], "run")
    schema = TypeAdapter(Record).json_schema(mode="serialization")
    roots = [option["$ref"].rpartition("/")[2] for option in schema["anyOf"]]
    for root in roots:
        yield from _models({"$defs": schema["$defs"], **schema["$defs"][root]}, root, "record", known)
    yield from _models(ProbeDocument.model_json_schema(mode="serialization"), "ProbeDocument", "record", known)


def judgement() -> Iterator[str]:
    """Yield the fields of the verdicts of a night, and of the files of accepted limits."""
    known: dict[str, str] = {}
    for model in (NightVerdict, LimitsFile):
        yield from _models(model.model_json_schema(mode="serialization"), model.__name__, "judgement", known)


def _models(schema: Mapping[str, Any], root: str, prefix: str, known: dict[str, str]) -> Iterator[str]:
    """Yield *root* and the models in it that are not *known* yet, each as a section, in the order of their places.

    *known* has the prefix of the link by the name of a model, and is added to.
    """
    waiting = [root]
    known[root] = prefix
    while waiting:
        name = waiting.pop(0)
        model = schema if name == root else schema["$defs"][name]
        found = [each for each in _referred(model.get("properties", {})) if each not in known]
        known.update(dict.fromkeys(found, prefix))
        waiting = [*dict.fromkeys(found), *waiting]
        yield from ("", f".. _{prefix}-{name}:")
        yield from _title(name)
        yield model["description"].replace("``None``", "null")
        yield from ("", ".. list-table::", "   :header-rows: 1", "   :class: fields", "", "   * - Field", "     - Type")
        for field, of in model["properties"].items():
            yield from (f"   * - ``{field}``", f"     - {_worded(of, known)}")


def _referred(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for name, each in schema.items():
            if name != "discriminator":
                yield from _referred(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _referred(each)


def _worded(schema: Mapping[str, Any], known: Mapping[str, str]) -> str:
    """Return what a value of *schema* may be, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f":ref:`{name} <{known[name]}-{name}>`"
    if "const" in schema:
        return _literal(str(schema["const"]))
    if "enum" in schema:
        return _choice([_literal(str(each)) for each in schema["enum"]])
    if "anyOf" in schema or "oneOf" in schema:
        return _choice([_worded(each, known) for each in schema.get("anyOf") or schema["oneOf"]])
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return f"[{', '.join(_worded(each, known) for each in schema['prefixItems'])}]"
        return f"list of {_grouped(schema['items'], known)}"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return f"object of {_grouped(inner, known)} by name" if isinstance(inner, dict) else "object"
    bounds = [f"{words} {schema[name]}" for name, words in BOUNDS.items() if name in schema]
    return " ".join([schema.get("type", "anything"), *bounds])


BOUNDS = {"exclusiveMinimum": "above", "minimum": "from", "exclusiveMaximum": "below", "maximum": "to"}
"""How a schema's bounds are worded."""


def _grouped(schema: Mapping[str, Any], known: Mapping[str, str]) -> str:
    words = _worded(schema, known)
    return f"({words})" if schema.keys() & {"anyOf", "oneOf", "enum"} else words


def _choice(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def metrics() -> Iterator[str]:
    """Yield the headline figures of every measurement: their names, unit, which way is better, and what they are."""
    for kind, declaration in registry().items():
        yield from _title(declaration.title)
        yield f":doc:`/method/{kind}` (``{kind}``): {_escaped(declaration.question)}"
        for figures in declaration.figures:
            yield from ("", f"``{name_form(figures.names)}``")
            yield f"   {figures.unit}, {figures.better} is better: {_escaped(figures.meaning)}."


def settings() -> Iterator[str]:
    """Yield the settings that a profile may give each measurement, with what they mean and their defaults."""
    for kind, declaration in registry().items():
        yield from ("", f".. _settings-{kind}:")
        yield from _title(declaration.title)
        yield f":doc:`/method/{kind}` (``{kind}``)."
        for paragraph in inspect.cleandoc(declaration.settings.__doc__ or "").split("\n\n"):
            text = re.sub(r"\*(\w+)\*", r"``\1``", " ".join(paragraph.split()))
            yield from ("", text.replace("``None``", "null"))
        yield from ("", ".. list-table::", "   :header-rows: 1", "   :class: fields", "")
        yield from ("   * - Setting", "     - Default")
        for name, default in declaration.settings().model_dump(mode="json").items():
            yield from (f"   * - ``{name}``", f"     - {_literal(json.dumps(default))}")


def name_form(names: str) -> str:
    """Return a regular expression of metrics' names as people write such forms: N, (this|that), [maybe]."""
    form = names.replace(r"\.", ".").replace(r"\d+", "N").replace(r"\d", "N").replace("[a-z0-9]+", "WIDTH")
    form = re.sub(r"\(\?:([^()]*)\)\?", r"[\1]", form)
    return form.replace("(?:", "(")


def flags() -> Iterator[str]:
    """Yield every flag with its severity and its meaning, linked to what its method page says of it."""
    macros: Any = environment().get_template("macros/flags.rst.j2").module
    for code, severity in SEVERITIES.items():
        yield from (f":ref:`{code} <flag-{code}>`", f"   *{severity}.* {_escaped(macros.meaning[code])}", "")


def tolerances() -> Iterator[str]:
    """Yield the tolerance of each family of figures, with its reason."""
    for each in (*TOLERANCES, ANY_OTHER):
        yield from (f"``{name_form(each.names)}``", f"   {each.fraction:.0%}: {_escaped(each.reason)}", "")


def exit_codes() -> Iterator[str]:
    """Yield every exit code with its meaning."""
    for code, meaning in EXIT_CODES.items():
        yield from (f"``{code}``", f"   {_escaped(meaning)}", "")


TOPICS = {
    "variables": variables,
    "commands": commands,
    "run_document": run_document,
    "records": records,
    "judgement": judgement,
    "metrics": metrics,
    "settings": settings,
    "flags": flags,
    "tolerances": tolerances,
    "exit_codes": exit_codes,
}


class Reference(SphinxDirective):
    """``.. reference:: TOPIC``: everything of one topic, as sections of the page or a list in it."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the topic's nodes. The page is read again after a change of anything it may be made from."""
        topic = TOPICS.get(self.arguments[0])
        if topic is None:
            raise self.error(f"expected one of the topics {', '.join(TOPICS)}, found {self.arguments[0]!r}")
        for folder, pattern in ((PACKAGE, "*.py"), (ROLES, "*.yml"), (TEMPLATES, "*.j2")):
            for path in folder.rglob(pattern):
                self.env.note_dependency(path)
        return self.parse_text_to_nodes("\n".join(topic()), allow_section_headings=True)


def _with_index_entries(
    _app: Sphinx, env: BuildEnvironment, _added: set[str], _changed: set[str], removed: set[str]
) -> list[str]:
    """Return the pages that the search knows by their index entries: a later build forgets those of pages it keeps."""
    known = env.domaindata["index"].get("entries", {})  # there are none before the first build
    return [name for name, entries in known.items() if entries and name not in removed]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive with Sphinx."""
    app.add_directive("reference", Reference)
    app.connect("env-get-outdated", _with_index_entries)
    return {"parallel_read_safe": True}
