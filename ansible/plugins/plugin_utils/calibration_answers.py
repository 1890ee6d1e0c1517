# SPDX-License-Identifier: Apache-2.0
"""What is kept of a SUT's answer: documented fields, and bounded quotes of its output."""

from __future__ import annotations

import functools
import os
import re
import sys
import traceback

import yaml

sys.path.append(os.path.abspath(__file__ + "/.."))

from calibration_checkout import ROOT

from calibration.text import visible

MAX_OUTPUT = 20_000
"""Characters kept of a program's standard error, from the end, where the reason is."""

MAX_QUOTED = 1500
"""Characters of each of a program's outputs quoted in a reason, so that both fit into a reason."""


def read_so_far(error):
    """Return both outputs that Ansible's ssh connection had read when *error* interrupted it; empty for others."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "_bare_run":
            found = frame.f_locals
            return tuple(
                b"".join(part for part in (found.get(f"b_{name}"), found.get(f"b_tmp_{name}")) if part).decode(
                    "utf-8", "replace"
                )
                for name in ("stdout", "stderr")
            )
    return "", ""


def quoted(stdout, stderr):
    """Return a SUT's output for the end of a reason: both streams, bounded, on one line; empty if there was none."""
    parts = {"stderr": stderr.strip(), "stdout": stdout.strip()}
    return "".join(f"; {name}: {visible(text[-MAX_QUOTED:])}" for name, text in parts.items() if text)


KINDS = {"bool": bool, "dict": dict, "float": (int, float), "int": int, "list": list, "path": str, "str": str}
"""Python types of the types in a module's documentation."""


@functools.cache
def documented_types(module):
    """Return the documented return values of one of this project's modules: names and types."""
    with open(os.path.join(ROOT, "ansible", "plugins", "modules", f"{module}.py")) as stream:
        text = re.search(r'^RETURN = r"""\n(.*?)^"""', stream.read(), re.MULTILINE | re.DOTALL).group(1)
    fields = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - the fast form of the safe one
    return {"changed": bool, **{name: KINDS[field["type"]] for name, field in fields.items()}}


def is_kind(value, kind):
    """Return whether *value* is a plain *kind* or None; a bool is not a number."""
    return value is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool)))


def encodable(value):
    """Return *value* with all texts encodable: lone surrogates are shown as escapes."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {encodable(key): encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [encodable(item) for item in value]
    return value


def documented_fields(result, module):
    """Return the documented fields of *module*'s *result* that have the documented type.

    A module's answer is under the SUT's control, and Ansible acts on some keys: facts become variables that override
    the inventory. The interpreter that Ansible found is kept; it is only used on the same SUT.
    """
    known = documented_types(module)
    kept = {key: encodable(result[key]) for key in known if key in result and is_kind(result[key], known[key])}
    for key in ("failed", "unreachable"):
        if result.get(key):
            kept[key] = True
    stdout, stderr = (str(result.get(key) or "") for key in ("module_stdout", "module_stderr"))
    if result.get("failed") and (stdout or stderr):  # the module printed no result
        kept["msg"] = f"{module} had no result: exit code {result.get('rc')}{quoted(stdout, stderr)}"
    elif result.get("msg"):
        kept["msg"] = encodable(str(result["msg"])[-MAX_OUTPUT:])
    facts = result.get("ansible_facts")
    found = {
        key: value
        for key, value in (facts if isinstance(facts, dict) else {}).items()
        if key.startswith("discovered_interpreter_") and isinstance(value, str)
    }
    return {**kept, "ansible_facts": found} if found else kept
