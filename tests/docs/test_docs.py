# SPDX-License-Identifier: Apache-2.0
"""The documentation says what the code does: names, defaults, severities and paths are compared, links are followed."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args, get_origin
from urllib.parse import unquote, urlsplit

import click
import pytest
import yaml
from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import roles
from pydantic import BaseModel

from calibration.cli import calibration as command_line
from calibration.measurements import registry
from calibration.preflight import CHECKS
from calibration.profiles import load_profile, profile_names
from calibration.results.model import RunDocument
from calibration.results.store import KernelsRecord, NoteRecord, StartRecord, StepRecord
from calibration.sutprobe import ProbeDocument
from calibration.validity import SEVERITIES

CHECKOUT = Path(__file__).resolve().parents[2]
DOCS = CHECKOUT / "docs"
METHOD = DOCS / "method"
COMMON_GROUND = {"index", "clock", "placement", "statistics", "validity", "accounting"}
HEADINGS = [
    "Question",
    "What runs",
    "How the figure is made",
    "Valid when",
    "Known limits",
    "Compared with other tools",
    "Sources",
]
WRITTEN = sorted(
    path for folder in ("guide", "method", "results", "development") for path in (DOCS / folder).rglob("*.rst")
)
ABOUT_THE_PROJECT = [CHECKOUT / name for name in ("README.rst", "CONTRIBUTING.rst", "CHANGELOG.rst")]


def _plain_role(
    _name: str, rawtext: str, text: str, _line: int, _inliner: object, *_: object
) -> tuple[list[nodes.reference], list[nodes.reference]]:
    return [nodes.reference(rawtext, text)], []


@pytest.fixture(autouse=True)
def _sphinx_roles() -> None:
    """Let docutils alone read pages that refer to others: the site's build is what follows the references."""
    roles.register_local_role("doc", _plain_role)


def parsed(path: Path) -> nodes.document:
    """Return *path* as a tree of nodes; anything docutils has to say about it is an error."""
    tree: nodes.document = publish_doctree(
        path.read_text(encoding="utf-8"),
        source_path=str(path),
        settings_overrides={"halt_level": 2, "report_level": 5, "file_insertion_enabled": False},
    )
    return tree


def text_of(tree: nodes.Element, kind: type[nodes.Element]) -> str:
    """Return the text of the first node of *kind* below *tree*."""
    found = tree.next_node(kind)
    assert found is not None, f"expected a {kind.__name__} in {tree.astext()[:80]!r}, found none"
    return found.astext()


def sections(tree: nodes.Element) -> dict[str, nodes.section]:
    """Return all sections below *tree* by their titles."""
    return {text_of(section, nodes.title): section for section in tree.findall(nodes.section)}


def literals(tree: nodes.Element) -> set[str]:
    """Return the texts of all inline literals below *tree*."""
    return {each.astext() for each in tree.findall(nodes.literal)}


def table_rows(tree: nodes.Element, first_heading: str) -> list[list[str]]:
    """Return the body rows of all tables below *tree* whose first column is headed *first_heading*, as texts."""
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


def test_every_kind_has_a_method_page_and_no_page_lacks_a_kind() -> None:
    pages = {path.stem for path in METHOD.glob("*.rst")}
    assert pages - COMMON_GROUND == set(registry())
    assert pages >= COMMON_GROUND


@pytest.mark.parametrize("kind", sorted(registry()))
def test_method_page_has_the_seven_parts_in_their_order(kind: str) -> None:
    tree = parsed(METHOD / f"{kind}.rst")
    found = [text_of(section, nodes.title) for section in tree.findall(nodes.section)]
    assert found == HEADINGS
    for title, section in sections(tree).items():
        assert section.astext().removeprefix(title).strip(), f"{title} of {kind} is empty"
    assert kind in literals(tree)


@pytest.mark.parametrize("kind", sorted(registry()))
def test_method_page_answers_the_question_of_the_declaration(kind: str) -> None:
    question = sections(parsed(METHOD / f"{kind}.rst"))["Question"]
    assert one_line(question.astext()).removeprefix("Question ") == registry()[kind].question


@pytest.mark.parametrize("kind", sorted(registry()))
def test_every_setting_is_described_with_its_true_default(kind: str) -> None:
    rows = table_rows(parsed(METHOD / f"{kind}.rst"), "Setting")
    documented = {row[0]: json.loads(one_line(row[1])) for row in rows}
    defaults = registry()[kind].settings().model_dump(mode="json")
    assert documented == defaults
    assert all(row[2].strip() for row in rows)


def test_every_flag_is_described_with_its_true_severity() -> None:
    described = {}
    for title, section in sections(parsed(METHOD / "validity.rst")).items():
        if not re.fullmatch(r"[A-Z0-9_]+", title):
            continue
        fields = {
            text_of(each, nodes.field_name): text_of(each, nodes.field_body).strip()
            for each in section.findall(nodes.field)
        }
        assert set(fields) == {"Severity", "Cause", "What to do"}, title
        assert all(fields.values()), title
        described[title] = fields["Severity"]
    assert described == SEVERITIES


