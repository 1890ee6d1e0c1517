# SPDX-License-Identifier: Apache-2.0
r"""Commands for ``/bin/sh`` on a SUT through any login shell, with their output separated from the login's.

The login shell parses each command line before ``/bin/sh``, and may print output of its own (``~/.bashrc``,
``~/.cshrc``). csh ends a quoted string at a newline and replaces ``!`` even inside single quotes; fish interprets ``\``
there. So a command is sent as one line without any of these, and prints a line before and after its own output.
"""

import re

_ESCAPES = str.maketrans({character: f"\\0{ord(character):03o}" for character in "\\\n!'"})
"""Always three digits: printf reads up to three, so fewer would include a digit that follows."""


def framed(script: str, token: str) -> str:
    """Return *script* for ``/bin/sh`` as one line, with its output between two lines that contain *token*.

    printf, echo, trap and eval are shell built-ins. The exit code is the script's.
    """
    marked = f"trap 'echo end-{token}' 0; echo begin-{token}\n{script}"
    return f"eval \"$(printf %b '{marked.translate(_ESCAPES)}')\""


def unframed(output: str, token: str) -> str | None:
    """Return the output of the script with that *token*, or None if it was not started.

    The last line may be missing if a signal ended the shell.
    """
    _, *begun = re.split(rf"begin-{token}\r?\n", output)
    return begun[-1].partition(f"end-{token}")[0] if begun else None
