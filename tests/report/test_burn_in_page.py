# SPDX-License-Identifier: Apache-2.0
"""The section of a burn-in: what was wrong with its place, and what the machine has no sensor for."""

from docutils import nodes

from calibration.results.model import RunDocument
from calibration.sutprobe.document import read_document
from tests.recorded import read
from tests.report.report_documents import (
    MACHINE,
    context_of,
    index_of,
    page_of,
    parsed,
    parsed_measurements,
    replace,
    run_document,
)
from tests.report.test_page import section
from tests.unit.test_burn_in import found_wrong, with_telemetry


def rendered(document: RunDocument) -> tuple[nodes.section, dict[str, str]]:
    page = page_of(document, drawn=True)
    return section(parsed(page), "Cores"), page.figures


def test_a_sound_guest_has_no_list_of_words_and_says_what_it_cannot_see() -> None:
    found, figures = rendered(run_document(names=("burn_in",)))
    text = found.astext()
    assert "0 errors: 0 words of memory (0 bits), 0 results of arithmetic" in text
    assert "Words that differed" not in text
    assert "unknown: /sys/class/hwmon: No such file or directory" in text
    assert "unknown: /sys/class/powercap: No such file or directory" in text
    assert text.count("unknown: the kernel does not count them") == 2
    assert [name for name in figures if "temperature" in name] == []


def test_errors_have_their_place_and_sensors_their_values() -> None:
    document = run_document(names=("burn_in",))
    raw = with_telemetry(found_wrong(read("burn_in")))
    raw["result"]["interference"] |= {"core_throttle": 4, "package_throttle": 0}
    (measurement,) = parsed_measurements("burn_in", read_document(raw), context_of(MACHINE))
    found, figures = rendered(replace(document, index_of(document, "burn_in"), **dict(measurement)))
    text = found.astext()
    assert "3 errors: 3 words of memory (4 bits), 0 results of arithmetic" in text
    assert "4104" in text  # the offset of the second
    assert text.count("0x0000000000000003") == 7  # read, read again, and in the flag
    assert "Found by CPU 1." in text
    assert "90.00 °C" in text
    assert "400 W" in text
    assert "INVALID" not in text
    assert any("temperature" in name for name in figures)
