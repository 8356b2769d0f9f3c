"""The `planish` command, as the binary has it."""

import signal
import sys

from . import _planish


def main():
    """Runs the command of `sys.argv` and ends the process with its exit code."""
    # Ctrl-C is the command's from here on, which ends builds in order; Python's own handler would raise after it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_planish.main(["planish", *sys.argv[1:]]))
