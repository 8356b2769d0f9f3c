"""Loggers."""

import sys

from .._named import Named


class Severity(Named):
    """How grave a message is, the gravest first."""

    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


class ILogger:
    """A logger of the caller's own: a class with a method `log`."""

    Severity = Severity
    INTERNAL_ERROR, ERROR, WARNING = Severity.INTERNAL_ERROR, Severity.ERROR, Severity.WARNING
    INFO, VERBOSE = Severity.INFO, Severity.VERBOSE

    def log(self, severity, msg):
        """Is given every message."""
        raise NotImplementedError("a logger has a method log(severity, msg)")


class Logger(ILogger):
    """Prints messages up to a severity on standard error."""

    def __init__(self, min_severity=Severity.WARNING):
        self.min_severity = min_severity

    def log(self, severity, msg):
        """Prints a message that is grave enough."""
        if severity <= self.min_severity:
            print(f"[PLANISH] [{severity.name[0]}] {msg}", file=sys.stderr)


_said = set()


def say_once(logger, msg):
    """Warns, the first time that there is this to say to this logger."""
    if (id(logger), msg) not in _said:
        _said.add((id(logger), msg))
        logger.log(ILogger.WARNING, msg)
