"""Exceptions by what went wrong: each says what, where, and what to try.

All of them are `planish.errors.Error`; those that Python has a word for are that too, so that `except ValueError` works.

>>> planish.build("no such file.onnx")
Traceback (most recent call last):
    ...
planish.errors.FileError: cannot read no such file.onnx: No such file or directory (os error 2)
"""


class Error(Exception):
    """Whatever went wrong in Planish."""


class BadModel(Error, ValueError):
    """The model is not usable."""


class BadFile(Error, ValueError):
    """A plan or another file of Planish's does not follow its format, or is damaged."""


class FileError(Error, OSError):
    """A file cannot be read or written."""


class NoRoom(FileError):
    """The disk is full, or a limit on files is reached."""


class BadOption(Error, ValueError):
    """An option does not say what it may, or contradicts another one."""


class Unsupported(Error, NotImplementedError):
    """The model asks for what nothing here can compute."""


class Refused(Error):
    """`strict`, or a calibration of another model, refuses what was found."""


class WrongInputs(Error, ValueError):
    """An input is missing, unknown or given twice, or lies where it cannot be read."""


class WrongType(Error, TypeError):
    """An input has another element type than the model takes, or is no array."""


class WrongShape(Error, ValueError):
    """Sizes that the model or its profiles do not accept."""


class BadValues(Error, ValueError):
    """The inputs' values are outside of what an operator defines."""


class NeedsRebuild(Error):
    """The plan was built for another machine or by another version.

    `why` says what differs, `command` makes a plan for this machine.
    """

    why = ""
    command = ""


class Untrusted(Error):
    """The plan is not signed by a key that is trusted."""


class OutOfMemory(Error, MemoryError):
    """There is not enough memory."""


class LimitReached(Error):
    """A run would make more trips or take more bytes than its limits allow."""


class Cancelled(Error):
    """The caller asked to stop."""


class Lacking(Error):
    """This machine lacks what is needed: a GPU, a driver, a library, a package."""


class DeviceLost(Error):
    """The device failed in a way that ends every use of it in this process."""


class CheckFailed(Error):
    """The self-check found a wrong answer that could not be repaired."""


class Failed(Error):
    """A mistake of ours; please report it."""
