"""Models of Keras and TensorFlow as plans: through tf2onnx, with every hop compared.

It needs TensorFlow and tf2onnx, which are not installed with Planish: `pip install tensorflow tf2onnx`.
"""

import contextlib
import io
import logging
import os
import tempfile
import warnings
from collections import namedtuple

import numpy

from . import errors
from ._planish import Model, build
from ._views import Table

#: One step on the way from a model to a plan: what is compared with what, and by how much they differ.
Hop = namedtuple("Hop", "hop output largest relative")

#: Relative L2 distance of a hop in FP32 from which on it is called a fault: sums in another order differ by some 1e-6.
LARGEST_DISTANCE = 1e-3

#: Of ONNX, as far as tf2onnx writes it.
OPSET = 18


class Hops(Table):
    """The distances along the way, hop by hop."""

    headings = ("hop", "output", "largest difference", "relative L2")

    def rows(self):
        """The cells of the table, as text."""
        return [[hop.hop, hop.output, f"{hop.largest:.1e}", f"{hop.relative:.1e}"] for hop in self]

    @property
    def worst(self):
        """The largest relative distance of all hops."""
        return max((hop.relative for hop in self), default=0.0)


def _libraries():
    # What TensorFlow says of its own start is for those who work on it.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        import tensorflow
        import tf2onnx
    except ImportError as error:
        raise errors.Lacking(f"{error.name} is not installed: pip install tensorflow tf2onnx") from error
    return tensorflow, tf2onnx


def _spec(tensorflow, shape, dtype, name):
    """What tf2onnx is told of an input; its name becomes the ONNX input's."""
    return tensorflow.TensorSpec(shape, dtype, name=name)


def _function(tensorflow, model, example_inputs):
    """A `tf.function` of inputs in order, and what they are."""
    if isinstance(model, (str, os.PathLike)):
        loaded = tensorflow.saved_model.load(os.fspath(model))
        signature = loaded.signatures.get("serving_default") or next(iter(loaded.signatures.values()), None)
        if signature is None:
            raise errors.BadModel(f"{model} has no signature to call; save it with signatures=")
        named = signature.structured_input_signature[1]
        names = list(named)

        def call(*inputs):
            return signature(**dict(zip(names, inputs)))

        # The loaded object owns the variables, and has to live as long as the function.
        call.owner = loaded
        return tensorflow.function(call), [_spec(tensorflow, named[name].shape, named[name].dtype, name) for name in names]
    keras_inputs = getattr(model, "inputs", None)
    if keras_inputs:
        specs = [_spec(tensorflow, value.shape, value.dtype, value.name.split(":")[0]) for value in keras_inputs]
        several = len(specs) > 1

        def call(*inputs):
            return model(list(inputs) if several else inputs[0], training=False)

        return tensorflow.function(call), specs
    if example_inputs is None:
        raise errors.WrongInputs("the model does not say what it takes; give example_inputs")
    arrays = _in_order(example_inputs, None)
    specs = [_spec(tensorflow, value.shape, value.dtype, f"input_{idx}") for idx, value in enumerate(arrays)]
    return tensorflow.function(lambda *inputs: model(*inputs)), specs


def _in_order(example_inputs, specs):
    """Arrays in the order of the inputs; random ones where none are given."""
    if example_inputs is None:
        generator = numpy.random.default_rng(0)
        shapes = [[size or 1 for size in spec.shape.as_list()] for spec in specs]
        return [generator.standard_normal(shape).astype(spec.dtype.as_numpy_dtype) for spec, shape in zip(specs, shapes)]
    if isinstance(example_inputs, dict):
        names = list(example_inputs) if specs is None else [spec.name for spec in specs]
        missing = [name for name in names if name not in example_inputs]
        if missing:
            raise errors.WrongInputs(f"example_inputs lack `{missing[0]}`; the inputs are {', '.join(names)}")
        return [numpy.asarray(example_inputs[name]) for name in names]
    several = isinstance(example_inputs, (tuple, list))
    return [numpy.asarray(value) for value in (example_inputs if several else [example_inputs])]


