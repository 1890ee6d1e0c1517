# SPDX-License-Identifier: Apache-2.0
"""CSIT's topology files: the nodes of one testbed, and their logins.

Source: ``topologies/available``, ``resources/topology_schemas`` and ``resources/libraries/python/ssh.py`` of CSIT.
Interfaces, links and devices are ignored. Messages quote a value only if it cannot be a secret.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Any, Literal, get_args

from pydantic import SecretStr

from calibration.base.errors import InputError
from calibration.base.model import Model
from calibration.base.parsers import TEXTS, YamlError, read_yaml
from calibration.formats.lines import first_of

NodeType = Literal["TG", "DUT"]
TYPES: tuple[NodeType, ...] = get_args(NodeType)

Form = tuple[Callable[[str], object], str]

RESERVED = "TG"
"""Name of the node on which CSIT reserves a whole testbed."""

PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}|\$\{([^{}]*)\}")
"""The two forms in CSIT's templates: ``{{ name }}``, sometimes with filters, and ``${name}``."""

NODES = re.compile(r"^nodes:", re.MULTILINE)
NODE_TYPE = re.compile(r"^[ \t]+type:[ \t]*[\"']?(?:TG|DUT)\b", re.MULTILINE)
"""Patterns of a topology in templates that are not valid YAML."""

MAX_CHARACTERS = 64 * 1024
"""Longest topology read: a node has some hundreds of characters, its key some thousands."""

MAX_NAMED = 10
"""Most placeholders named in a message."""

NUMBER_AT_END = re.compile(r"testbed([0-9]+)$")

NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,31}")

ONE_LINE: Form = (str.isprintable, "one line of text")
FORMS: Mapping[str, Form] = {
    "type": (TYPES.__contains__, " or ".join(TYPES)),
    "host": (re.compile(r"[A-Za-z0-9:][A-Za-z0-9_.:%-]{0,252}").fullmatch, "an address or a name"),
    "username": (re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@+-]{0,63}").fullmatch, "a login name"),
    "port": (
        lambda text: re.fullmatch(r"[0-9]{1,5}", text) and 1 <= int(text) <= 65535,
        "a number from 1 to 65535",
    ),
    "password": ONE_LINE,
    "priv_key": (
        re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----\s").match,
        "the text of a private key with its BEGIN line",
    ),
    "arch": ONE_LINE,
    "model": ONE_LINE,
    "subtype": ONE_LINE,
}
"""Valid values of each key of a node: a test and its description."""

NEEDED = ("type", "host", "username")
SECRETS = ("password", "priv_key", "passwd")
"""Keys whose values are never quoted; the last belongs to a service in CSIT's schema."""


CONVERSIONS: Mapping[str, Callable[[str], object]] = {"port": int, "password": SecretStr, "priv_key": SecretStr}


class Node(Model):
    """One machine of a testbed. ``priv_key`` is the text of a key, not a path.

    A missing ``port`` or secret is left to ssh.
    """

    name: str
    type: NodeType
    host: str
    username: str
    port: int | None = None
    password: SecretStr | None = None
    priv_key: SecretStr | None = None
    arch: str | None = None
    model: str | None = None
    subtype: str | None = None


class Topology(Model):
    """A testbed and its nodes, in file order."""

    testbed: str
    nodes: tuple[Node, ...]

    @property
    def reserved(self) -> Node | None:
        """The traffic generator on which CSIT reserves the testbed, if there is one."""
        return next((node for node in self.nodes if node.name == RESERVED and node.type == "TG"), None)

    def host_name(self, node: Node) -> str:
        """Return the name of *node* over all testbeds, such as ``t212-dut1``."""
        return f"{self.testbed}-{node.name.lower()}"


def name_of_testbed(path: str) -> str:
    """Return the testbed's name: ``t212`` for ``lf_2n_icx_testbed212.yaml``, otherwise the file's own.

    Topologies have no name in their metadata.
    """
    stem = PurePath(path).name.partition(".")[0]
    number = NUMBER_AT_END.search(stem)
    return f"t{number[1]}" if number else stem


def is_topology(text: str) -> bool:
    """Return whether *text* looks like a topology: a mapping with ``nodes``, one of them a TG or a DUT."""
    if "nodes" not in text:
        return False
    try:
        nodes = _nodes(_loaded(text))
    except InputError:
        nodes_line = NODES.search(text)
        return nodes_line is not None and NODE_TYPE.search(text, nodes_line.end()) is not None
    return any(isinstance(node, Mapping) and node.get("type") in TYPES for node in nodes.values())


