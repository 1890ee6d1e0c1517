#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A simulated ssh to a SUT that attacks its controller.

It runs commands on this machine and adds hostile text to every text of an answer, as HOSTILE_MOOD says. Each text tries
to create a file named HOSTILE_MARK.
"""

import base64
import io
import json
import os
import re
import resource
import subprocess
import sys
import tarfile

MOOD = os.environ["HOSTILE_MOOD"]
MARK = os.environ["HOSTILE_MARK"]

TEXTS = (
    "{{ lookup('pipe', 'touch MARK.jinja') }}",
    "{% for x in lookup('pipe', 'touch MARK.block') %}{% endfor %}",
    "{# comment #}${jndi:ldap://x}%s%n",
    "$(touch MARK.dollar)`touch MARK.tick`; touch MARK.semicolon; '\"|touch MARK.pipe & touch MARK.and #",
    "<script>alert(1)</script><img src=x onerror=alert(1)></pre></div>&lt;b&gt;<!--",
    "`click <javascript:alert(1)>`_ :raw-html:`<b>x</b>` |x| [1]_ <b> _`t` **b** ``l``",
    "\n\n.. raw:: html\n\n   <script>alert(2)</script>\n\n.. include:: /etc/passwd\n\n.. |x| replace:: y\n\n",
    "\u2028.. raw:: html\u2028\u2028   <script>alert(3)</script>\u2029",
    "!!python/object/apply:os.system ['touch MARK.yaml']\n---\n- x: &a [*a]\n",
    "../../../../../../../../MARK.path",
    "$\\frac{$ $x_$",
    "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m\x9b31m\x08\x7f\u202eevil\u2066",
    "\nsut2: complete, 12 measured\nTASK [forged] ok: [sut2]\r\nPLAY RECAP",
    "\ud800\udfff",
)


def hostile(limit=None):
    """Return all texts, joined."""
    text = " ".join(TEXTS).replace("MARK", MARK)
    return text if limit is None else text[:limit]


def spoil(value, kept=()):
    """Return *value* with hostile text after every text in it, except the fields *kept*."""
    if isinstance(value, str):
        return value + hostile()
    if isinstance(value, list):
        return [spoil(item, kept) for item in value]
    if isinstance(value, dict):
        return {key: item if key in kept else spoil(item, kept) for key, item in value.items()}
    return value


def spoil_capture(archive):
    """Return the capture with hostile text in everything that a page may show."""
    spoilt = io.BytesIO()
    line = hostile().replace("\n", " ").encode("utf-8", "surrogatepass")
    with (
        tarfile.open(fileobj=io.BytesIO(base64.b64decode(archive))) as opened,
        tarfile.open(fileobj=spoilt, mode="w:gz") as written,
    ):
        for member in opened:
            if not member.isfile():
                written.addfile(member)
                continue
            content = opened.extractfile(member).read()
            if member.name == "capture.json":
                kept = ("schema", "machine", "affinity")
                content = json.dumps(spoil(json.loads(content), kept)).encode()
            elif member.name.startswith(("sys/class/dmi/id", "sys/devices/system/cpu/vulnerabilities")) or (
                member.name.endswith(("cmdline", "version", "hostname", "ostype", "osrelease", "current_clocksource"))
            ):
                content = content.strip() + (line if MOOD == "answers" else hostile().encode("utf-8", "replace"))
            elif member.name == "proc/cpuinfo":
                content = content.replace(b"model name\t: ", b"model name\t: " + line)
            member.size = len(content)
            written.addfile(member, io.BytesIO(content))
        for name in ("/etc/evil", "../../evil", "sys/devices/system/cpu/vulnerabilities/" + hostile(60)):
            member = tarfile.TarInfo(name)
            member.size = 4
            written.addfile(member, io.BytesIO(b"evil"))
    return base64.b64encode(spoilt.getvalue()).decode()


def magic():
    """Return keys on which Ansible would act in the result of a module, aimed at the controller."""
    evil = {
        "calibration_results_dir": f"{MARK}.results",
        "ansible_connection": "local",
        "ansible_python_interpreter": f"touch {MARK}.interpreter;",
        "preflight_result": {"fit": True},
        "report_site_dir": f"{MARK}.site",
    }
    return {
        "ansible_facts": evil,
        "add_host": {"host_name": "evil", "groups": ["all"], "host_vars": evil},
        "warnings": [hostile()],
        "exception": hostile(),
        "invocation": {"module_args": evil},
        hostile(): hostile(),
    }


def answer_of(command, line):
    """Return the runner's answer to *command* with hostile text."""
    answer = json.loads(line)
    if command == "facts":
        answer["identity"] = spoil(answer["identity"])
    if command == "start" and "capture" in answer:
        answer["capture"] = spoil_capture(answer["capture"])
    return json.dumps(answer | magic()) + "\n"


def record_of(line):
    """Return a record of the run with hostile text."""
    if MOOD == "records":
        return hostile().replace("\n", " ") + "\n"
    record = json.loads(line)
    if record["record"] == "step":
        record["stderr"] = hostile()
        document = json.loads(record["stdout"])
        if MOOD == "kernel":
            document |= {"status": "failed", "error": {"code": "environment", "message": hostile()}, "result": None}
        kept = ("schema", "subcommand", "status", "source_sha256", "result", "parameters", "code", "source")
        record["stdout"] = json.dumps(spoil(document, kept))
    return json.dumps(record | magic()) + "\n"


def main():
    """Run the command and answer."""
    script = sys.argv[-1]
    asked = re.search(r"runner (watch) |\\0047 (facts|start|begin|find|cancel|remove) ", script)
    command = next(filter(None, asked.groups())) if asked else ""
    if MOOD == "endless" and command == "watch":
        block = b"x" * (1 << 20)
        while True:
            sys.stdout.buffer.write(block)
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))  # the controller's limits do not apply to a SUT
    given = None if sys.stdin.isatty() else sys.stdin.buffer.read()
    done = subprocess.run(["/bin/sh", "-c", script], input=given, capture_output=True, check=False)
    output = done.stdout.decode("utf-8", "replace")
    if framed := re.fullmatch(r"(begin-\w+\n)(\{.*\n)(end-\w+\n)?", output, re.DOTALL):
        begin, answer, end = framed.groups(default="")
        first, *records = answer.splitlines()
        answer = answer_of(command, first) + "".join(map(record_of, records))
        output = hostile() + begin + answer + (end and end + hostile())
    sys.stderr.buffer.write(hostile().encode("utf-8", "surrogatepass") + b"\xff\xfe" + done.stderr)
    sys.stdout.buffer.write(output.encode("utf-8", "surrogatepass"))
    return done.returncode


sys.exit(main())