def test_flags_that_nothing_raises_are_said_to_be_so() -> None:
    sources = [
        path.read_text(encoding="utf-8")
        for path in (CHECKOUT / "calibration").rglob("*.py")
        if path.name != "validity.py"
    ]
    raised = {code for code in SEVERITIES if any(f'"{code}"' in source for source in sources)}
    found = sections(parsed(METHOD / "validity.rst"))
    silent = {code for code in SEVERITIES if "Not raised by this version" in one_line(found[code].astext())}
    assert silent == set(SEVERITIES) - raised


def test_statistics_page_shows_the_true_coverage() -> None:
    from calibration.statistics import median_ranks

    rows = [row for row in table_rows(parsed(METHOD / "statistics.rst"), "Placements") if row[0] != "1"]
    assert len(rows) >= 5
    for count_text, _, coverage in rows:
        count = int(count_text)
        assert coverage == f"{median_ranks(count)[2] * 100:.3g} %", count_text


# Guide


def test_every_profile_is_described() -> None:
    rows = table_rows(parsed(DOCS / "guide" / "profiles.rst"), "Profile")
    assert [row[0] for row in rows] == profile_names()


def test_the_example_profile_is_one(tmp_path: Path) -> None:
    blocks = [each.astext() for each in parsed(DOCS / "guide" / "profiles.rst").findall(nodes.literal_block)]
    example = tmp_path / "example.yml"
    example.write_text(next(block for block in blocks if block.startswith("title:")), encoding="utf-8")
    profile = load_profile(str(example))
    assert set(profile.measurements) | set(profile.not_measured) <= set(registry())


def commands() -> dict[str, click.Command]:
    context = click.Context(command_line)
    found = {name: command_line.get_command(context, name) for name in command_line.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def test_every_subcommand_and_option_is_described_and_none_is_invented() -> None:
    described = sections(parsed(DOCS / "guide" / "commands.rst"))
    assert {title.removeprefix("calibration ") for title in described if title != "Command reference"} == set(
        commands()
    )
    for name, command in commands().items():
        section = described[f"calibration {name}"]
        options = {
            each
            for parameter in command.params
            if isinstance(parameter, click.Option)
            for each in parameter.opts
            if each.startswith("--")
        }
        assert {each.astext() for each in section.findall(nodes.term)} == options, name
        usage = next(text for text in literals(section) if text.startswith(f"calibration {name}"))
        for parameter in command.params:
            if isinstance(parameter, click.Argument):
                assert parameter.make_metavar(click.Context(command)).strip("[].") in usage, name


def role_variables() -> Iterator[tuple[str, Any]]:
    """Yield every public variable of every role with its default, None where it has none."""
    for role in sorted((CHECKOUT / "roles").iterdir()):
        defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text(encoding="utf-8")) or {}
        yield from defaults.items()
        specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
        for entry in specs.values():
            for name in entry.get("options") or {}:
                if name not in defaults:
                    yield name, None


def test_every_public_variable_of_a_role_is_described() -> None:
    found = literals(parsed(DOCS / "guide" / "lab.rst"))
    variables = dict(role_variables())
    assert len(variables) > 5
    assert sorted(name for name in variables if name not in found) == []


def test_variables_are_described_with_their_true_defaults() -> None:
    rows = table_rows(parsed(DOCS / "guide" / "lab.rst"), "Variable")
    variables = dict(role_variables())
    assert {row[0] for row in rows} <= set(variables)
    plain = {row[0]: row[1] for row in rows if not row[0].startswith("calibration_")}
    assert plain
    for name, shown in plain.items():
        true = variables[name]
        if isinstance(true, str):
            true = true.removeprefix("{{ playbook_dir | dirname }}/")  # paths are shown from the checkout
        assert yaml.safe_load(one_line(shown)) in (true, _number(true)), name


def _number(value: Any) -> Any:
    """Return a version such as "2.19" as YAML reads it without quotes."""
    return yaml.safe_load(value) if isinstance(value, str) and "{{" not in value else value


def test_inventories_set_no_variable_that_does_not_exist() -> None:
    known = {name for name, _ in role_variables()}
    inventories = list((CHECKOUT / "ansible" / "inventories").rglob("*.yml"))
    assert inventories
    for path in inventories:
        used = set(re.findall(r"^\s*(calibration_\w+):", path.read_text(encoding="utf-8"), re.MULTILINE))
        assert used <= known, path


def test_every_check_is_described_with_its_true_effect() -> None:
    page = parsed(DOCS / "guide" / "preflight.rst")
    described = {row[0]: row[1] for row in table_rows(page, "Check")}
    assert described == {name: kind.effect for name, kind in CHECKS.items()}
    assert {"blocking", "flag", "off"} <= literals(page)


