# SPDX-License-Identifier: Apache-2.0
"""Controller side of the module ``sut_kernel``: the kernel's bytes travel inside the module's arguments."""

from __future__ import annotations

import base64

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Read ``src`` on the controller and run the module with its content."""

    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        """Return the module's result."""
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        if arguments.get("state", "present") == "present":
            if not arguments.get("src"):
                return {
                    **result,
                    "failed": True,
                    "msg": "expected src, the kernel's path on the controller, found none",
                }
            try:
                with open(arguments["src"], "rb") as stream:
                    arguments["content"] = base64.b64encode(stream.read()).decode("ascii")
            except OSError as error:
                return {**result, "failed": True, "msg": f"the kernel on the controller cannot be read: {error}"}
        return {**result, **self._execute_module(module_args=arguments, task_vars=task_vars)}
