# SPDX-License-Identifier: Apache-2.0
"""The kernel command line: order and repetition kept, quotes understood, words for init distinguished."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.context.cmdline import parse_cmdline, parse_isolcpus


def test_order_and_repetition_are_kept():
    parsed = parse_cmdline("ro console=tty0 quiet console=ttyS0,115200n8")
    assert [(p.name, p.value) for p in parsed.parameters] == [
        ("ro", None),
        ("console", "tty0"),
        ("quiet", None),
        ("console", "ttyS0,115200n8"),
    ]
    assert parsed.values("console") == ("tty0", "ttyS0,115200n8")
    assert parsed.text == "ro console=tty0 quiet console=ttyS0,115200n8"


def test_words_after_two_dashes_belong_to_init():
    parsed = parse_cmdline("isolcpus=1 -- isolcpus=2 single")
    assert parsed.values("isolcpus") == ("1",)
    assert parsed.init_arguments == ("isolcpus=2", "single")


def test_quotes_hold_spaces_together():
    parsed = parse_cmdline('dyndbg="file a.c +p" "x=1 2" root=UUID=ab=c empty=')
    assert [(p.name, p.value) for p in parsed.parameters] == [
        ("dyndbg", "file a.c +p"),
        ("x", "1 2"),
        ("root", "UUID=ab=c"),
        ("empty", ""),
    ]


def test_dashes_and_underscores_are_the_same():
    assert parse_cmdline("rcu-nocbs=1-3").values("rcu_nocbs") == ("1-3",)


@given(st.text(max_size=200))
def test_any_line_is_kept_verbatim(text):
    parsed = parse_cmdline(text)
    assert parsed.text == text
    assert len(parsed.parameters) + len(parsed.init_arguments) <= len(text)


@pytest.mark.parametrize(("value", "cpus", "flags", "domain"), [
    ("1-3", (1, 2, 3), (), True),
    ("domain,managed_irq,1-3", (1, 2, 3), ("domain", "managed_irq"), True),
    ("managed_irq,1-3", (1, 2, 3), ("managed_irq",), False),
    ("nohz,2", (2,), ("nohz",), False),
    ("future_word,2-3", (2, 3), (), True),
    ("0-7:1/2", (0, 2, 4, 6), (), True),
    ("0-N", (0, 1, 2, 3, 4, 5, 6, 7), (), True),
    ("domain,4-N", (4, 5, 6, 7), ("domain",), True),
    ("all,2-3", (2, 3), (), True),
])  # fmt: skip
def test_isolcpus_with_its_flag_words(value, cpus, flags, domain):
    parsed = parse_isolcpus(value, last=7)
    assert (parsed.cpus, parsed.flags) == (cpus, flags)
    assert parsed.isolates_domain is domain


@pytest.mark.parametrize(
    "value", ["do-main,1", "1-99999999999", "1,domain", "domain;1", "all", "N", "N-3", "domain,N", "domain", "ALL:1/2"]
)
def test_rejects_invalid_isolcpus(value):
    with pytest.raises(ValueError, match=r"not a|at most|beyond|backwards|stride"):
        parse_isolcpus(value, last=7)