def read_topology(text: str, testbed: str, values: Mapping[str, str] | None = None) -> Topology:
    """Return the topology in *text*; *values* fill a template's placeholders by name.

    Only placeholders that affect a node matter. Raises ``InputError`` naming the node and the wrong key, or the
    placeholders without a value.
    """
    filled = {name: _filled(given, values or {}) for name, given in _nodes(_template(text)).items()}
    if missing := sorted({placeholder for _, placeholders in filled.values() for placeholder in placeholders}):
        raise InputError(
            f"the topology is a template without values for {', '.join(first_of(missing, MAX_NAMED))}: use the file "
            "that CSIT generates from it, or give the values in the environment or with -e"
        )
    topology = Topology(testbed=testbed, nodes=tuple(_node(name, given) for name, (given, _) in filled.items()))
    names = Counter(map(topology.host_name, topology.nodes))
    if twice := [node.name for node in topology.nodes if names[topology.host_name(node)] > 1]:
        raise InputError(f"the names of nodes in the topology differ in case only: {', '.join(twice)}")
    if not any(node.type == "DUT" for node in topology.nodes):
        raise InputError("the topology has no node of the type DUT")
    return topology


def _template(text: str) -> Any:
    """Return *text* as YAML; of a template that is not valid YAML yet, the part with the nodes."""
    try:
        return _loaded(text)
    except InputError:
        if len(text) > MAX_CHARACTERS or not PLACEHOLDER.search(text):
            raise
        lines = [line for line in text.splitlines() if not PLACEHOLDER.fullmatch(line.strip())]
        plain = (line if any(key in line for key in SECRETS) else PLACEHOLDER.sub(_unspaced, line) for line in lines)
        with suppress(InputError):
            return _loaded("\n".join(plain))
        raise


def _unspaced(match: re.Match[str]) -> str:
    """Return a placeholder quoted for YAML."""
    return f"${{{(match[1] or match[2] or '').replace(' ', '')}}}"


def _filled(given: Any, values: Mapping[str, str]) -> tuple[Any, set[str]]:
    """Return *given*, a node, with its placeholders filled, and the names missing from *values*.

    A secret may contain any character: it is a placeholder only as a whole.
    """
    missing: set[str] = set()
    if not isinstance(given, Mapping):
        return given, missing

    def fill(match: re.Match[str]) -> str:
        expression = (match[1] or match[2] or "").strip()
        name = expression.partition("|")[0].strip()
        if name != expression or name not in values:  # filters are not evaluated
            missing.add(name or match[0])
            return match[0]
        return values[name]

    filled = dict(given)
    for key in FORMS:
        value = given.get(key)
        if isinstance(value, str) and (key not in SECRETS or PLACEHOLDER.fullmatch(value.strip())):
            filled[key] = PLACEHOLDER.sub(fill, value)
    return filled, missing


def _loaded(text: str) -> Any:
    """Return *text* as YAML with every scalar as text, so that a password of digits is preserved."""
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"at most {MAX_CHARACTERS} characters of a topology are read, found {len(text)}")
    try:
        return read_yaml(text, TEXTS)
    except YamlError as error:  # of which the message may quote a secret
        raise InputError(f"not a valid YAML topology{error.place and f': error in {error.place}'}") from None


def _nodes(data: Any) -> Mapping[str, Any]:
    nodes = data.get("nodes") if isinstance(data, Mapping) else None
    return nodes if isinstance(nodes, Mapping) else {}


def _node(name: str, given: Any) -> Node:
    if not NODE_NAME.fullmatch(name):
        raise InputError(f"nodes of the topology have names of letters, digits, '_' and '-', not {name[:60]!r}")
    if not isinstance(given, Mapping):
        raise InputError(f"topology node {name} must be a mapping")
    values: dict[str, Any] = {}
    for key, (fits, wanted) in FORMS.items():
        value = given.get(key, "")
        if value == "" and key not in NEEDED:
            continue
        if not isinstance(value, str) or not fits(value):
            shown = f", not {value[:60]!r}" if isinstance(value, str) and key not in SECRETS else ""
            found = shown if key in given else ", and is missing"
            raise InputError(f"topology node {name}: {key} must be {wanted}{found}")
        values[key] = CONVERSIONS.get(key, str)(value)
    return Node(name=name, **values)
