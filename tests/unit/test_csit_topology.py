# SPDX-License-Identifier: Apache-2.0
"""CSIT's topology files: what is read of them, what is refused, and that no message has a secret."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from calibration.base.errors import InputError
from calibration.formats.csit_topology import TYPES, Node, is_topology, name_of_testbed, read_topology

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "csit" / "topologies"
SECRET = "n0t-to-be-shown"  # noqa: S105 - made up, and looked for in messages
KEY = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n-----END OPENSSH PRIVATE KEY-----\n"


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text(encoding="utf-8")


def node(**changes: Any) -> dict[str, Any]:
    """Return a node with *changes*; a key whose value is None is left out."""
    whole = {"type": "DUT", "host": "192.0.2.1", "username": "testlogin", "password": SECRET, **changes}
    return {key: value for key, value in whole.items() if value is not None}


def topology(**nodes: Any) -> str:
    return yaml.safe_dump({"nodes": nodes})


def test_reads_a_csit_topology() -> None:
    text = fixture("lf_3n_icx_testbed91.yaml")
    assert is_topology(text)
    read = read_topology(text, "t91")
    tg, dut1, dut2 = read.nodes
    assert [read.host_name(item) for item in read.nodes] == ["t91-tg", "t91-dut1", "t91-dut2"]
    assert (tg.type, tg.host, tg.port, tg.subtype) == ("TG", "192.0.2.83", 6001, "TREX")
    assert (dut1.type, dut1.username, dut1.port, dut1.arch, dut1.model) == (
        "DUT",
        "testlogin",
        22,
        "x86_64",
        "Intel-Icelake",
    )
    assert (dut2.port, dut2.model, dut2.subtype, dut2.priv_key) == (None, None, None, None)
    assert read.reserved == tg


def test_password_of_digits_stays_text() -> None:
    dut2 = read_topology(fixture("lf_3n_icx_testbed91.yaml"), "t91").nodes[2]
    assert dut2.password is not None
    assert dut2.password.get_secret_value() == "1234567.50"


def test_only_the_node_tg_is_reserved() -> None:
    assert read_topology(topology(DUT1=node()), "t1").reserved is None
    assert read_topology(topology(DUT1=node(), TG2=node(type="TG")), "t1").reserved is None


def test_key_must_be_text_not_a_path() -> None:
    (dut,) = read_topology(topology(DUT1=node(priv_key=KEY)), "t1").nodes
    assert dut.priv_key is not None
    assert dut.priv_key.get_secret_value() == KEY


def test_secrets_are_not_shown() -> None:
    read = read_topology(topology(DUT1=node(priv_key=KEY)), "t1")
    assert SECRET not in f"{read} {read!r} {read.model_dump_json()} {read.model_dump()}"


@pytest.mark.parametrize(("path", "name"), [
    ("topologies/available/lf_2n_icx_testbed212.yaml", "t212"),
    ("lf_3na_spr_testbed21.yaml", "t21"),
    ("2n_hw_testbed1.yaml.example", "t1"),
    ("/tmp/vpp_device.yaml", "vpp_device"),
    ("my-lab.yml", "my-lab"),
    ("testbed7-new.yaml", "testbed7-new"),
])  # fmt: skip
def test_testbed_is_named_after_the_file(path: str, name: str) -> None:
    assert name_of_testbed(path) == name


@pytest.mark.parametrize("text", [
    "", "nodes", "[nodes]", "nodes: {}", "nodes: [TG, DUT1]", "nodes: {a: {type: router}, b: TG}",
    "all: {hosts: {nodes: {type: DUT}}}", "all:\n  hosts:\n    nodes:\n      type: DUT\n    : [",
    "plugin: constructed\n# nodes:\n#  type: DUT\n", "[nodes]\nsut1 type=DUT\n", "nodes: \x07",
])  # fmt: skip
def test_other_files_are_not_topologies(text: str) -> None:
    assert not is_topology(text)


TEMPLATES = {
    "2n_cloud.template": "dut1_public_ip, tg_public_ip",
    "2n_cloud.tftpl": "dut1_password, dut1_public_ip",
    "vpp_device.template": "CSIT_DUT1_HOST, CSIT_TG_HOST, CSIT_TG_PORT",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_rejects_a_template_with_the_missing_names(name: str) -> None:
    text = fixture(name)
    assert is_topology(text)
    with pytest.raises(InputError, match=re.escape(f"a template without values for {TEMPLATES[name]}: use")):
        read_topology(text, "t1")


def test_reads_a_filled_template() -> None:
    text = fixture("2n_cloud.tftpl").replace("${dut1_public_ip}", "192.0.2.9").replace("${dut1_password}", SECRET)
    assert read_topology(text, "t1").nodes[0].host == "192.0.2.9"


def test_fills_a_template_with_given_values() -> None:
    values = {"CSIT_TG_HOST": "192.0.2.1", "CSIT_TG_PORT": "6001", "CSIT_DUT1_HOST": "192.0.2.2"}
    tg, dut = read_topology(fixture("vpp_device.template"), "t1", values).nodes
    assert (tg.host, tg.port, dut.host) == ("192.0.2.1", 6001, "192.0.2.2")
    values = {"tg_public_ip": "192.0.2.3", "dut1_public_ip": "192.0.2.4"}
    hosts = [node.host for node in read_topology(fixture("2n_cloud.template"), "t1", values).nodes]
    assert hosts == ["192.0.2.3", "192.0.2.4"]
    values = {"dut1_public_ip": "192.0.2.5", "dut1_password": SECRET}
    (dut,) = read_topology(fixture("2n_cloud.tftpl"), "t1", values).nodes
    assert dut.password is not None
    assert dut.password.get_secret_value() == SECRET


def test_filters_are_not_evaluated() -> None:
    text = topology(DUT1=node(host="{{ name | lower }}"))
    with pytest.raises(InputError, match="without values for name"):
        read_topology(text, "t1", {"name": "SUT"})


def test_value_is_checked_like_one_from_a_file() -> None:
    text = topology(DUT1=node(host="{{ name }}"))
    with pytest.raises(InputError, match="topology node DUT1: host must be"):
        read_topology(text, "t1", {"name": "-oProxyCommand=id"})


@pytest.mark.parametrize("password", ["a{{ b }}", "${x}y", "{% raw %}", "'\"`$(id)", "ä ö", "#: *&"])
def test_password_may_contain_any_character(password: str) -> None:
    (dut,) = read_topology(topology(DUT1=node(password=password)), "t1").nodes
    assert dut.password is not None
    assert dut.password.get_secret_value() == password


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"DUT1": node(type=None)}, "topology node DUT1: type must be TG or DUT, and is missing"),
    ({"DUT1": node(), "X": node(type="VM")}, "topology node X: type must be TG or DUT, not 'VM'"),
    ({"DUT1": node(host=None)}, "topology node DUT1: host must be an address or a name, and is missing"),
    ({"DUT1": node(host="")}, "topology node DUT1: host must be an address or a name, not ''"),
    ({"DUT1": node(host="-oProxyCommand=id")}, "topology node DUT1: host must be"),
    ({"DUT1": node(host="192.0.2.1 id")}, "topology node DUT1: host must be"),
    ({"DUT1": node(host=["192.0.2.1"])}, "topology node DUT1: host must be an address or a name"),
    ({"DUT1": node(username=None)}, "topology node DUT1: username must be a login name, and is missing"),
    ({"DUT1": node(username='a" -o b')}, "topology node DUT1: username must be"),
    ({"DUT1": node(port="ssh")}, "topology node DUT1: port must be a number from 1 to 65535, not 'ssh'"),
    ({"DUT1": node(port=65536)}, "port must be a number from 1 to 65535, not '65536'"),
    ({"DUT1": node(port=0)}, "topology node DUT1: port must be"),
    ({"DUT1": node(password=[SECRET])}, "topology node DUT1: password must be one line of text"),
    ({"DUT1": node(password=f"{SECRET}\nmore")}, "topology node DUT1: password must be one line of text"),
    ({"DUT1": node(priv_key=f"~/.ssh/{SECRET}")}, "priv_key must be the text of a private key with its BEGIN line"),
    ({"DUT1": node(priv_key={"text": KEY})}, "topology node DUT1: priv_key must be"),
    ({"DUT1": node(model=["a"])}, "topology node DUT1: model must be one line of text"),
    ({"DUT1": node(arch="a\nb")}, "topology node DUT1: arch must be one line of text"),
    ({"DUT1": node(), "DUT2": SECRET}, "topology node DUT2 must be a mapping"),
    ({"DUT1": node(), "a b": node()}, "have names of letters, digits, '_' and '-', not 'a b'"),
    ({"DUT1": node(), "dut1": node()}, "names of nodes in the topology differ in case only: DUT1, dut1"),
    ({"TG": node(type="TG")}, "the topology has no node of the type DUT"),
]


@pytest.mark.parametrize(("nodes", "words"), WRONG)
def test_errors_name_the_key_and_no_secret(nodes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refused:
        read_topology(topology(**nodes), "t1")
    assert words in str(refused.value)
    assert SECRET not in str(refused.value)


def test_invalid_yaml_is_located_and_not_quoted() -> None:
    text = fixture("testbed94.damaged")
    assert is_topology(text)
    with pytest.raises(InputError) as refused:
        read_topology(text, "t94")
    assert str(refused.value) == "not a valid YAML topology: error in line 7, column 20"
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_secret_like_a_placeholder_is_not_quoted() -> None:
    damaged = (
        f"nodes:\n  DUT1: {{type: DUT, password: a${{{SECRET}}}\n    type: DUT\n    password: b{{{{ {SECRET} }}}}\n"
    )
    assert is_topology(damaged)
    for text in (damaged, topology(DUT1=node(password=[f"a${{{SECRET}}}"], host=""))):
        with pytest.raises(InputError) as refused:
            read_topology(text, "t1")
        assert SECRET not in str(refused.value)


@pytest.mark.parametrize("text", ["", "[" * 5000, "a: \x07", "nodes: &a [*a]", "? [a]\n: b", "!!bool x", "nodes: {a: "])
def test_yaml_failures_are_input_errors(text: str) -> None:
    assert not is_topology(text)
    with pytest.raises(InputError):
        read_topology(text, "t1")


def test_an_alias_repeats_a_text_and_nothing_else() -> None:
    text = topology(DUT1=node()).replace("192.0.2.1", "*host")
    (read,) = read_topology(f"address: &host 192.0.2.1\n{text}", "t1").nodes
    assert read.host == "192.0.2.1"
    with pytest.raises(InputError, match=r"not a valid YAML topology: error in line \d+"):
        read_topology(f"address: &host [192.0.2.1]\n{text}", "t1")


def refused_or_read(text: str) -> None:
    is_topology(text)
    try:
        read = read_topology(text, "t1")
    except InputError:
        return
    assert any(item.type == "DUT" for item in read.nodes)


@given(st.text())
def test_any_text_is_read_or_rejected(text: str) -> None:
    refused_or_read(text)
    refused_or_read(f"nodes:\n  DUT1:\n    type: DUT\n    host: {text}\n    username: a\n")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from([*TYPES, KEY, "{{ a }}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(["TG", "DUT1", "dut1", "x y"]),
        st.dictionaries(st.sampled_from([*Node.model_fields, "interfaces"]), VALUES) | VALUES,
    )
)
def test_any_nodes_are_read_or_rejected(nodes: Any) -> None:
    refused_or_read(topology(**nodes))
