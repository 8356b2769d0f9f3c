"""Engines as modules of PyTorch's."""

import torch

import planish

from ..errors import BadOption


class Module(torch.nn.Module):
    """An engine in the place of a model: `pipeline.model = planish.torch.load("model.plan")`.

    It takes what the model took, tensors by position or by the names of the model's inputs, and gives a tensor, or a tuple
    of them in the model's order; `names=True` gives a dict. Tensors are read where they are, and outputs are memory that
    the run wrote. It computes no gradients and has no parameters.
    """

    def __init__(self, engine, *, names=False):
        super().__init__()
        if isinstance(engine, planish.Plan):
            engine = engine.engine()
        self.engine = engine
        self.names = names

    def forward(self, *inputs, **named):
        """Runs the engine."""
        inputs = [_lent(value) for value in inputs]
        named = {name: _lent(value) for name, value in named.items()}
        made = self.engine(*inputs, **named)
        if not self.names:
            return made
        made = made if isinstance(made, tuple) else (made,)
        return {info.name: value for info, value in zip(self.engine.outputs, made)}

    def train(self, mode=True):
        """Refused but for `eval()`: a plan is for inference."""
        if mode:
            raise BadOption("a plan is for inference: call .eval(), or train the model that it was built of")
        return super().train(False)

    def extra_repr(self):
        """The engine's inputs and outputs."""
        return repr(self.engine)


def _lent(value):
    # Tensors that want gradients are not lent by DLPack.
    return value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value


def load(path, device="auto", *, threads=None, names=False, rebuild=False):
    """The module of a plan's file, on `torch.get_num_threads()` threads if not said otherwise."""
    threads = threads or torch.get_num_threads()
    return Module(planish.load(path, device, threads=threads, rebuild=rebuild), names=names).eval()
