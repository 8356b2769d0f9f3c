"""Modules with the weights of a checkpoint, as training by Lightning and by plain PyTorch writes them."""

import importlib

import torch

from ..errors import BadFile, BadOption

#: What wrappers put in front of the names of weights: Lightning's attribute, DataParallel, torch.compile.
_PREFIXES = ("model.", "net.", "network.", "module.", "_orig_mod.", "_forward_module.")


def _factory(factory):
    if not isinstance(factory, str):
        return factory
    module, _, name = factory.partition(":")
    if not name:
        raise BadOption(f"`{factory}` names no factory; write package.module:name")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BadOption(f"`{factory}` cannot be imported: {error}") from None


def _stripped(weights, wanted):
    """Names as the module has them, without what wrappers put in front; what is no weight of the module is left out."""
    while not wanted & set(weights):
        shorter = {name[len(prefix) :]: value for name, value in weights.items() for prefix in _PREFIXES if name.startswith(prefix)}
        if not shorter:
            return weights
        weights = shorter
    return weights


def from_checkpoint(factory, checkpoint=None, *, hyper_parameters=False):
    """A module in evaluation mode, made by a factory, with the weights of a checkpoint.

    `factory` is a function or a class, or its name as in `package.models:UNet`. A checkpoint is a file of Lightning's
    (`state_dict` inside), or a state dict; prefixes of wrappers (`model.`, `module.`, `_orig_mod.`) are taken off. Only tensors
    and plain values are read from the file. With `hyper_parameters`, those that Lightning saved are given to the factory.
    """
    factory = _factory(factory)
    if checkpoint is None:
        return factory().eval()
    try:
        content = torch.load(checkpoint, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:
        what = str(error).strip().splitlines()
        raise BadFile(f"{checkpoint} is no checkpoint of tensors and plain values: {what[0] if what else type(error).__name__}") from None
    told = content.get("hyper_parameters", {}) if isinstance(content, dict) and hyper_parameters else {}
    weights = content.get("state_dict", content) if isinstance(content, dict) else content
    if not isinstance(weights, dict):
        raise BadFile(f"{checkpoint} holds no state dict")
    module = factory(**told)
    wanted = set(module.state_dict())
    weights = _stripped(weights, wanted)
    missing = sorted(wanted - set(weights))
    if missing:
        raise BadFile(f"{checkpoint} has no weights for {', '.join(missing[:3])}{' and others' if len(missing) > 3 else ''}")
    module.load_state_dict({name: weights[name] for name in wanted})
    return module.eval()
