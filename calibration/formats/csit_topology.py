# SPDX-License-Identifier: Apache-2.0
"""CSIT's topology files: the nodes of one testbed, and how one logs in to them.

Source: ``topologies/available``, ``resources/topology_schemas`` and ``resources/libraries/python/ssh.py`` of CSIT.
Read is what leads to a node; what CSIT says of interfaces, links and devices is left alone. A message of this module
names keys, and quotes values only where they cannot be a secret.
"""

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Any, Literal, get_args

import yaml
from pydantic import SecretStr

from calibration.errors import InputError
from calibration.model import Model

NodeType = Literal["TG", "DUT"]
TYPES: tuple[NodeType, ...] = get_args(NodeType)

RESERVED = "TG"
"""Name of the node on which CSIT reserves a testbed, for all of it."""

PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}|\$\{([^{}]*)\}")
"""Both kinds that CSIT's templates have: ``{{ name }}``, with filters at times, and ``${name}``."""

NODES = re.compile(r"^nodes:", re.MULTILINE)
NODE_TYPE = re.compile(r"^[ \t]+type:[ \t]*[\"']?(?:TG|DUT)\b", re.MULTILINE)
"""What a topology has in it that is no YAML, as some templates are."""

MAX_CHARACTERS = 64 * 1024
"""Longest topology read: a node has some hundreds of characters, and its key some thousands."""

MAX_NAMED = 10
"""Most placeholders named in a message."""

NUMBER_AT_END = re.compile(r"testbed([0-9]+)$")

HOST = re.compile(r"[A-Za-z0-9:][A-Za-z0-9_.:%-]{0,252}")
USERNAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@+-]{0,63}")
NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,31}")
SECRETS = ("password", "priv_key", "passwd")
"""Keys whose values no message quotes; the last is that of a service that CSIT's schema has for a node."""


