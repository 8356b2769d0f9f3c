"""Comparing what computes the same: models, plans, engines, sessions of ONNX Runtime, modules of PyTorch's, functions.

>>> model = planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Exp(%x) output %y }')
>>> import planish.testing
>>> found = planish.testing.compare(model, planish.build(model), lambda x: numpy.exp(x), inputs={"x": numpy.float32([0, 1])})
>>> found.passed, [row.runner for row in found]
(True, ['Plan', '<lambda>'])
"""

import os
from collections import namedtuple

import numpy

from . import errors
from ._planish import Engine, Model, Plan, load
from ._views import Table

#: How far an output is from the first runner's.
Distance = namedtuple("Distance", "runner output largest relative passed")


class Comparison(Table):
    """The distance of every output of every runner to the first one's."""

    headings = ("runner", "output", "largest difference", "relative L2", "")

    def rows(self):
        """The cells of the table, as text."""
        return [[row.runner, row.output, f"{row.largest:.1e}", f"{row.relative:.1e}", "" if row.passed else "differs"] for row in self]

    def summary(self):
        """How many passed."""
        return f"{sum(row.passed for row in self)} of {len(self)} outputs agree"

    def parts(self):
        """How far each is off, on a scale of powers of ten from 1e-8 to 1."""
        return [min(max(1 + numpy.log10(max(row.relative, 1e-8)) / 8, 0.0), 1.0) for row in self]

    @property
    def passed(self):
        """Whether all agree."""
        return all(row.passed for row in self)

    def check(self):
        """Raises `planish.errors.CheckFailed` with the table if not."""
        if not self.passed:
            raise errors.CheckFailed(f"outputs differ\n{self}")
        return self


def _named(outputs, names):
    """Outputs as a dict, whatever a runner gives."""
    if isinstance(outputs, dict):
        return {name: numpy.asarray(value) for name, value in outputs.items()}
    outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    names = names if names and len(names) == len(outputs) else [str(idx) for idx in range(len(outputs))]
    return dict(zip(names, (_array(value) for value in outputs)))


def _array(value):
    return numpy.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _is_torch(runner):
    return any(kind.__module__.startswith("torch.nn") for kind in type(runner).__mro__)


def _runner(given):
    """A function from a dict of arrays to outputs, and the name of what computes."""
    if isinstance(given, (str, os.PathLike)):
        with open(given, "rb") as file:
            from ._planish import is_plan

            given = load(given) if is_plan(file.read(16)) else Model(given)
    if isinstance(given, Model):
        return given.evaluate, "the reference"
    if isinstance(given, Plan):
        return given.engine().run, "Plan"
    if isinstance(given, Engine):
        return given.run, "Engine"
    if hasattr(given, "run") and hasattr(given, "get_outputs"):
        names = [info.name for info in given.get_outputs()]
        return lambda inputs: dict(zip(names, given.run(None, inputs))), type(given).__name__
    if _is_torch(given):
        return lambda inputs: _torch_run(given, inputs), type(given).__name__
    return lambda inputs: given(*inputs.values()), getattr(given, "__name__", type(given).__name__)


def _torch_run(module, inputs):
    import torch

    with torch.no_grad():
        return module(*[torch.from_numpy(value) for value in inputs.values()])


def _random(runner, seed):
    """Inputs for whatever says what it takes."""
    described = runner if hasattr(runner, "inputs") else runner.engine() if isinstance(runner, Plan) else None
    if described is None:
        raise errors.WrongInputs("give inputs: the first runner does not say what it takes")
    generator = numpy.random.default_rng(seed)
    made = {}
    for info in described.inputs:
        if info.shape is None:
            raise errors.WrongShape(f"give inputs: input `{info.name}` may have any rank")
        shape = [size if isinstance(size, int) else 1 for size in info.shape]
        kind = numpy.dtype(info.dtype)
        values = generator.standard_normal(shape) if kind.kind == "f" else generator.integers(0, 2, shape)
        made[info.name] = values.astype(kind)
    return made


def compare(*runners, inputs=None, atol=1e-5, rtol=1e-3, seed=0):
    """Runs all on the same inputs and compares outputs with those of the first, in order or by name.

    A runner is a model (its path, a `planish.Model`, which the exact reference computes), a plan (its path, `planish.Plan`,
    `planish.Engine`), a session of ONNX Runtime, a module of PyTorch's, or a function of arrays in order. `inputs` is a dict
    of arrays by name; random ones if not given, where the first runner says what it takes. An output agrees where each
    element is within `atol + rtol * |expected|`.
    """
    if len(runners) < 2:
        raise errors.BadOption("give two runners or more")
    first = Model(runners[0]) if isinstance(runners[0], (str, os.PathLike)) and not _is_plan(runners[0]) else runners[0]
    if inputs is None:
        inputs = _random(first, seed)
    inputs = {name: _array(value) for name, value in inputs.items()}
    run, _ = _runner(first)
    expected = _named(run(inputs), None)
    found = Comparison()
    for other in runners[1:]:
        run, name = _runner(other)
        got = _named(run(inputs), list(expected))
        if len(got) != len(expected):
            raise errors.CheckFailed(f"{name} gives {len(got)} outputs, {len(expected)} are expected")
        by_name = set(got) == set(expected)
        for (output, wanted), value in zip(expected.items(), got.values()):
            found.append(_distance(name, output, got[output] if by_name else value, wanted, atol, rtol))
    return found


def _is_plan(path):
    from ._planish import is_plan

    with open(path, "rb") as file:
        return is_plan(file.read(16))


def _distance(runner, output, got, wanted, atol, rtol):
    if got.shape != wanted.shape:
        raise errors.CheckFailed(f"{runner}: output `{output}` has the sizes {got.shape}, {wanted.shape} are expected")
    got, wanted = got.astype(numpy.float64), wanted.astype(numpy.float64)
    same = (got == wanted) | (numpy.isnan(got) & numpy.isnan(wanted))
    with numpy.errstate(invalid="ignore"):
        off = numpy.where(same, 0.0, numpy.abs(got - wanted))
    size = float(numpy.linalg.norm(numpy.where(numpy.isfinite(wanted), wanted, 0.0)))
    total = float(numpy.linalg.norm(off))
    passed = bool((off <= atol + rtol * numpy.abs(wanted)).all())
    return Distance(runner, output, float(off.max(initial=0.0)), total / size if size else total, passed)
