# SPDX-License-Identifier: Apache-2.0
"""The documentation matches the code: names, defaults, severities and paths. Its links work."""

import io
import json
import os
import pickle
import re
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints
from urllib.parse import unquote, urlsplit

import click
import pytest
import yaml
from ansible.inventory import manager
from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import roles
from pydantic import BaseModel
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment.adapters import toctree
from sphinx.util.docutils import docutils_namespace

from calibration.audit.kinds import KINDS
from calibration.audit.states import read_state
from calibration.base.errors import EXIT_CODES
from calibration.base.flags import FLAGS
from calibration.cli import calibration as command_line
from calibration.counters.volume import DIFFERS, triad_bytes
from calibration.exports.history import COLUMNS
from calibration.formats.readings import INCONSISTENCIES
from calibration.judge.baseline_files import BaselineFile, Method
from calibration.judge.explanation import Explanation
from calibration.judge.night import Judgement
from calibration.judge.sheet import Sheet
from calibration.judge.verdicts import Check
from calibration.judge.waivers import Waiver
from calibration.measurements import registry
from calibration.nightly.notify import Notification
from calibration.preflight.checks import CHECKS, EXPECTED_STATE
from calibration.profiles import load_profile, profile_names
from calibration.reference_pages import COMMON_ROLE, with_tables
from calibration.report.headlines import OF_ALL
from calibration.report.sections import page_order
from calibration.results.consistency import RULES
from calibration.results.model import RunDocument
from calibration.run.records import Record
from calibration.runner.prefetchers import PREFETCH_TABLES
from calibration.sutprobe.document import ProbeDocument, read_document, read_result
from calibration.sutprobe.volume import VolumeResult
from tests.report.method_charts import written
from tests.report.report_documents import guide
from tests.report.snippets import plain_role
from tests.tools import requirements

CHECKOUT = Path(__file__).resolve().parents[2]
DOCS = CHECKOUT / "docs"
METHOD = DOCS / "method"
COMMON_GROUND = {
    "index", "clock", "placement", "statistics", "validity", "accounting", "counters", "drift", "explanation",
    "homogeneity", "quick_gate", "consistency",
}  # fmt: skip
HEADINGS = ["What runs", "Metrics", "A good value", "Valid when", "Known limits", "Other tools", "Sources"]
WRITTEN = sorted(
    path for path in DOCS.rglob("*.rst") if path.relative_to(DOCS).parts[0] not in {"_build", "calibration"}
)
ABOUT_THE_PROJECT = [
    CHECKOUT / name for name in ("README.rst", "CONTRIBUTING.rst", "CHANGELOG.rst", "tests/README.rst")
]


@pytest.fixture(autouse=True)
def _sphinx_roles() -> None:
    """Let docutils alone parse references; the build of the site follows them."""
    for name in ("doc", "ref"):
        roles.register_local_role(name, plain_role)


@cache
def parsed(path: Path) -> nodes.document:
    """Return the tree of *path*, parsed once; warnings are errors."""
    tree: nodes.document = publish_doctree(
        path.read_text(encoding="utf-8"),
        source_path=str(path),
        settings_overrides={"halt_level": 2, "report_level": 5, "file_insertion_enabled": False},
    )
    return tree


def text_of(tree: nodes.Element, kind: type[nodes.Element]) -> str:
    """Return the text of the first node of *kind* below *tree*."""
    found = tree.next_node(kind)
    assert found is not None, f"no {kind.__name__} in {tree.astext()[:80]!r}"
    return found.astext()


def sections(tree: nodes.Element) -> dict[str, nodes.section]:
    """Return all sections below *tree* by title."""
    return {text_of(section, nodes.title): section for section in tree.findall(nodes.section)}


def literals(tree: nodes.Element) -> set[str]:
    """Return all inline literals below *tree*."""
    return {element.astext() for element in tree.findall(nodes.literal)}