class Node(Model):
    """One machine of a testbed. ``priv_key`` is the text of a key, not the path of a file.

    What is not given, of ``port`` and the secrets, is left to ssh.
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
    """A testbed and its nodes, in the order of the file."""

    testbed: str
    nodes: tuple[Node, ...]

    @property
    def reserved(self) -> Node | None:
        """The traffic generator on which CSIT reserves the testbed, if there is one."""
        return next((node for node in self.nodes if node.name == RESERVED and node.type == "TG"), None)

    def host_name(self, node: Node) -> str:
        """Return the name of *node* among those of all testbeds, such as ``t212-dut1``."""
        return f"{self.testbed}-{node.name.lower()}"

    @property
    def shared(self) -> dict[str, tuple[str, ...]]:
        """The names of nodes that are one machine, by its address: CSIT may have several containers on one."""
        found: dict[str, list[str]] = {}
        for node in self.nodes:
            found.setdefault(node.host, []).append(self.host_name(node))
        return {host: tuple(names) for host, names in found.items() if len(names) > 1}


def name_of_testbed(path: str) -> str:
    """Return the testbed's name by its file: ``t212`` for ``lf_2n_icx_testbed212.yaml``, otherwise the file's own.

    A topology's metadata has no name.
    """
    stem = PurePath(path).name.partition(".")[0]
    number = NUMBER_AT_END.search(stem)
    return f"t{number[1]}" if number else stem


def is_topology(text: str) -> bool:
    """Return whether *text* is meant as a topology: a mapping with ``nodes``, a member of which is a TG or a DUT."""
    if "nodes" not in text:
        return False
    try:
        nodes = _nodes(_loaded(text))
    except InputError:
        nodes_line = NODES.search(text)
        return nodes_line is not None and NODE_TYPE.search(text, nodes_line.end()) is not None
    return any(isinstance(each, Mapping) and each.get("type") in TYPES for each in nodes.values())


def read_topology(text: str, testbed: str, values: Mapping[str, str] | None = None) -> Topology:
    """Return the topology that *text* describes; *values* fill a template's placeholders by their names.

    What a placeholder stands for matters only where it leads to a node. Raises ``InputError`` naming the node and the
    key that is wrong, or the placeholders without a value.
    """
    nodes = {name: _filled(given, values or {}) for name, given in _nodes(_template(text)).items()}
    if missing := sorted({name for _, names in nodes.values() for name in names}):
        named = ", ".join(missing[:MAX_NAMED])
        raise InputError(
            f"expected a topology, found a template in which nothing is filled in for: {named}. Fill it "
            "as CSIT does and give the file that comes out of it, or give the values in the environment or with -e"
        )
    read = tuple(_node(name, given) for name, (given, _) in nodes.items())
    topology = Topology(testbed=testbed, nodes=read)
    names = Counter(topology.host_name(node) for node in read)
    for node in read:
        if names[topology.host_name(node)] > 1:
            raise InputError(f"expected nodes whose names differ in more than their case, found {node.name!r} twice")
    if not any(node.type == "DUT" for node in read):
        raise InputError("expected at least one node of the type DUT in the topology, found none")
    return topology


def _template(text: str) -> Any:
    """Return *text* as YAML; of a template that is YAML only once it is filled, what leads to its nodes."""
    try:
        return _loaded(text)
    except InputError:
        if len(text) > MAX_CHARACTERS or PLACEHOLDER.search(text) is None:
            raise
        lines = [line for line in text.splitlines() if not PLACEHOLDER.fullmatch(line.strip())]
        plain = (line if any(each in line for each in SECRETS) else PLACEHOLDER.sub(_unspaced, line) for line in lines)
        with suppress(InputError):
            return _loaded("\n".join(plain))
        raise


def _unspaced(match: re.Match[str]) -> str:
    """Return a placeholder as YAML takes it for a text, also without quotes."""
    return f"${{{re.sub(r'[ ]', '', match[1] or match[2] or '')}}}"


def _filled(given: Any, values: Mapping[str, str]) -> tuple[Any, set[str]]:
    """Return what is *given* of a node with its placeholders filled, and the names that *values* lack.

    A secret may have any sign in it: it is a placeholder only where it is nothing else.
    """
    missing: set[str] = set()
    if not isinstance(given, Mapping):
        return given, missing

    def fill(match: re.Match[str]) -> str:
        expression = (match[1] or match[2] or "").strip()
        name = expression.partition("|")[0].strip()
        if name != expression or name not in values:  # a filter is not worked out here
            missing.add(name or match[0])
            return match[0]
        return values[name]

    filled = dict(given)
    for key in Node.model_fields:
        value = given.get(key)
        if isinstance(value, str) and (key not in SECRETS or PLACEHOLDER.fullmatch(value.strip())):
            filled[key] = PLACEHOLDER.sub(fill, value)
    return filled, missing


def _loaded(text: str) -> Any:
    """Return *text* as YAML in which every scalar is a text: a password of digits stays what it is."""
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"expected a topology of at most {MAX_CHARACTERS} characters, found {len(text)}")
    try:
        return yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - it makes texts, lists and mappings, nothing else
    except yaml.MarkedYAMLError as error:
        # What YAML says of the place may quote a secret.
        mark = error.problem_mark or error.context_mark
        where = f"the error in line {mark.line + 1}, column {mark.column + 1}" if mark else "an error"
        raise InputError(f"expected a topology in YAML, found {where}; mend the file") from None
    except (yaml.YAMLError, RecursionError):
        raise InputError("expected a topology in YAML, found what is none; mend the file") from None


def _nodes(data: Any) -> Mapping[str, Any]:
    nodes = data.get("nodes") if isinstance(data, Mapping) else None
    return nodes if isinstance(nodes, Mapping) else {}


def _node(name: str, given: Any) -> Node:
    if not NODE_NAME.fullmatch(name):
        raise InputError(
            f"expected names of letters, digits, '_' and '-' in nodes of the topology, found {name[:60]!r}"
        )
    if not isinstance(given, Mapping):
        raise InputError(f"expected a mapping for the node {name} of the topology, found something else")
    return Node(
        name=name,
        type=_choice(name, given),
        host=_needed(name, given, "host", HOST, "an address or a name"),
        username=_needed(name, given, "username", USERNAME, "the name of a login"),
        port=_port(name, given),
        password=_password(name, given),
        priv_key=_priv_key(name, given),
        arch=_optional(name, given, "arch"),
        model=_optional(name, given, "model"),
        subtype=_optional(name, given, "subtype"),
    )


def _wrong(node: str, key: str, wanted: str, found: str) -> InputError:
    return InputError(f"expected {wanted} for {key} of the node {node} of the topology, found {found}")


def _choice(node: str, given: Mapping[str, Any]) -> NodeType:
    for known in TYPES:
        if given.get("type") == known:
            return known
    raise _wrong(node, "type", " or ".join(TYPES), _shown(given, "type"))


def _shown(given: Mapping[str, Any], key: str) -> str:
    if key not in given:
        return "no such key"
    value = given[key]
    return f"{value[:60]!r}" if isinstance(value, str) else "a list or a mapping"


def _needed(node: str, given: Mapping[str, Any], key: str, pattern: re.Pattern[str], wanted: str) -> str:
    value = given.get(key)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _wrong(node, key, wanted, _shown(given, key))
    return value


def _optional(node: str, given: Mapping[str, Any], key: str) -> str | None:
    value = given.get(key, "")
    if not isinstance(value, str) or not value.isprintable():
        raise _wrong(node, key, "a text", _shown(given, key))
    return value or None


def _port(node: str, given: Mapping[str, Any]) -> int | None:
    if "port" not in given:
        return None
    value = given["port"]
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,5}", value) or not 1 <= int(value) <= 65535:
        raise _wrong(node, "port", "a number from 1 to 65535", _shown(given, "port"))
    return int(value)


def _password(node: str, given: Mapping[str, Any]) -> SecretStr | None:
    value = given.get("password", "")
    if not isinstance(value, str) or not value.isprintable():
        raise _wrong(node, "password", "a text on one line", "something else")
    return SecretStr(value) if value else None


def _priv_key(node: str, given: Mapping[str, Any]) -> SecretStr | None:
    value = given.get("priv_key", "")
    if not value:
        return None
    if not isinstance(value, str) or not re.match(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----\s", value):
        raise _wrong(node, "priv_key", "the text of a private key with its BEGIN line", "something else")
    return SecretStr(value)