# Results


def field_names(model: Any, seen: set[Any]) -> set[str]:
    """Return the names of all fields of a model and of the models inside it."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        if model in seen:
            return set()
        seen.add(model)
        names = {info.alias or name for name, info in model.model_fields.items()}
        return names.union(*(field_names(info.annotation, seen) for info in model.model_fields.values()))
    inner = get_args(model) if get_origin(model) is not None else ()
    return set().union(*(field_names(each, seen) for each in inner))


def test_every_field_of_the_run_document_is_described() -> None:
    page = parsed(DOCS / "results" / "run_document.rst")
    titles = {title.removesuffix("[]") for title in sections(page)}
    described = {text.removesuffix("[]") for text in literals(page)} | titles
    names = field_names(RunDocument, set())
    names |= set().union(*(field_names(each.values, set()) for each in registry().values()))
    assert len(names) > 200
    assert sorted(names - described) == []


def test_every_field_of_a_record_is_described() -> None:
    page = parsed(DOCS / "results" / "records.rst")
    described = literals(page)
    envelope = {"schema" if name == "schema_" else name for name in ProbeDocument.model_fields}
    records = {name for model in (StartRecord, KernelsRecord, StepRecord, NoteRecord) for name in model.model_fields}
    assert sorted((envelope | records) - described) == []


# Dependencies and the README


def direct_dependencies() -> set[str]:
    return {
        line.strip()
        for path in (CHECKOUT / "requirements").glob("*.in")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.startswith(("#", "-r"))
    }


def test_every_direct_dependency_has_its_line_and_no_other_has_one() -> None:
    page = parsed(DOCS / "development" / "dependencies.rst")
    items = list(page.findall(nodes.definition_list_item))
    described = [text_of(item, nodes.term) for item in items]
    assert sorted(described) == sorted(direct_dependencies())
    for item in items:
        assert len(one_line(text_of(item, nodes.definition))) > 20, item.astext()


def test_the_first_two_literal_blocks_of_the_readme_are_one_command_each() -> None:
    blocks = [each.astext() for each in parsed(CHECKOUT / "README.rst").findall(nodes.literal_block)]
    for block in blocks[:2]:
        assert block.splitlines() == [block.strip()]
        interpreter, script, *_ = block.split()
        assert interpreter == "python3"
        assert (CHECKOUT / script).is_file()
    assert blocks[0] != blocks[1]


MADE = {"docs/_build", "docs/_build/html"}
"""What a run makes, and a checkout does not have."""

ROOTS = "ansible|calibration|docs|playbooks|requirements|roles|templates|tests"


@pytest.mark.parametrize("path", [*WRITTEN, *ABOUT_THE_PROJECT], ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_paths_that_are_named_exist(path: Path) -> None:
    named = {
        text.rstrip("/")
        for text in re.findall(r"``([^`\s]+)``", path.read_text(encoding="utf-8"))
        if re.match(rf"({ROOTS})/|\.ci/", text) and not re.search(r"[<>*]|//", text)
    }
    patterns = set(re.findall(r"``([^`\s]+\*[^`\s]*)``", path.read_text(encoding="utf-8")))
    for pattern in patterns:
        if re.match(rf"({ROOTS})/", pattern) and "<" not in pattern:
            assert list(CHECKOUT.glob(pattern)), pattern
    assert sorted(each for each in named - MADE if not (CHECKOUT / each).exists()) == []


# The site


@dataclass
class Page:
    """What one HTML page refers to and can be referred to by."""

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
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from a copy of docs/ as it is in the checkout, with warnings as errors."""
    work = tmp_path_factory.mktemp("site")
    shutil.copytree(DOCS, work / "docs", ignore=shutil.ignore_patterns("_build"))
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", "html"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return work / "html"


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[Path, Page]:
    found = {}
    for path in site.rglob("*.html"):
        reader = _Reader()
        reader.feed(path.read_text(encoding="utf-8"))
        found[path] = reader.page
    assert len(found) > len(WRITTEN)
    return found


def test_every_page_is_part_of_the_site(site: Path) -> None:
    missing = [path for path in WRITTEN if not (site / path.relative_to(DOCS)).with_suffix(".html").is_file()]
    assert missing == []


def test_internal_links_resolve(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = target in pages and (not parts.fragment or parts.fragment in pages[target].anchors)
            if not known and not (target.is_file() and not parts.fragment):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_the_site_asks_nothing_of_other_servers(site: Path, pages: dict[Path, Page]) -> None:
    foreign = [
        f"{path.relative_to(site)}: {each}"
        for path, page in pages.items()
        for each in page.loads
        if urlsplit(each).netloc
    ]
    assert foreign == []


def test_sphinx_lint_finds_nothing() -> None:
    command = [sys.executable, "-m", "sphinxlint", *map(str, WRITTEN), *map(str, ABOUT_THE_PROJECT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
