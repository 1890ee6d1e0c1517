# SPDX-License-Identifier: Apache-2.0
"""CPU lists and masks: the kernel's grammar, its bounds, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.base.cpulists import MAX_CHARACTERS, MAX_ID, format_cpulist, parse_cpulist, parse_cpumask

numbers = st.frozensets(st.integers(0, MAX_ID), max_size=40)


@pytest.mark.parametrize(("text", "expected"), [
    ("", ()),
    ("\n", ()),
    ("0", (0,)),
    ("0-3,8\n", (0, 1, 2, 3, 8)),
    ("8,0-3,2", (0, 1, 2, 3, 8)),
    ("0-3 8-9", (0, 1, 2, 3, 8, 9)),
    ("0-31:2/4", (0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29)),
    ("1-6:1/3", (1, 4)),
    ("all", (0, 1, 2, 3, 4, 5, 6, 7)),
    ("all:1/2", (0, 2, 4, 6)),
    ("ALL", (0, 1, 2, 3, 4, 5, 6, 7)),
    ("0,All:1/4", (0, 4)),
    ("1-7:0/2,5", (5,)),
    ("6-N", (6, 7)),
    ("N", (7,)),
    ("0-2,,4,", (0, 1, 2, 4)),
])  # fmt: skip
def test_lists_of_the_kernel_grammar(text, expected):
    assert parse_cpulist(text, last=7) == expected


@pytest.mark.parametrize("group", ["0-8191", "0-8191:1/2", "0-8191:1/9999999999", "0-8191:9999999999/9999999999"])
def test_cpu_lists_are_bounded(group):
    found = parse_cpulist(",".join([group] * (MAX_CHARACTERS // (len(group) + 1))))
    assert found == parse_cpulist(group)
    with pytest.raises(ValueError, match=r"8000.* at most 65536"):
        parse_cpulist(f"{group},".ljust(800_000, "0"))


@pytest.mark.parametrize(("used", "period"), [(1, 1), (1, 7), (3, 7), (7, 7), (1, 10**9), (40, 50)])
def test_strides_take_the_first_of_each_period(used, period):
    assert parse_cpulist(f"5-36:{used}/{period}") == tuple(n for n in range(5, 37) if (n - 5) % period < used)


@pytest.mark.parametrize("text", [
    "a", "3-1", "1-", "-1", "0x3", "1.5", "0-99999999999", "0-8192", "0-7:0/0", "3:1/2", "allx", "0-7:5/4", "1;2", "٣",
    "0-3:", "1-2-3",
])  # fmt: skip
def test_rejects_other_lists(text):
    with pytest.raises(ValueError, match=r"not a CPU list|names the last|beyond|backwards|stride"):
        parse_cpulist(text)


def test_n_needs_a_known_last_cpu():
    with pytest.raises(ValueError, match="last CPU"):
        parse_cpulist("all")


@given(numbers)
def test_format_is_the_inverse_of_parse(wanted):
    assert parse_cpulist(format_cpulist(wanted)) == tuple(sorted(wanted))


@given(numbers)
def test_masks_and_lists_agree(wanted):
    value = sum(1 << n for n in wanted)
    digits = f"{value:x}"
    digits = digits.rjust(-(-len(digits) // 8) * 8, "0")
    assert parse_cpumask(",".join(digits[i : i + 8] for i in range(0, len(digits), 8))) == tuple(sorted(wanted))


@pytest.mark.parametrize(("text", "expected"), [
    ("f\n", (0, 1, 2, 3)),
    ("00000000,0000000f", (0, 1, 2, 3)),
    ("00000001,00000000", (32,)),
    ("0x3", (0, 1)),
    ("0000000000000001,0000000000000000", (64,)),
    ("00000000,00000000", ()),
])  # fmt: skip
def test_masks_of_old_kernels(text, expected):
    assert parse_cpumask(text) == expected


@pytest.mark.parametrize("text", ["", "g", "1,", "-1", "1 2", ",".join(["ffffffff"] * 257)])
def test_rejects_invalid_masks(text):
    with pytest.raises(ValueError, match=r"not a CPU mask|beyond"):
        parse_cpumask(text)


@given(st.text(alphabet="0123456789-,:/aNlx \n\x00é", max_size=30), st.none() | st.integers(0, 100))
def test_any_text_gives_numbers_in_bounds_or_an_error(text, last):
    for parse in (lambda: parse_cpulist(text, last), lambda: parse_cpumask(text)):
        try:
            found = parse()
        except ValueError:
            continue
        assert list(found) == sorted(set(found))
        assert all(0 <= n <= MAX_ID for n in found)
