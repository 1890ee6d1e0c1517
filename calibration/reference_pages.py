# SPDX-License-Identifier: Apache-2.0
"""The site's reference pages: a Sphinx extension that renders what the code declares.

A page says ``.. reference:: TOPIC``; its sections are generated from the roles' argument specifications, the commands'
options, the models' JSON Schema, the declarations' figures, the list of flags and the exit codes.
"""

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import click
import yaml
from docutils import nodes
from pydantic import TypeAdapter
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from calibration.acceptance import load_acceptance, preset_names
from calibration.audit.states import read_state, state_names
from calibration.base import units
from calibration.base.errors import EXIT_CODES
from calibration.base.flags import GROUPS
from calibration.base.parsers import read_yaml
from calibration.base.places import COLLECTION, PACKAGE
from calibration.cli import calibration
from calibration.context.boot_evidence import EVIDENCE
from calibration.context.boot_rules import ALWAYS
from calibration.context.boot_rules import RULES as BOOT_RULES
from calibration.exports.history import COLUMNS
from calibration.formats.readings import INCONSISTENCIES
from calibration.judge.baseline_files import USED_IF, BaselineFile
from calibration.judge.explanation import Explanation
from calibration.judge.night import Judgement
from calibration.judge.nights_needed import NEEDED
from calibration.judge.sheet import Sheet
from calibration.judge.tolerances import OwnTolerance, presets
from calibration.judge.verdicts import PASSES_IF
from calibration.measurements import registry
from calibration.measurements.metric_rows import MetricRow, Tolerance
from calibration.measurements.table import with_tables
from calibration.nightly.notify import Notification
from calibration.preflight.checks import CHECKS, EXPECTED_STATE, CheckKind
from calibration.references.library import published
from calibration.references.metrics import QUANTITIES, TOOLS
from calibration.references.model import ReferenceMachine, Source
from calibration.report.advice import RULES
from calibration.report.environment import TEMPLATES
from calibration.report.normal import by_processor
from calibration.report.sections import page_order
from calibration.report.sheet import asked
from calibration.results.model import RunDocument
from calibration.results.schema import json_schema
from calibration.run.records import Record
from calibration.runner.prefetchers import PREFETCH_TABLES
from calibration.sutprobe.document import ProbeDocument

ROLES = COLLECTION / "roles"

ROLE_ORDER = ("preflight", "measure", "cleanup", "report", "judge", "publish", "csit")
"""The roles in the order of a calibration."""

COMMON_ROLE = "common"
"""The role that has the defaults of what others share, and documents nothing itself."""

MARKUP = re.compile(r"C\(([^()]*)\)|docs/([a-z0-9_/]+)\.rst|[\\*`|_]")
"""Code in plain text, a page of this guide given by its file, and reStructuredText's special characters."""

REFERENCE = re.compile(r'"\$ref": "#/\$defs/(\w+)"')
"""A reference to a model in the text of a JSON Schema."""

BOUNDS = {"exclusiveMinimum": "above", "minimum": "from", "exclusiveMaximum": "below", "maximum": "to"}
"""Words for a schema's bounds."""


def _shown(text: str) -> str:
    """Return *text* on one line of escaped reStructuredText, with code and links marked."""
    return MARKUP.sub(_marked, " ".join(text.split()))


def _marked(found: re.Match[str]) -> str:
    code, page = found.groups()
    if code is not None:
        return f"``{code}``"
    return f"\\{found[0]}" if page is None else f":doc:`/{page}`"


def _title(text: str) -> list[str]:
    return ["", text, "-" * len(text), ""]


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield from ("", ".. list-table::", "   :header-rows: 1", "   :class: fields", "")
    for name, *texts in (titles, *rows):
        yield from (f"   * - {name}", *(f"     - {text}" for text in texts))