def table_rows(tree: nodes.Element, first_heading: str) -> list[list[str]]:
    """Return the rows of all tables below *tree* whose first column is *first_heading*."""
    rows = []
    for table in tree.findall(nodes.table):
        head = table.next_node(nodes.thead)
        body = table.next_node(nodes.tbody)
        if head is None or body is None or text_of(head, nodes.entry) != first_heading:
            continue
        rows += [[entry.astext() for entry in row.findall(nodes.entry)] for row in body.findall(nodes.row)]
    return rows


def one_line(text: str) -> str:
    return " ".join(text.split())


# Method pages


def test_every_kind_has_a_method_page() -> None:
    pages = {path.stem for path in METHOD.glob("*.rst")}
    assert pages - COMMON_GROUND == set(registry())
    assert pages >= COMMON_GROUND


def test_the_readme_has_the_question_of_each_measurement() -> None:
    """CALIBRATION_BLESS=1 writes the table."""
    kinds = [registry()[kind] for kind in page_order()]
    width = max(len(kind.title) for kind in kinds)
    rule = f"{'=' * width}  {'=' * max(len(kind.question) for kind in kinds)}"
    rows = [f"{kind.title:{width}}  {kind.question}" for kind in kinds]
    table = "\n".join([rule, *rows, rule])
    path = DOCS.parent / "README.rst"
    text = path.read_text(encoding="utf-8")
    found = re.search(r"(?<=What it measures\n----------------\n\n)=.*?=\n(?=\n)", text, re.DOTALL)
    assert found is not None
    if os.environ.get("CALIBRATION_BLESS") == "1":
        path.write_text(text.replace(found[0], f"{table}\n"), encoding="utf-8")
    assert found[0] == f"{table}\n"


@pytest.mark.parametrize("kind", sorted(registry()))
def test_method_page_has_question_parts_and_settings(kind: str) -> None:
    tree, declaration = parsed(METHOD / f"{kind}.rst"), registry()[kind]
    assert one_line(text_of(tree, nodes.paragraph)).startswith(declaration.question)
    assert list(sections(tree)) == HEADINGS
    for title, section in sections(tree).items():
        assert section.astext().removeprefix(title).strip(), f"{title} of {kind} is empty"
    assert kind in literals(tree)
    common = sections(parsed(METHOD / "statistics.rst"))["Common settings"]
    assert sorted(set(declaration.settings.model_fields) - literals(tree) - literals(common)) == []


def test_charts_of_method_pages_are_up_to_date() -> None:
    old = [path.name for path, text in written() if not path.exists() or path.read_text(encoding="utf-8") != text]
    assert not old, "python -m tests.report.method_charts writes them anew"


def test_each_flag_is_raised_by_us_or_by_sutprobe() -> None:
    files = (path for path in (CHECKOUT / "calibration").rglob("*.[cp]*") if path.suffix in {".c", ".py"})
    sources = [path.read_text(encoding="utf-8") for path in files if path.name != "flags.py"]
    names = {code: f'"{row.error or code}"' for code, row in FLAGS.items()}
    assert [code for code, name in names.items() if not any(name in source for source in sources)] == []


def test_statistics_page_has_the_coverage() -> None:
    from calibration.runner.intervals import median_ranks

    rows = [row for row in table_rows(parsed(METHOD / "statistics.rst"), "Rounds") if row[0] != "1"]
    assert len(rows) >= 5
    for count_text, _, coverage in rows:
        count = int(count_text)
        assert coverage == f"{median_ranks(count)[2] * 100:.3g} %", count_text


