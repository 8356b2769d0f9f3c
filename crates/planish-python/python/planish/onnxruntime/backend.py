"""ONNX's backend interface over sessions: `prepare(model).run(inputs)`."""

import os

from planish.onnxruntime import InferenceSession


class BackendRep:
    """A model that is ready to run."""

    def __init__(self, session):
        self._session = session

    def run(self, inputs, **_):
        """The outputs, for a list of arrays in the model's order, a dict, or the one array."""
        ports = self._session.get_inputs()
        if not isinstance(inputs, dict):
            inputs = dict(zip((port.name for port in ports), [inputs] if len(ports) == 1 and not isinstance(inputs, (list, tuple)) else inputs))
        return self._session.run(None, inputs)


def prepare(model, device=None, **options):
    """A model (a path, bytes, or a `ModelProto`), ready to run."""
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    return BackendRep(model if isinstance(model, InferenceSession) else InferenceSession(os.fspath(model) if isinstance(model, os.PathLike) else model))


def run_model(model, inputs, device=None, **options):
    """The outputs of a model."""
    return prepare(model, device).run(inputs)


def supports_device(device):
    """Whether there is such a device."""
    return device.upper().split(":")[0] in ("CPU", "CUDA", "GPU")


def is_compatible(model, device=None, **options):
    """Whether a model can be prepared."""
    try:
        prepare(model, device)
    except Exception:  # noqa: BLE001, whatever it is that is wrong with it
        return False
    return True
