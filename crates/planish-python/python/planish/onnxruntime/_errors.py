"""ONNX Runtime's exceptions; each is one of Planish's, too."""

import contextlib

from planish import errors


class Fail(Exception):
    """Whatever has no word of its own."""


class InvalidArgument(Exception):
    """An input or an option is not what the model takes."""


class NoSuchFile(Exception):
    """The model's file is not there."""


class NoModel(Exception):
    """There is no model."""


class EngineError(Exception):
    """A device failed."""


class RuntimeException(Exception):
    """A run failed."""


class InvalidProtobuf(Exception):
    """The file is no model."""


class ModelLoaded(Exception):
    """Never raised; scripts may name it."""


class NotImplemented(Exception):  # noqa: A001, as ONNX Runtime calls it
    """The model asks for what nothing here can compute."""


class InvalidGraph(Exception):
    """The model contradicts itself."""


class EPFail(Exception):
    """A device cannot be used."""


class ModelLoadCanceled(Exception):
    """Never raised; scripts may name it."""


class ModelRequiresCompilation(Exception):
    """Never raised; scripts may name it."""


class NotFound(Exception):
    """Never raised; scripts may name it."""


class DeviceReset(Exception):
    """Never raised; scripts may name it."""


#: For each of Planish's exceptions the class, the number and the word of ONNX Runtime's.
_KINDS = {
    errors.BadModel: (InvalidGraph, 10, "INVALID_GRAPH"),
    errors.BadFile: (InvalidProtobuf, 7, "INVALID_PROTOBUF"),
    errors.FileError: (NoSuchFile, 3, "NO_SUCHFILE"),
    errors.Unsupported: (NotImplemented, 9, "NOT_IMPLEMENTED"),
    errors.WrongInputs: (InvalidArgument, 2, "INVALID_ARGUMENT"),
    errors.WrongType: (InvalidArgument, 2, "INVALID_ARGUMENT"),
    errors.WrongShape: (InvalidArgument, 2, "INVALID_ARGUMENT"),
    errors.BadOption: (InvalidArgument, 2, "INVALID_ARGUMENT"),
    errors.BadValues: (InvalidArgument, 2, "INVALID_ARGUMENT"),
    errors.OutOfMemory: (RuntimeException, 6, "RUNTIME_EXCEPTION"),
    errors.Lacking: (EPFail, 11, "EP_FAIL"),
    errors.DeviceLost: (EngineError, 5, "ENGINE_ERROR"),
}


@contextlib.contextmanager
def translated():
    """What Planish raises, as ONNX Runtime would."""
    try:
        yield
    except errors.Error as error:
        kinds = (kind for base, kind in _KINDS.items() if isinstance(error, base))
        kind, number, word = next(kinds, (Fail, 1, "FAIL"))
        if kind is InvalidGraph and "is not a usable ONNX model" in str(error):
            # Nothing could be read of it.
            kind, number, word = (InvalidArgument, 2, "INVALID_ARGUMENT") if "empty file" in str(error) else (InvalidProtobuf, 7, "INVALID_PROTOBUF")
        raise kind(f"[ONNXRuntimeError] : {number} : {word} : {error}") from error