def test_the_example_of_the_volume_matches_the_printed_document() -> None:
    raw = json.loads((CHECKOUT / "tests" / "fixtures" / "sutprobe" / "counted_volume.json").read_text("utf-8"))
    known = read_result(read_document(raw), VolumeResult).known
    array = 610.4e6
    assert raw["result"]["threads"] * raw["result"]["array_bytes"] == pytest.approx(array, rel=1e-5)
    text = (METHOD / "counted_volume.rst").read_text(encoding="utf-8")
    sums = re.findall(r"(?:(3) x )?(?:(\d+) x )?610\.4 MB(?: x (\d+))? =\s+([\d.]+) GB", text)
    assert len(sums) >= 8
    for first, second, third, result in sums:
        product = array * int(first or 1) * int(second or 1) * int(third or 1)
        assert f"{product / 1e9:.3f}" == result
    init, triads = known.init, known.triad
    for printed in (
        init.allocate_read_bytes,
        init.program_written_bytes,
        triads.program_read_bytes,
        triads.allocate_read_bytes,
        triads.program_written_bytes,
        known.read_bytes,
        known.written_bytes,
        triad_bytes(610_400_000, 10, allocates=False).read_bytes,
    ):
        assert f"= {printed / 1e9:.3f} GB" in text
    assert triad_bytes(round(array), 10, allocates=True).read_bytes == pytest.approx(known.read_bytes, rel=1e-5)
    off = 36 * array / known.read_bytes - 1
    assert f"{36 * array / 1e9:.3f} GB" in text
    assert f"{off:.1%}".replace("%", " %") in text
    assert off > DIFFERS


# Guide


def test_every_profile_is_described() -> None:
    rows = table_rows(parsed(DOCS / "guide" / "profiles.rst"), "Profile")
    assert [row[0] for row in rows] == profile_names()


def test_the_example_profile_is_valid(tmp_path: Path) -> None:
    blocks = [element.astext() for element in parsed(DOCS / "guide" / "profiles.rst").findall(nodes.literal_block)]
    example = tmp_path / "example.yml"
    example.write_text(next(block for block in blocks if block.startswith("title:")), encoding="utf-8")
    profile = load_profile(str(example))
    assert set(profile.measurements) | set(profile.not_measured) <= set(registry())


def commands() -> dict[str, click.Command]:
    context = click.Context(command_line)
    found = {name: command_line.get_command(context, name) for name in command_line.list_commands(context)}
    outer = {name: command for name, command in found.items() if command is not None}
    groups = {name: command for name, command in outer.items() if isinstance(command, click.Group)}
    return outer | {f"{name} {part}": inner for name, of in groups.items() for part, inner in of.commands.items()}


def role_variables() -> dict[str, dict[str, Any]]:
    """Return type and default of every public variable of every role."""
    found: dict[str, dict[str, Any]] = {}
    roles = sorted((CHECKOUT / "roles").iterdir())
    shared = yaml.safe_load((CHECKOUT / "roles" / COMMON_ROLE / "defaults" / "main.yml").read_text(encoding="utf-8"))
    for role in roles:
        if role.name == COMMON_ROLE:
            continue
        defaults = shared | yaml.safe_load((role / "defaults" / "main.yml").read_text(encoding="utf-8"))
        specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
        for entry in specs.values():
            for name, option in (entry.get("options") or {}).items():
                found[name] = {**found.get(name, {}), "type": option["type"]}
                if name in defaults:
                    found[name]["default"] = defaults[name]
    return found


def test_inventories_set_known_variables() -> None:
    inventories = list((CHECKOUT / "ansible" / "inventories").rglob("group_vars/*.yml"))
    assert inventories
    for path in inventories:
        used = {name for name in yaml.safe_load(path.read_text(encoding="utf-8")) if not name.startswith("ansible_")}
        assert used <= set(role_variables()), path


