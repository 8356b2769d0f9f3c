"""PyTorch with Planish: engines as modules, modules as plans, and a backend of `torch.compile`.

It needs torch, which is not installed with Planish: `pip install torch`.
"""

try:
    import torch as _torch
except ImportError as _error:
    from ..errors import Lacking as _Lacking

    raise _Lacking("planish.torch needs PyTorch, which is not installed: pip install torch") from _error

from ._backend import Report, backend, reports
from ._checkpoint import from_checkpoint
from ._export import export, model_of
from ._module import Module, load

__all__ = ["Module", "Report", "backend", "export", "from_checkpoint", "load", "model_of", "reports"]
