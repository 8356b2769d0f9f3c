"""Planish: trained models to tuned and checked plans, and plans run fast and safely.

>>> model = planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }')
>>> plan = planish.build(model)                     # or planish.build("model.onnx")
>>> plan.save("relu.plan")
>>> engine = planish.load("relu.plan")
>>> engine(numpy.float32([-1, 2]))                  # numpy, torch on the CPU, or anything with DLPack
array([0., 2.], dtype=float32)
"""

import os
import sys

from . import errors
from ._planish import (
    Calibration,
    Context,
    Engine,
    Metadata,
    Model,
    Plan,
    Pool,
    TensorInfo,
    __version__,
    build,
    calibrate,
    describe,
    is_plan,
    load,
    load_plugin,
    look_in_packages as _look_in_packages,
    plan_metadata,
)

__all__ = [
    "Calibration",
    "Context",
    "Engine",
    "Metadata",
    "Model",
    "Plan",
    "Pool",
    "TensorInfo",
    "__version__",
    "build",
    "calibrate",
    "compare",
    "describe",
    "errors",
    "export",
    "is_plan",
    "load",
    "load_plugin",
    "plan_metadata",
]

# The `nvidia-*` wheels of this environment, wherever this Python was started from.
_look_in_packages([folder for folder in sys.path if os.path.isdir(os.path.join(folder, "nvidia"))])


def export(module, example_inputs, path=None, **options):
    """Writes a module of PyTorch's as an ONNX file; `check=True` compares every hop of the way to a plan.

    What `planish.torch.export` does, which has the options.
    """
    from .torch import export

    return export(module, example_inputs, path, **options)


def compare(*runners, **options):
    """Runs models, plans, engines, sessions, modules or functions on the same inputs, and gives a table of their distances.

    What `planish.testing.compare` does, which has the options.

    >>> model = planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Exp(%x) output %y }')
    >>> planish.compare(model, planish.build(model), inputs={"x": numpy.float32([0, 1])}).passed
    True
    """
    from .testing import compare

    return compare(*runners, **options)


def _reload(path, device, threads):
    """The engine that another process pickled."""
    return load(path, device, threads=threads)