def part_of(part: Any, whole: Any) -> bool:
    """Return whether all keys and values of *part* are in *whole*."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(name in whole and part_of(part[name], whole[name]) for name in part)
    return bool(part == whole)


def test_the_host_entries_of_the_guide_are_those_of_the_example() -> None:
    blocks = parsed(DOCS / "guide" / "lab.rst").findall(nodes.literal_block)
    shown = next(block for block in blocks if "yaml" in block["classes"])
    example = CHECKOUT / "ansible" / "inventories" / "example-lab" / "hosts.yml"
    assert part_of(yaml.safe_load(shown.astext()), yaml.safe_load(example.read_text(encoding="utf-8")))


def test_the_examples_of_the_roles_use_roles_and_variables_that_exist() -> None:
    blocks = [
        block
        for name in ("roles", "csit")
        for block in parsed(DOCS / "guide" / f"{name}.rst").findall(nodes.literal_block)
    ]
    items = [item for block in blocks if "yaml" in block["classes"] for item in yaml.safe_load(block.astext())]
    tasks = [task for item in items for task in item.get("tasks", [item])]
    used = [task["ansible.builtin.import_role"] for task in tasks if "ansible.builtin.import_role" in task]
    roles = {f"calibration.harness.{path.name}" for path in (CHECKOUT / "roles").iterdir() if path.name != COMMON_ROLE}
    assert {role["name"] for role in used} == roles
    for role in used:
        tasks_of = CHECKOUT / "roles" / role["name"].rpartition(".")[2] / "tasks"
        assert (tasks_of / f"{role.get('tasks_from', 'main')}.yml").is_file()
    assert {name for item in [*items, *tasks] for name in item.get("vars", {})} <= set(role_variables())


def test_the_example_of_an_expected_state_has_every_kind() -> None:
    assert {
        item.kind for item in read_state(str(DOCS / "guide" / "units" / "expected-state.yml")).items
    } == KINDS.keys()


# Results


def models_in(model: Any, found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return *found* with the types of all fields of *model* and of the models in it."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        if model.__name__ not in found:
            written = {name: info for name, info in model.model_fields.items() if not info.exclude}
            found[model.__name__] = {info.alias or name: info.annotation for name, info in written.items()}
            for info in written.values():
                models_in(info.annotation, found)
    elif is_dataclass(model) and hasattr(model, "__pydantic_config__"):
        found[model.__name__] = get_type_hints(model)
        for of in found[model.__name__].values():
            models_in(of, found)
    elif get_origin(model) is not None:
        for value in get_args(model):
            models_in(value, found)
    return found


def test_every_rule_of_consistency_is_described() -> None:
    rows = [[row[0], row[2]] for row in table_rows(parsed(METHOD / "consistency.rst"), "Rule")]
    assert rows == [[name, f"{rule.tolerance:.0%}".replace("%", " %")] for name, rule in RULES.items()]


def test_waivers_are_described() -> None:
    assert set(Waiver.model_fields) <= literals(parsed(DOCS / "results" / "references.rst"))


# Dependencies and the README


def direct_dependencies() -> set[str]:
    package = json.loads((CHECKOUT / "tests" / "report" / "axe" / "package.json").read_text(encoding="utf-8"))
    return set(package["devDependencies"]).union(*map(requirements, (CHECKOUT / "requirements").glob("*.in")))


def test_every_direct_dependency_is_described() -> None:
    page = parsed(DOCS / "development" / "dependencies.rst")
    items = list(page.findall(nodes.definition_list_item))
    described = [text_of(item, nodes.term) for item in items]
    assert sorted(described) == sorted(direct_dependencies())
    for item in items:
        assert len(one_line(text_of(item, nodes.definition))) > 20, item.astext()


def test_the_first_two_literal_blocks_of_the_readme_are_one_command_each() -> None:
    blocks = [element.astext() for element in parsed(CHECKOUT / "README.rst").findall(nodes.literal_block)]
    for block in blocks[:2]:
        assert block.splitlines() == [block.strip()]
        interpreter, script, *_ = block.split()
        assert interpreter == "python3"
        assert (CHECKOUT / script).is_file()
    assert blocks[0] != blocks[1]


MADE = {"docs/_build", "docs/_build/html", "docs/_build/night"}
"""Made by a run, not in a checkout."""

ROOTS = "ansible|calibration|docs|playbooks|requirements|roles|templates|tests"


@pytest.mark.parametrize("path", [*WRITTEN, *ABOUT_THE_PROJECT], ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_named_paths_exist(path: Path) -> None:
    named = {
        text.rstrip("/")
        for text in re.findall(r"``([^`\s]+)``", path.read_text(encoding="utf-8"))
        if re.match(rf"({ROOTS})/|\.ci/", text) and not re.search(r"[<>*#]|//", text)
    }
    patterns = set(re.findall(r"``([^`\s]+\*[^`\s]*)``", path.read_text(encoding="utf-8")))
    for pattern in patterns:
        if re.match(rf"({ROOTS})/", pattern) and "<" not in pattern:
            assert list(CHECKOUT.glob(pattern)), pattern
    assert sorted(item for item in named - MADE if not (CHECKOUT / item).exists()) == []


PLACEHOLDER = re.compile(r"\{[^{}\n]*\}|%[-.\d]*[a-z]+|\.\.\.")
"""What a message fills in, in Python, C, Jinja, and on a page."""


def words(text: str) -> list[str]:
    return re.findall(r"[\w…/.-]+", PLACEHOLDER.sub("…", text))


def quoted_messages() -> list[str]:
    """Return the first column of the table of troubles, and the terms that are messages."""
    text = (DOCS / "guide" / "trouble.rst").read_text(encoding="utf-8")
    *_, table, _ = re.split(r"(?m)^=+  =+$", text)
    rows = [re.split(r"  +", line)[0] for line in table.splitlines() if line]
    terms = [line for line in text.splitlines() if re.fullmatch(r"``[^`]+``(, ``[^`]+``)*", line)]
    return [*rows, *(term for line in terms for term in re.findall(r"``([^`]+)``", line))]


@cache
def code() -> str:
    """Return the code, with placeholders of one form and literals joined that continue."""
    places = [CHECKOUT / name for name in ("calibration", "ansible/plugins", "playbooks")]
    files = [path for place in places for path in place.rglob("*") if path.suffix in {".py", ".c", ".yml"}]
    text = "\n".join(path.read_text(encoding="utf-8") for path in [*sorted(files), Path(manager.__file__)])
    return PLACEHOLDER.sub("…", re.sub(r'"\s*\n\s*\w{0,2}"', "", text))


@pytest.mark.parametrize("message", quoted_messages())
def test_a_quoted_message_is_printed_by_the_code(message: str) -> None:
    """Word by word, of which half at most may be filled in."""
    told = words(message.removesuffix("..."))
    pattern = r"[^\w…]+".join(rf"(?:{re.escape(word)}|[\w.…]*…[\w.…]*)" for word in told)
    found = (words(match[0]) for match in re.finditer(pattern, code()))
    assert any(2 * sum(map(str.__eq__, told, printed)) >= len(told) for printed in found)


def test_the_rows_to_quote_are_those_of_the_headline_table() -> None:
    table = parsed(DOCS / "guide" / "quote.rst").next_node(nodes.tbody)
    assert table is not None
    cells = [row.children[-1].astext().replace("\n", " ") for row in table.findall(nodes.row)]
    named = {row.strip() for cell in cells for row in cell.split(";") if not cell.startswith(("none", "only"))}
    records = [row.record.title for kind in registry().values() for row in kind.metric_rows if row.record]
    assert named
    assert named - {title.partition(", CPU {")[0] for title in records} - set(OF_ALL.values()) == set()


# The site


@dataclass
class Page:
    """Anchors and references of an HTML page."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.page.anchors.add(str(values["id"]))
        reference = values.get("href") if tag in {"a", "link"} else values.get("src")
        if reference:
            self.page.links.append(reference)
            if tag in {"script", "img", "iframe"} or (tag == "link" and values.get("rel") in {"stylesheet", "icon"}):
                self.page.loads.append(reference)


