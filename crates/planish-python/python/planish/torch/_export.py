"""Modules of PyTorch's as models: through `torch.onnx`, with every hop compared."""

import contextlib
import io
import os
import tempfile
import warnings
from collections import namedtuple

import torch

import planish

from .._views import Table
from ..errors import BadModel, CheckFailed, Lacking

#: One step on the way from a module to a plan: what is compared with what, and by how much they differ.
Hop = namedtuple("Hop", "hop output largest relative")

#: Relative L2 distance of a hop in FP32 from which on it is called a fault: sums in another order differ by some 1e-6.
LARGEST_DISTANCE = 1e-3


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


def _in_order(example_inputs):
    """Positional and named inputs."""
    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,), {}
    if isinstance(example_inputs, dict):
        return (), dict(example_inputs)
    return tuple(example_inputs), {}


def _flat(outputs):
    """The tensors of what a module gives, in order."""
    return [value for value in torch.utils._pytree.tree_leaves(outputs) if isinstance(value, torch.Tensor)]


def _program(module, example_inputs, dynamic_shapes):
    args, kwargs = _in_order(example_inputs)
    try:
        import onnxscript  # noqa: F401, what torch.onnx is made with
    except ImportError as error:
        raise Lacking("torch.onnx needs onnxscript, which is not installed: pip install onnxscript") from error
    # What the exporter says while all goes well is for those who work on it.
    with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        exported = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
        made = torch.onnx.export(exported, args, kwargs=kwargs, dynamo=True, verbose=False)
    return exported, made


def model_of(module, example_inputs, dynamic_shapes=None):
    """A module as a model of Planish's: what `planish.build(module, example_inputs)` builds."""
    with _written(module, example_inputs, dynamic_shapes) as (path, _):
        return planish.Model(path)


@contextlib.contextmanager
def _written(module, example_inputs, dynamic_shapes):
    """The module in an ONNX file that is there for a while, and its exported program."""
    if module.training:
        raise BadModel("the module is in training mode; call .eval() first")
    try:
        exported, made = _program(module, example_inputs, dynamic_shapes)
    except Lacking:
        raise
    except Exception as error:
        what = str(error).strip().splitlines()
        raise BadModel(f"torch.onnx does not export the module: {what[0] if what else type(error).__name__}") from error
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        made.save(path, external_data=_n_bytes(module) > 1 << 30)
        yield path, exported


def _n_bytes(module):
    tensors = [*module.parameters(), *module.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _distance(hop, name, got, wanted):
    got, wanted = got.detach().double(), wanted.detach().double()
    if got.shape != wanted.shape:
        raise CheckFailed(f"{hop}: output `{name}` has the sizes {list(got.shape)}, {list(wanted.shape)} are expected")
    off, size = (got - wanted).norm().item(), wanted.norm().item()
    largest = (got - wanted).abs().max().item() if got.numel() else 0.0
    return Hop(hop, name, largest, off / size if size else off)


def export(module, example_inputs, path=None, *, dynamic_shapes=None, check=False, plan_path=None, **options):
    """Writes a module as an ONNX file, and builds a plan of it where that is asked for.

    `example_inputs` is a tensor, a tuple of them, or a dict by the names of `forward`'s arguments; `dynamic_shapes` is as
    `torch.export.export` takes it. With `check`, the inputs go through every hop, the module itself, the exported program,
    the ONNX file as the exact reference computes it, and the plan; the distances are printed and returned, and one beyond
    1e-3 is an error. `options` are those of `planish.build`.
    """
    with _written(module, example_inputs, dynamic_shapes) as (file, exported):
        model = planish.Model(file)
        if path is not None:
            model.save_onnx(path)
        hops = Hops()
        if check or plan_path is not None:
            plan = planish.build(model, **options)
            if plan_path is not None:
                plan.save(plan_path)
        if check:
            hops.extend(_compared(module, exported, model, plan, example_inputs))
            print(hops)
            faults = [hop for hop in hops if not hop.relative <= LARGEST_DISTANCE and options.get("precision", "fp32") == "fp32"]
            if faults:
                raise CheckFailed(f"{faults[0].hop}: output `{faults[0].output}` is off by {faults[0].relative:.1e}")
        return hops


def _compared(module, exported, model, plan, example_inputs):
    args, kwargs = _in_order(example_inputs)
    with torch.no_grad():
        wanted = _flat(module(*args, **kwargs))
        program = _flat(exported.module()(*args, **kwargs))
    names = [info.name for info in model.outputs]
    given = {info.name: value for info, value in zip(model.inputs, _flat((args, kwargs)))}
    reference = [torch.as_tensor(value) for value in model.evaluate({name: value.detach().numpy() for name, value in given.items()}).values()]
    engine = plan.engine()
    run = [torch.as_tensor(value) for value in engine.run({name: value.detach() for name, value in given.items()}).values()]
    hops = [("module to torch.export", program, wanted), ("torch.export to ONNX", reference, program), ("ONNX to plan", run, reference)]
    return [_distance(hop, name, a, b) for hop, got, other in hops for name, a, b in zip(names, got, other)]
