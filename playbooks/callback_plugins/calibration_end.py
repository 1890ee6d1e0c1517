# SPDX-License-Identifier: Apache-2.0
"""End of a calibration with any stdout callback: its exit code, and cleanup after an interruption.

ansible-runner and AWX replace the stdout callback and ignore the callback directories of ansible.cfg. Ansible finds
this plugin because it is beside the playbooks, and loads it unconditionally.

After an interruption, playbooks/cleanup.yml is run with the options of the interrupted command: it cleans the SUTs of
the run and assembles their documents.
"""

from __future__ import annotations

DOCUMENTATION = """
name: calibration_end
type: aggregate
short_description: Exit code of a calibration, and clean-up of an interrupted one
description:
  - Notes what failures mean for the exit code of the command.
  - Cleans the SUTs of an interrupted run and assembles its documents.
author: The calibration harness contributors
"""

import atexit
import gc
import json
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import threading
import time

from ansible import constants as C
from ansible import context
from ansible.plugins.callback import CallbackBase

sys.path.append(os.path.abspath(__file__ + "/../../../ansible/plugins/plugin_utils"))

from calibration_checkout import ROOT
from calibration_variables import options_of_roles

# Used by the roles' plugins; imported here, before Ansible forks a worker per task.
from calibration import lifecycle  # noqa: F401
from calibration.errors import BAD_INPUT, ENVIRONMENT, INTERRUPTED, VERDICT_FAILED
from calibration.report import prepare
from calibration.run import note_failure

EXIT_CODES = {"settings": BAD_INPUT, "verdict": VERDICT_FAILED}
"""Exit code for a failure in a role; all other roles mean a fault of the environment."""

CHANGING_ACTIONS = ("calibration_plan", "sutprobe", "sut_reservation")
"""Actions that leave something of the run on a SUT or in the results."""

POLL_S_PER_SUT = 0.0025
"""The controller's polling interval per SUT of a play, unless ``ansible.cfg`` has a longer one."""

REPEAT_S = 0.01
"""Delay until an interruption that came during a fork is repeated."""

WORKERS_END_S = 10
"""Time for interrupted workers to finish before their SUTs are cleaned anyway."""


def cleanup_command(arguments, run_id, suts):
    """Return the command that cleans up after *run_id* on *suts*, with the connection options in *arguments*."""
    command = [sys.executable, "-m", "ansible", "playbook", os.path.join(ROOT, "playbooks", "cleanup.yml")]
    for option, values in (
        ("--inventory", arguments.get("inventory") or ()),
        ("--extra-vars", arguments.get("extra_vars") or ()),
        ("--vault-id", arguments.get("vault_ids") or ()),
        ("--vault-password-file", arguments.get("vault_password_files") or ()),
    ):
        for value in values:
            command += [option, value]
    for option, name in (
        ("--private-key", "private_key_file"),
        ("--user", "remote_user"),
        ("--timeout", "timeout"),
        ("--ssh-common-args", "ssh_common_args"),
        ("--ssh-extra-args", "ssh_extra_args"),
        ("--sftp-extra-args", "sftp_extra_args"),
        ("--scp-extra-args", "scp_extra_args"),
        ("--become-user", "become_user"),
    ):
        if arguments.get(name):
            command.append(f"{option}={arguments[name]}")
    for option, name, usual in (
        ("--connection", "connection", C.DEFAULT_TRANSPORT),
        ("--become-method", "become_method", C.DEFAULT_BECOME_METHOD),
    ):
        if arguments.get(name, usual) != usual:
            command.append(f"{option}={arguments[name]}")
    if arguments.get("become"):
        command.append("--become")
    return [*command, "--limit", ",".join(suts), "--extra-vars", json.dumps({"calibration_run_id": run_id})]