def variables() -> Iterator[str]:
    """Yield the public variables of all roles with type, default and meaning, those of a calibration first.

    A variable of several roles is explained once, at the first role.
    """
    seen: set[str] = set()
    shared = read_yaml((ROLES / COMMON_ROLE / "defaults" / "main.yml").read_bytes())
    for role in map(ROLES.joinpath, ROLE_ORDER):
        specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_bytes())["argument_specs"]  # noqa: TID251 - ours, with an alias
        options = {name: option for entry in specs.values() for name, option in (entry.get("options") or {}).items()}
        own = {name: option for name, option in options.items() if name not in seen}
        defaults = shared | read_yaml((role / "defaults" / "main.yml").read_bytes())
        if not own:
            continue
        seen |= set(own)
        yield from _title(role.name)
        yield f"{_shown(specs['main']['short_description'])}."
        yield from _paragraphs(specs["main"].get("description", []))
        for name, option in own.items():
            yield from ("", f".. confval:: {name}")
            yield f"   :type: {'list of ' if 'elements' in option else ''}{option.get('elements', option['type'])}"
            if name in defaults:
                default = yaml.safe_dump(defaults[name], default_flow_style=True, width=1000).removesuffix("...\n")
                yield f"   :default: ``{default.strip()}``"
            yield from _paragraphs(option["description"], indent="   ")


def _paragraphs(description: str | list[str], indent: str = "") -> Iterator[str]:
    for text in [description] if isinstance(description, str) else description:
        yield from ("", f"{indent}{_shown(text)}")


def commands() -> Iterator[str]:
    """Yield every subcommand with usage, help and options, after the global options."""
    outer = click.Context(calibration, info_name=calibration.name, **calibration.context_settings)
    yield from _command(outer, calibration.get_params(outer))
    for name in calibration.list_commands(outer):
        if command := calibration.get_command(outer, name):
            context = click.Context(command, info_name=name, parent=outer)
            yield from _command(context, command.params)
            for part, inner in command.commands.items() if isinstance(command, click.Group) else ():
                yield from _command(click.Context(inner, info_name=part, parent=context), inner.params)


def _command(context: click.Context, parameters: list[click.Parameter]) -> Iterator[str]:
    yield from _title(context.command_path)
    yield f"``{context.command_path} {' '.join(context.command.collect_usage_pieces(context))}``"
    yield from _paragraphs((context.command.help or "").split("\n\n"))
    yield from ("", f".. program:: {context.command_path}")
    for parameter in parameters:
        if isinstance(parameter, click.Option):
            metavar = "" if parameter.is_flag else f" {parameter.make_metavar(context)}"
            yield from ("", f".. option:: {', '.join(f'{opt}{metavar}' for opt in parameter.opts)}", "")
            default = parameter.get_default(context) if parameter.show_default else None
            yield f"   {_shown(parameter.help or '')}{'' if default is None else f' Default: ``{default}``.'}"


def run_document() -> Iterator[str]:
    """Yield the fields of the run document and all its models, and the columns of tables."""
    schemas = {of.__name__: of.row_model(read=False).model_json_schema(mode="serialization") for of in with_tables()}
    return _models("run", RunDocument, {}, {name: schema["properties"] for name, schema in schemas.items()})


def records() -> Iterator[str]:
    """Yield the fields of the records, and of the output of ``sutprobe``; models of the run document are linked."""
    return _models("record", (Record, ProbeDocument), dict.fromkeys(json_schema()["$defs"], "run"))


def judgement() -> Iterator[str]:
    """Yield the fields of a night's judgement, limits, notifications, what moved the throughput, and of sheets."""
    return _models("judgement", (Judgement, BaselineFile, Notification, Explanation, Sheet), {})


def nights_needed() -> Iterator[str]:
    """Yield from how many nights on what works."""
    yield from _table(("Nights", "What works", "Why not earlier"), ((str(of), what, why) for of, what, why in NEEDED))


def night_checks() -> Iterator[str]:
    """Yield the checks of a night."""
    yield from _table(("Check", "Passes if"), ((f"``{check}``", _shown(when)) for check, when in PASSES_IF.items()))


def spreads() -> Iterator[str]:
    """Yield where the spread of an accepted metric comes from."""
    yield from _table(("Spread of", "Used if"), ((f"``{source}``", when) for source, when in USED_IF.items()))


