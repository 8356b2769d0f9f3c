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
    Host,
    Metadata,
    Model,
    Pipeline,
    Plan,
    Pool,
    Repeat,
    Stage,
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
    plugin_declarations,
    register_plugin as _register_plugin,
)

__all__ = [
    "Calibration",
    "Context",
    "Engine",
    "Host",
    "Metadata",
    "Model",
    "Pipeline",
    "Plan",
    "Pool",
    "Repeat",
    "Stage",
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
    "plugin",
    "plugin_declarations",
]

# The `nvidia-*` wheels of this environment, wherever this Python was started from.
_look_in_packages([folder for folder in sys.path if os.path.isdir(os.path.join(folder, "nvidia"))])


def export(module, example_inputs=None, path=None, **options):
    """Writes a model of PyTorch's, Keras's or TensorFlow's as an ONNX file; `check=True` compares every hop of the way to a plan.

    A `torch.nn.Module` goes through `planish.torch.export`; a Keras model, a `tf.function`, or the folder of a SavedModel goes
    through `planish.tensorflow.export`. They have the options.
    """
    if _is_tensorflows(module):
        from .tensorflow import export
    else:
        from .torch import export

    return export(module, example_inputs, path, **options)


def _is_tensorflows(module):
    """Whether a model is Keras's or TensorFlow's: an object of theirs, or the folder of a SavedModel."""
    if isinstance(module, (str, os.PathLike)):
        return os.path.isfile(os.path.join(module, "saved_model.pb"))
    return any(kind.__module__.split(".")[0] in ("keras", "tensorflow", "tf_keras") for kind in type(module).__mro__)


def plugin(declaration, *, reference=None):
    """Makes a function of arrays an operator of one's own, to try an idea before it is written in C, Rust or CUDA.

    The declaration is that of every plugin (docs/plugins.md): its inputs and outputs with their sizes, and a `reference:` by
    operators of ONNX; where there is none, `reference` is another function that computes the same. A function takes the
    inputs in order as numpy's arrays (None where an optional one is left out) and the attributes by name, and gives an array,
    or a tuple of them, of the types and sizes that are declared. It runs on the CPU, one call at a time, on copies.

    >>> @planish.plugin('''planish-plugin 1
    ... op: my.ops::Swish
    ... version: 1
    ... types: T = float32
    ... inputs: x: T[..., n]
    ... outputs: y: T[..., n]
    ... tolerance: float32 1e-6
    ... reference: y = Mul(x, Sigmoid(x))
    ... ''')
    ... def swish(x):
    ...     return x / (1 + numpy.exp(-x))
    >>> model = planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = custom "my.ops" "Swish" 1 (%x) output %y }')
    >>> planish.build(model).engine()(numpy.float32([0, 10]))
    array([0.      , 9.999546], dtype=float32)
    """

    def registered(function):
        _register_plugin(declaration, function, reference)
        return function

    return registered


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