class CallbackModule(CallbackBase):
    """Loaded in addition to the stdout callback."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "calibration_end"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.process = os.getpid()
        self.poll_s = C.DEFAULT_INTERNAL_POLL_INTERVAL
        self.run_id = None
        self.open = set()
        self.reached_stats = False
        self.passwords = {}
        self.interrupt = None
        self.forking = False
        self.pending = False
        # Registered before the playbook starts: handlers that a display registers later run first.
        atexit.register(self.clean_up)

    def v2_playbook_on_start(self, playbook):
        """Ensure that the SUTs are clean however the command ends; do once what each worker would do."""
        atexit.register(gc.unfreeze)  # some extensions report frozen objects as leaks at exit
        self.interrupt = signal.getsignal(signal.SIGINT)
        if callable(self.interrupt):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:  # respect nohup
                    signal.signal(number, self.handle_signal)
            # The last one registered is called first before a fork, and last after it.
            os.register_at_fork(before=self.begin_fork, after_in_parent=self.end_fork, after_in_child=self.end_fork)
        prepare()
        options_of_roles()

    def v2_playbook_on_play_start(self, play):
        """Scale the polling interval with the number of SUTs; disable garbage collection in workers.

        A collection in a worker would copy every inherited page that it touches.
        """
        suts = len(play.get_variable_manager().get_vars(play=play)["ansible_play_hosts_all"])
        C.DEFAULT_INTERNAL_POLL_INTERVAL = max(self.poll_s, POLL_S_PER_SUT * suts)
        gc.collect()
        gc.freeze()

    def handle_signal(self, number, frame):
        """Treat SIGTERM and SIGHUP like Ctrl-C; never interrupt a fork."""
        if os.getpid() != self.process:  # a worker without its own handler yet, or at all
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        note_failure(INTERRUPTED)  # Ansible may notice the ended worker before its own interruption
        if self.forking:
            self.pending = True
        else:
            self.interrupt(signal.SIGINT, frame)

    def begin_fork(self):
        """Begin a fork: Python ignores exceptions raised in functions called around it."""
        self.forking = True

    def end_fork(self):
        """End a fork, and repeat an interruption that came meanwhile."""
        self.forking = False
        if self.pending and os.getpid() == self.process:
            self.pending = False
            threading.Timer(REPEAT_S, os.kill, (self.process, signal.SIGINT)).start()

    def set_play_context(self, play_context):
        """Keep the typed passwords: cleanup after an interruption must not ask again."""
        self.passwords = {
            "--connection-password-file": play_context.password,
            "--become-password-file": play_context.become_pass,
        }

    def v2_playbook_on_no_hosts_matched(self):
        """Fail: an inventory without a SUT is a mistake."""
        self._display.error("no SUT in the inventory: name one, or check --limit")
        note_failure(BAD_INPUT)
        raise SystemExit(BAD_INPUT)

    def v2_playbook_on_stats(self, stats):
        """Mark the calibration as ended: no cleanup is needed."""
        self.reached_stats = True

    # One SUT's events

    def v2_runner_on_start(self, host, task):
        """Note which SUTs have begun."""
        if task.action in CHANGING_ACTIONS:
            self.open.add(host.get_name())

    def v2_runner_on_ok(self, result):
        """Note the run's name, and which SUTs have ended."""
        if result.task.action == "calibration_run":
            self.run_id = result.result["run_id"]
        elif result.task.action == "calibration_collect" and result.result.get("run"):
            self.open.discard(result.host.get_name())

    def v2_runner_on_unreachable(self, result):
        """Note a failure of the environment, not a failed verdict."""
        note_failure(ENVIRONMENT)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        """Note the exit code for a failure."""
        task = result.task
        role = task._role.get_name() if task._role else None
        note_failure(int(result.result.get("exit_code") or EXIT_CODES.get(role, ENVIRONMENT)))

    # Interrupted

    def clean_up(self):
        """Clean up after an unfinished calibration, when the controller's process ends."""
        if os.getpid() != self.process or self.reached_stats:
            return
        if self.run_id is None or not self.open:
            self.await_workers()  # a surviving worker would recreate Ansible's temporary directory
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)  # removed by Ansible; a second Ctrl-C aborts
        suts = sorted(self.open)
        command = cleanup_command(context.CLIARGS, self.run_id, suts)
        self._display.display(f"Interrupted: cleaning up on {', '.join(suts)} (Ctrl-C again gives up)")
        try:
            self.await_workers()
            done = self.run_cleanup(command)
        except KeyboardInterrupt:
            done = None
        if done != 0:
            shown = shlex.join(command[5:])
            self._display.display(
                f"The cleanup is incomplete. Repeat it with: ansible-playbook playbooks/cleanup.yml {shown}",
                color=C.COLOR_ERROR,
            )

    def await_workers(self):
        """Wait until the interrupted workers have finished writing."""
        until = time.monotonic() + WORKERS_END_S
        while time.monotonic() < until and multiprocessing.active_children():
            time.sleep(0.05)

    def run_cleanup(self, command):
        """Run *command* with the typed passwords; return its exit code."""
        pipes = []
        for option, password in self.passwords.items():
            if password:
                reader, writer = os.pipe()
                os.write(writer, str(password).encode())
                os.close(writer)
                pipes.append(reader)
                command = [*command, option, f"/dev/fd/{reader}"]
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": os.environ.get("ANSIBLE_CONFIG", os.path.join(ROOT, "ansible.cfg")),
            # Another callback may be bound to the interrupted command, like ansible-runner's.
            "ANSIBLE_CALLBACK_PLUGINS": os.path.join(ROOT, "ansible", "plugins", "callback"),
            "ANSIBLE_STDOUT_CALLBACK": "calibration",
        }
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=1,  # a child does not inherit Ansible's standard output and error
            stderr=2,
            env=environment,
            pass_fds=pipes,
            start_new_session=True,
        ) as process:
            try:
                return process.wait()
            except KeyboardInterrupt:
                process.terminate()
                raise
            finally:
                for reader in pipes:
                    os.close(reader)