@pytest.fixture(scope="session")
def pages(published: Path) -> dict[Path, Page]:
    found = {}
    for path in published.rglob("*.html"):
        reader = _Reader()
        reader.feed(path.read_text(encoding="utf-8"))
        found[path] = reader.page
    assert len(found) > len(WRITTEN)
    return found


def test_every_page_is_part_of_the_site(published: Path) -> None:
    missing = [path for path in WRITTEN if not (published / path.relative_to(DOCS)).with_suffix(".html").is_file()]
    assert missing == []


def test_internal_links_resolve(published: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = target in pages and (not parts.fragment or parts.fragment in pages[target].anchors)
            if not known and not (target.is_file() and not parts.fragment):
                broken.append(f"{path.relative_to(published)}: {link}")
    assert broken == []


def test_the_site_loads_nothing_from_other_servers(published: Path, pages: dict[Path, Page]) -> None:
    foreign = [
        f"{path.relative_to(published)}: {load}"
        for path, page in pages.items()
        for load in page.loads
        if urlsplit(load).netloc
    ]
    assert foreign == []
    imported = re.compile(r"""(?:@import|url\()\s*["']?(?:https?:)?//[^)"']+""")
    for style in published.rglob("*.css"):
        assert imported.findall(style.read_text(encoding="utf-8")) == [], style


# The reference, generated from the code


def reference(doctrees: Path, topic: str, folder: str = "reference") -> nodes.document:
    """Return the tree of a page of the reference, or of another *folder*."""
    kept = (doctrees / folder / f"{topic}.doctree").read_bytes()
    tree: nodes.document = pickle.loads(kept)  # noqa: S301 - this test's own Sphinx wrote it
    return tree


def declared(tree: nodes.Element, kind: str) -> dict[str, tuple[dict[str, str], str]]:
    """Return fields and text of all objects of *kind* (confval, option) below *tree*, by name."""
    found = {}
    for element in tree.findall(addnodes.desc):
        if element["objtype"] != kind:
            continue
        fields = {
            text_of(item, nodes.field_name): text_of(item, nodes.field_body).strip()
            for item in element.findall(nodes.field)
        }
        content = element.next_node(addnodes.desc_content)
        assert content is not None
        text = " ".join(one_line(part.astext()) for part in content.children if isinstance(part, nodes.paragraph))
        for name in element.findall(addnodes.desc_name):
            assert name.astext() not in found
            found[name.astext()] = (fields, text)
    return found


def defined(tree: nodes.Element) -> dict[str, nodes.definition]:
    """Return the definitions of all lists below *tree* by term."""
    items = list(tree.findall(nodes.definition_list_item))
    found = {text_of(item, nodes.term): item.next_node(nodes.definition) for item in items}
    assert len(found) == len(items)
    return {term: definition for term, definition in found.items() if definition is not None}


def test_reference_has_every_variable_with_type_and_default(doctrees: Path) -> None:
    page = reference(doctrees, "variables")
    shown = declared(page, "confval")
    variables = role_variables()
    assert len(variables) > 30
    assert set(shown) == set(variables)
    for name, (fields, text) in shown.items():
        assert fields["Type"].partition(" ")[0] == variables[name]["type"], name
        assert ("Default" in fields) == ("default" in variables[name]), name
        if "Default" in fields:
            assert yaml.safe_load(fields["Default"]) == variables[name]["default"], name
        assert len(text) > 20, name


def test_reference_has_every_subcommand_and_option_with_default(doctrees: Path) -> None:
    page = reference(doctrees, "commands")
    shown = sections(page)
    assert set(shown) == {"Command line", "calibration"} | {f"calibration {name}" for name in commands()}
    for name, command in commands().items():
        section = shown[f"calibration {name}"]
        options = [param for param in command.params if isinstance(param, click.Option)]
        described = declared(section, "option")
        assert set(described) == {opt for option in options for opt in option.opts}, name
        for option in options:
            _, text = described[option.opts[-1]]
            for piece in re.split(r"docs/[a-z0-9_/]+\.rst", one_line(option.help or "")):
                assert piece.strip() in text, name
            assert text, name
            if option.show_default:
                assert text.endswith(f"Default: {option.default}."), name
        usage = next(text for text in literals(section) if text.startswith(f"calibration {name}"))
        for parameter in command.params:
            if isinstance(parameter, click.Argument):
                assert all(piece in usage for piece in parameter.get_usage_pieces(click.Context(command))), name
    assert set(declared(shown["calibration"], "option")) == {"--version", "-h", "--help"}


def fields_shown(tree: nodes.document) -> dict[str, dict[str, str]]:
    """Return the types of all fields of all models on a page, by name."""
    return {
        title: {name: one_line(of) for name, of in table_rows(section, "Field")}
        for title, section in sections(tree).items()
        if section.parent is not tree
    }


def check_fields(shown: dict[str, dict[str, str]], models: dict[str, dict[str, Any]]) -> None:
    assert {model: list(fields) for model, fields in shown.items()} == {
        model: list(fields) for model, fields in models.items()
    }
    for model, fields in models.items():
        for name, annotation in fields.items():
            nullable = type(None) in get_args(annotation)
            assert shown[model][name].endswith(" or null") == nullable, f"{model}.{name}"


def test_reference_has_every_field_of_the_run_document(doctrees: Path) -> None:
    page = reference(doctrees, "run_document")
    shown = fields_shown(page)
    check_fields(shown, models_in(RunDocument, {}))
    for model in with_tables():
        columns = dict(table_rows(sections(page)[model.__name__], "Column"))
        assert list(columns) == [*model.axes, *model.columns]
    columns = dict(table_rows(sections(page)["LatencyMatrixValues"], "Column"))
    assert (columns["size_bytes"], one_line(columns["latency_ns"])) == ("integer", "Estimate or null")
    assert shown["Verdict"]["outcome"] == "pass, warn, fail, no_reference or invalid"
    assert shown["Estimate"]["interval"] == "[number, number] or null"


def test_reference_has_every_field_of_records_and_judgement(doctrees: Path) -> None:
    of_runs = models_in(RunDocument, {})
    models = models_in(ProbeDocument, models_in(Record, {}))
    records = {name: model for name, model in models.items() if name not in of_runs}
    check_fields(fields_shown(reference(doctrees, "records")), records)
    models: dict[str, dict[str, Any]] = {}
    for model in (Judgement, BaselineFile, Notification, Explanation, Sheet):
        models_in(model, models)
    check_fields(fields_shown(reference(doctrees, "judgement")), models)


def test_guide_has_every_column_of_the_history(doctrees: Path) -> None:
    shown = table_rows(reference(doctrees, "exports", folder="guide"), "Column")
    assert shown == [[column.name, f"{column.type}: {column.meaning}"] for column in COLUMNS]


def test_reference_has_every_form_of_a_metric_s_name(doctrees: Path) -> None:
    page = reference(doctrees, "metrics")
    shown = sections(page)
    assert set(shown) == {"Metrics"} | {item.title for item in registry().values()}
    for kind, declaration in registry().items():
        section = shown[declaration.title]
        texts = {form: one_line(item.astext()) for form, item in defined(section).items()}
        rows = {row.words: f"{row.unit}, {row.better} is better: {row.meaning}." for row in declaration.metric_rows}
        assert texts.items() <= rows.items()
        shown_rows = [row for row in declaration.metric_rows if row.words in texts]
        for row in declaration.metric_rows:
            assert row in shown_rows or any(other.labels(row.example) for other in shown_rows)
        assert f"/method/{kind}" in [element.get("reftarget") for element in section.findall(addnodes.pending_xref)]


def test_reference_has_every_setting_with_default(doctrees: Path) -> None:
    page = reference(doctrees, "settings")
    shown = sections(page)
    assert set(shown) == {"Settings"} | {item.title for item in registry().values()}
    for kind, declaration in registry().items():
        section = shown[declaration.title]
        documented = {name: json.loads(default) for name, default in table_rows(section, "Setting")}
        assert documented == declaration.settings().model_dump(mode="json"), kind


def test_guide_has_every_writable_register_and_inconsistency(doctrees: Path) -> None:
    rows = table_rows(reference(doctrees, "changes", folder="guide"), "Processors")
    assert {(cores, register): bits for cores, register, bits, source in rows if source} == {
        (table.cores, f"{register:#x}"): f"{bits:#x}"
        for table in PREFETCH_TABLES
        for register, bits in table.registers.items()
    }
    assert dict(table_rows(reference(doctrees, "imports", folder="guide"), "Code")) == INCONSISTENCIES


def test_guide_has_every_check_of_a_night_and_source_of_a_spread(doctrees: Path) -> None:
    page = reference(doctrees, "judge", folder="guide")
    assert [name for name, _ in table_rows(page, "Check")] == list(get_args(Check))
    assert [name for name, _ in table_rows(page, "Spread of")] == list(get_args(Method))


def test_guide_has_every_check_with_its_severity(doctrees: Path) -> None:
    checks = table_rows(reference(doctrees, "preflight", folder="guide"), "Check")
    settings = table_rows(reference(doctrees, "audit", folder="guide"), "Setting")
    described = [*settings, *checks]
    assert [[name, severity] for name, severity, _ in described] == [[name, of.severity] for name, of in CHECKS.items()]
    assert all(len(expected) > 5 for *_, expected in described)
    assert [name for name, *_ in settings] == list(EXPECTED_STATE) == list(KINDS)
    assert {"blocking", "flag", "off"} <= literals(reference(doctrees, "preflight", folder="guide"))


def test_guide_has_every_flag(doctrees: Path) -> None:
    found = sections(reference(doctrees, "validity", "method"))
    assert [title for title in found if re.fullmatch(r"[A-Z_]+", title)] == list(FLAGS)
    for code in FLAGS:
        fields = {
            text_of(item, nodes.field_name): text_of(item, nodes.field_body)
            for item in found[code].findall(nodes.field)
        }
        assert list(fields) == ["Severity", "Meaning", "What to do"]
        assert all(fields.values()), code


def test_reference_has_every_exit_code(doctrees: Path) -> None:
    codes = {code: one_line(item.astext()) for code, item in defined(reference(doctrees, "exit_codes")).items()}
    assert codes == {str(code): meaning for code, meaning in EXIT_CODES.items()}


def test_an_unknown_topic_is_a_warning(tmp_path: Path) -> None:
    source, built = tmp_path / "docs", tmp_path / "built"
    source.mkdir()
    (source / "index.rst").write_text("Title\n=====\n\n.. reference:: weather\n", encoding="utf-8")
    settings = {"extensions": ["calibration.reference_pages"]}
    warned = io.StringIO()
    with docutils_namespace():
        Sphinx(source, None, built, built, "dummy", confoverrides=settings, status=None, warning=warned).build()
    assert "known: variables, commands" in warned.getvalue()


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::PendingDeprecationWarning"
)  # Sphinx's and its themes'
def test_the_sidebar_has_all_titles_and_is_made_of_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs, entry, copied = guide(tmp_path / "docs"), toctree._toctree_standard_entry, {}
    pages = {
        "index": "Home\n====\n\n.. toctree::\n\n   page\n   above\n",
        "page": "Page\n====\n\nOne\n---\n\nText.\n\nTwo\n---\n\nText.\n",
        "above": "Above\n=====\n\nThree\n-----\n\n.. toctree::\n\n   below\n",
        "below": "Below\n=====\n\nFour\n----\n\nText.\n",
    }
    for name, text in pages.items():
        (docs / f"{name}.rst").write_text(text, encoding="utf-8")

    def noted(title: str, ref: str, maxdepth: int, toc: nodes.bullet_list, *others: Any) -> Any:
        copied[ref] = [reference.astext() for reference in toc.findall(nodes.reference)]
        return entry(title, ref, maxdepth, toc, *others)

    monkeypatch.setattr(toctree, "_toctree_standard_entry", noted)
    with docutils_namespace():
        Sphinx(docs, docs, tmp_path / "html", tmp_path / "trees", "html", status=None).build()
    assert copied == {"page": ["Page"], "above": ["Above", "Three"], "below": ["Below"]}
    html = (tmp_path / "html" / "page.html").read_text(encoding="utf-8")
    sidebar, contents = (
        html.partition(f'<div class="{name}-tree">')[2].partition("</div>")[0] for name in ("sidebar", "toc")
    )
    assert re.findall(r">(\w+)</a>", sidebar) == ["Page", "Above", "Below"]
    assert re.findall(r">(\w+)</a>", contents) == ["Page", "One", "Two"]