def _flat(tensorflow, outputs):
    return [value.numpy() for value in tensorflow.nest.flatten(outputs)]


def _onnx(tensorflow, tf2onnx, model, example_inputs):
    """The bytes of the ONNX file, the function and its inputs."""
    function, specs = _function(tensorflow, model, example_inputs)
    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            made, _ = tf2onnx.convert.from_function(function, input_signature=specs, opset=OPSET)
    except Exception as error:
        what = str(error).strip().splitlines()
        raise errors.BadModel(f"tf2onnx does not export the model: {what[0] if what else type(error).__name__}") from error
    return made.SerializeToString(), function, specs


def model_of(model, example_inputs=None):
    """A Keras model, a function of TensorFlow's or the folder of a SavedModel as a `planish.Model`."""
    tensorflow, tf2onnx = _libraries()
    return Model(_onnx(tensorflow, tf2onnx, model, example_inputs)[0])


def export(model, example_inputs=None, path=None, *, check=False, plan_path=None, **options):
    """Writes a Keras model, a function of TensorFlow's, or the folder of a SavedModel as an ONNX file, and builds a plan where
    that is asked for.

    `example_inputs` is an array, a list of them in order, or a dict by name; random ones if not given. With `check`, they go
    through every hop, the model itself, the SavedModel of a Keras model, the ONNX file as the exact reference
    computes it, and the plan; the distances are printed and returned, and one beyond 1e-3 is an error. `options` are those of
    `planish.build`.
    """
    tensorflow, tf2onnx = _libraries()
    written, function, specs = _onnx(tensorflow, tf2onnx, model, example_inputs)
    read = Model(written)
    if path is not None:
        read.save_onnx(path)
    hops = Hops()
    if check or plan_path is not None:
        plan = build(read, **options)
        if plan_path is not None:
            plan.save(plan_path)
    if check:
        arrays = _in_order(example_inputs, specs)
        hops.extend(_compared(tensorflow, model, function, arrays, read, plan))
        print(hops)
        faults = [hop for hop in hops if not hop.relative <= LARGEST_DISTANCE and options.get("precision", "fp32") == "fp32"]
        if faults:
            raise errors.CheckFailed(f"{faults[0].hop}: output `{faults[0].output}` is off by {faults[0].relative:.1e}")
    return hops


def _saved(tensorflow, model, arrays):
    """What a Keras model gives after it was exported as a SavedModel and loaded again."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        model.export(folder, verbose=False)
        # It owns the variables, and has to live as long as what is served.
        loaded = tensorflow.saved_model.load(folder)
        tensors = [tensorflow.constant(value) for value in arrays]
        return _flat(tensorflow, loaded.serve(tensors if len(tensors) > 1 else tensors[0]))


def _compared(tensorflow, model, function, arrays, read, plan):
    wanted = _flat(tensorflow, function(*[tensorflow.constant(value) for value in arrays]))
    names = [info.name for info in read.outputs]
    given = {info.name: value for info, value in zip(read.inputs, arrays)}
    reference = list(read.evaluate(given).values())
    run = list(plan.engine().run(given).values())
    hops = []
    if hasattr(model, "export") and getattr(model, "inputs", None):
        hops.append(("model to SavedModel", _saved(tensorflow, model, arrays), wanted))
    hops += [("TensorFlow to ONNX", reference, wanted), ("ONNX to plan", run, reference)]
    return [_distance(hop, name, a, b) for hop, got, other in hops for name, a, b in zip(names, got, other)]


def _distance(hop, name, got, wanted):
    got, wanted = numpy.asarray(got, numpy.float64), numpy.asarray(wanted, numpy.float64)
    if got.shape != wanted.shape:
        raise errors.CheckFailed(f"{hop}: output `{name}` has the sizes {list(got.shape)}, {list(wanted.shape)} are expected")
    off, size = float(numpy.linalg.norm(got - wanted)), float(numpy.linalg.norm(wanted))
    return Hop(hop, name, float(numpy.abs(got - wanted).max(initial=0.0)), off / size if size else off)