def _models(
    prefix: str, roots: Any, known: dict[str, str], tables: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> Iterator[str]:
    """Yield *roots* and the models in them that are not yet *known*, each as a section, in order of appearance.

    *known* is the prefix of the link by name of the model, and is extended. *tables* has the schemas of the columns in
    the table of a model.
    """
    schema = TypeAdapter(tuple[roots]).json_schema(mode="serialization")
    models = schema.pop("$defs")
    waiting = REFERENCE.findall(json.dumps(schema))
    known |= dict.fromkeys(waiting, prefix)
    while waiting:
        name = waiting.pop(0)
        fields, columns = models[name]["properties"], tables.get(name, {})
        found = dict.fromkeys(of for of in REFERENCE.findall(json.dumps([fields, columns])) if of not in known)
        known |= dict.fromkeys(found, prefix)
        waiting = [*found, *waiting]
        yield from ("", f".. _{prefix}-{name}:", *_title(name), models[name]["description"].replace("``None``", "null"))
        yield from _table(("Field", "Type"), ((f"``{field}``", _worded(of, known)) for field, of in fields.items()))
        if columns:
            yield from _table(("Column", "Type"), ((f"``{name}``", _worded(of, known)) for name, of in columns.items()))


def _worded(schema: Mapping[str, Any], known: Mapping[str, str], *, inner: bool = False) -> str:
    """Return the possible values of *schema* in words; a nested choice is in brackets."""
    match schema:
        case {"$ref": reference}:
            name = reference.rpartition("/")[2]
            return f":ref:`{name} <{known[name]}-{name}>`"
        case {"const": value}:
            return f"``{value}``"
        case {"enum": values}:
            words = [f"``{value}``" for value in values]
        case {"anyOf": choices} | {"oneOf": choices}:
            words = [_worded(inner, known) for inner in choices]
        case {"prefixItems": items}:
            return f"[{', '.join(_worded(inner, known) for inner in items)}]"
        case {"items": item}:
            return f"list of {_worded(item, known, inner=True)}"
        case {"additionalProperties": dict(item)}:
            return f"object of {_worded(item, known, inner=True)} by name"
        case _:
            bounds = (f"{word} {schema[name]}" for name, word in BOUNDS.items() if name in schema)
            return " ".join((schema.get("type", "anything"), *bounds))
    choice = " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    return f"({choice})" if inner else choice


def history() -> Iterator[str]:
    """Yield the columns of the history as Parquet."""
    return _table(
        ("Column", "Type and meaning"),
        ((f"``{column.name}``", f"{column.type}: {_shown(column.meaning)}") for column in COLUMNS),
    )


def metrics() -> Iterator[str]:
    """Yield the metrics of every measurement: names, unit, better direction, and meaning."""
    for kind, declaration in registry().items():
        yield from _title(declaration.title)
        yield f":doc:`/method/{kind}` (``{kind}``): {_shown(declaration.question)}"
        for row in _distinct(declaration.metric_rows):
            yield from ("", f"``{row.words}``")
            yield f"   {row.unit}, {row.better} is better: {_shown(row.meaning)}."


def _distinct(rows: Sequence[MetricRow]) -> Iterator[MetricRow]:
    """Yield *rows* without those whose names have the form of a later one too."""
    for number, row in enumerate(rows):
        if not any(later.labels(row.example) is not None for later in rows[number + 1 :]):
            yield row


def methods() -> Iterator[str]:
    """Yield the table of contents of the method pages, in the order of a calibration page."""
    yield from (".. toctree::", "   :maxdepth: 1", "   :caption: Measurements", "")
    yield from (f"   /method/{kind}" for kind in page_order())


def settings() -> Iterator[str]:
    """Yield each measurement's settings in a profile, with meanings and defaults."""
    for kind, declaration in registry().items():
        yield from ("", f".. _settings-{kind}:")
        yield from _title(declaration.title)
        yield f":doc:`/method/{kind}` (``{kind}``)."
        for paragraph in inspect.cleandoc(declaration.settings.__doc__ or "").split("\n\n"):
            text = re.sub(r"\*(\w+)\*", r"``\1``", " ".join(paragraph.split()))
            yield from ("", text.replace("``None``", "null"))
        defaults = declaration.settings().model_dump(mode="json")
        yield from _table(
            ("Setting", "Default"), ((f"``{name}``", f"``{json.dumps(defaults[name])}``") for name in defaults)
        )


def flags() -> Iterator[str]:
    """Yield every flag with severity, meaning and remedy, in sections."""
    for title, rows in GROUPS.items():
        yield from _title(title)
        for row in rows:
            yield from (f".. _flag-{row.code}:", "", row.code, "~" * len(row.code), "")
            yield f":Severity: {row.severity}"
            yield f":Meaning: {row.meaning} {row.details}"
            yield from (f":What to do: {row.remedy}", "")


def tolerances() -> Iterator[str]:
    """Yield the tolerances of metrics with their reasons, and the metrics of each."""
    by: dict[Tolerance, list[str]] = {}
    for row in (row for declaration in registry().values() for row in _distinct(declaration.metric_rows)):
        by.setdefault(row.tolerance, []).append(f"``{row.words}``")
    for tolerance, names in sorted(by.items(), key=lambda item: item[0].fraction):
        yield from (f"{tolerance.fraction:.0%}: {_shown(tolerance.reason)}", f"   {', '.join(names)}", "")


def tolerance_presets() -> Iterator[str]:
    """Yield the tolerances that a lab may name."""
    found = {name: OwnTolerance.model_validate({"preset": name}) for name in presets()}
    rows = (
        (f"``{name}``", f"``{own.metrics}``", f"{own.fraction * 100:g} %", _shown(own.reason))
        for name, own in found.items()
    )
    yield from _table(("Preset", "Metrics", "Within", "Source"), rows)


def figure_metrics() -> Iterator[str]:
    """Yield the metrics and the instruments of files of figures."""
    yield from _title("Metrics")
    yield from _table(("Metric", "Meaning"), ((f"``{name}``", _shown(of.title)) for name, of in QUANTITIES.items()))
    yield from _title("Instruments")
    rows = (
        (f"``{name}``", _shown(f"{tool.name}{f': {tool.bias}' if tool.bias else ''}.")) for name, tool in TOOLS.items()
    )
    yield from _table(("Instrument", "Figures differ from ours by"), rows)


def published_figures() -> Iterator[str]:
    """Yield the published references: processors with machines, instruments and metrics, and sources with licences."""
    known = published()
    yield from _title("Sources")
    for source in dict.fromkeys(source for source, _ in known.entries):
        count = units.plural(
            len({(machine.processor, machine.name) for own, machine in known.entries if own == source}), "machine"
        )
        yield f"* `{_shown(source.title)} <{source.url}>`__: {count}; {source.date_is} {source.date}; {source.licence}"
    yield from _title("Processors")
    rows = (
        (_shown(name), _shown(f"{units.plural(len(of), 'machine')}: {', '.join(metrics)}"), _shown(source))
        for name, entries in by_processor(known).items()
        for source, (of, metrics) in _by_source(entries).items()
    )
    yield from _table(("Processor", "Figures", "Source and licence"), rows)


def _by_source(entries: Iterable[tuple[Source, ReferenceMachine]]) -> dict[str, tuple[set[str], dict[str, None]]]:
    """Return the machines and the titles of the metrics in *entries* by instrument, source and licence."""
    found: dict[str, tuple[set[str], dict[str, None]]] = {}
    for source, machine in entries:
        name = f"{TOOLS[machine.instrument].name}: {source.title} ({source.licence})"
        machines, titles = found.setdefault(name, (set(), {}))
        machines.add(machine.name)
        titles.update(dict.fromkeys(QUANTITIES[figure.metric].title for figure in machine.figures))
        titles.update(dict.fromkeys("Latency against bandwidth" for _ in machine.curves))
    return found


def exit_codes() -> Iterator[str]:
    """Yield every exit code with its meaning."""
    for code, meaning in EXIT_CODES.items():
        yield from (f"``{code}``", f"   {_shown(meaning)}", "")


def advice() -> Iterator[str]:
    """Yield the rules of the advice on pages: when each applies, what shows its cost, and its source."""
    for rule in RULES:
        where = " Not in guests." if rule.host_only else ""
        yield from ("", f"{_shown(rule.title)} (``{rule.id}``)")
        yield f"   If: {_shown(rule.condition)}.{where} Cost: {rule.cost}."
        yield f"   Source: `{_shown(rule.source.title)} <{rule.source.url}>`__."


def kernel_evidence() -> Iterator[str]:
    """Yield which files are compared with which parameters of the kernel."""
    yield from _table(
        ("Parameter", "Compared with", "Not as asked if"),
        ((", ".join(row.parameters), _shown(row.shown), row.differs) for row in EVIDENCE),
    )


def kernel_parameters() -> Iterator[str]:
    """Yield the rules by which kernels treat their parameters, by parameter and version."""
    places = {name: place for place, name in enumerate(dict.fromkeys(rule.parameters for rule in BOOT_RULES))}
    rows = sorted(BOOT_RULES, key=lambda rule: places[rule.parameters])
    yield from _table(
        ("Parameter", "Case", "From Linux", "What the kernel does"),
        (
            (
                rule.parameters,
                rule.situation,
                "" if rule.since == ALWAYS else ".".join(map(str, rule.since)),
                rule.words,
            )
            for rule in rows
        ),
    )


def preflight_checks() -> Iterator[str]:
    """Yield the checks before a run whose severity may be set, without those of an expected state."""
    kinds = {name: kind for name, kind in CHECKS.items() if name not in EXPECTED_STATE}
    yield from _table(("Check", "Severity", "Expected"), _checks(kinds))


def expected_state() -> Iterator[str]:
    """Yield the settings of an expected state."""
    yield from _table(("Setting", "Severity", "Expected value"), _checks(EXPECTED_STATE))


def expected_states() -> Iterator[str]:
    """Yield the expected states that come with calibration, with their sources."""
    rows = (
        (f"``{name}``", _shown(f"{state.title}"), f"`{_shown(source.document)} <{source.url}>`__, {source.date}")
        for name in state_names()
        if (source := (state := read_state(name)).source)
    )
    yield from _table(("Name", "State", "Source, and when it was read"), rows)


def _checks(kinds: Mapping[str, CheckKind]) -> Iterator[tuple[str, ...]]:
    return ((f"``{name}``", f"``{kind.severity}``", _shown(kind.expects)) for name, kind in kinds.items())


def prefetchers() -> Iterator[str]:
    """Yield which bits of which registers switch the prefetchers of which processors, with their source."""
    rows = (
        (table.cores, f"{register:#x}", f"{bits:#x}", table.source)
        for table in PREFETCH_TABLES
        for register, bits in table.registers.items()
    )
    yield from _table(("Processors", "Register", "Bits", "Source"), rows)


def inconsistencies() -> Iterator[str]:
    """Yield what may be wrong with an imported text."""
    yield from _table(("Code", "Meaning"), ((f"``{code}``", _shown(what)) for code, what in INCONSISTENCIES.items()))


def acceptance_files() -> Iterator[str]:
    """Yield the acceptance files that come with the harness, each with its source, profile, limits and conditions."""
    yield from ("", ".. list-table::", "   :header-rows: 1", "   :class: fields", "   :widths: 30 70", "")
    yield from ("   * - File, source, profile", "     - Limits and conditions")
    for name in preset_names():
        found = load_acceptance(name)
        source = f"`{_shown(found.title)} <{found.source.url}>`__, {_shown(found.source.date)}"
        yield from (f"   * - ``{name}``", "", f"       {source}; ``{found.profile}``")
        yield from (f"     - * ``{found.limits[0].metric}``: {_shown(', '.join(asked(found.limits[0])))}",)
        yield from (f"       * ``{limit.metric}``: {_shown(', '.join(asked(limit)))}" for limit in found.limits[1:])
        yield from ("", f"       {_shown(found.conditions)}")


SOURCES = (
    variables, commands, run_document, records, judgement, history, metrics, methods, settings, flags, tolerances,
    figure_metrics, published_figures, exit_codes, advice, nights_needed, kernel_evidence, kernel_parameters,
    prefetchers, inconsistencies, preflight_checks, expected_state, expected_states, night_checks, spreads,
    acceptance_files, tolerance_presets,
)  # fmt: skip
TOPICS = {source.__name__: source for source in SOURCES}


class Reference(SphinxDirective):
    """``.. reference:: TOPIC``: one topic, as sections or a list."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the topic's nodes. The page depends on everything it may be made from."""
        topic = TOPICS.get(self.arguments[0])
        if topic is None:
            raise self.error(f"unknown topic {self.arguments[0]!r}; known: {', '.join(TOPICS)}")
        for folder, pattern in ((PACKAGE, "*.py"), (PACKAGE, "*.yml"), (ROLES, "*.yml"), (TEMPLATES, "*.j2")):
            for path in folder.rglob(pattern):
                self.env.note_dependency(path)
        return self.parse_text_to_nodes("\n".join(topic()), allow_section_headings=True)


def _with_index_entries(
    _app: Sphinx, env: BuildEnvironment, _added: set[str], _changed: set[str], removed: set[str]
) -> list[str]:
    """Return the pages with index entries known to the search, which an incremental build would forget."""
    known = env.domaindata["index"].get("entries", {})  # empty before the first build
    return [name for name, entries in known.items() if entries and name not in removed]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive with Sphinx."""
    app.add_directive("reference", Reference)
    app.connect("env-get-outdated", _with_index_entries)
    return {"parallel_read_safe": True}
