"""Execution providers: which device they mean here."""

import functools

import planish

from ._notes import say_once

#: Those of NVIDIA's GPUs.
_GPU = ("TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider", "CUDAExecutionProvider")
_CPU = "CPUExecutionProvider"


@functools.lru_cache(maxsize=None)
def _has_gpu():
    try:
        planish.describe("cuda")
    except planish.errors.Error:
        return False
    return True


def get_all_providers():
    """The providers that mean something here, where their devices are."""
    return [*_GPU, _CPU]


def get_available_providers():
    """The providers whose devices are there.

    >>> import planish.onnxruntime as ort
    >>> "CPUExecutionProvider" in ort.get_available_providers()
    True
    """
    return ["CUDAExecutionProvider", _CPU] if _has_gpu() else [_CPU]


def get_device():
    """`GPU` or `CPU`: what a session runs on if nobody says otherwise."""
    return "GPU" if _has_gpu() else "CPU"


def chosen(providers, provider_options):
    """The providers that are used, with their options, and the device and the precision that they amount to."""
    pairs = []
    for position, provider in enumerate(providers or [_CPU]):
        name, options = provider if isinstance(provider, (tuple, list)) else (provider, {})
        if provider_options and position < len(provider_options):
            options = {**options, **provider_options[position]}
        pairs.append((name, {key: str(value) for key, value in options.items()}))
    for name, options in pairs:
        if name in _GPU and _has_gpu():
            is_fp16 = options.get("trt_fp16_enable", "0").lower() in ("1", "true")
            if options.get("trt_int8_enable", "0").lower() in ("1", "true"):
                say_once("trt_int8_enable needs ranges: give planish.precision=int8 and planish.calib as session config entries")
            used = [(name, options), (_CPU, {})]
            return used, f"cuda:{int(options.get('device_id', 0))}", "fp16" if is_fp16 else "fp32"
        if name == _CPU:
            break
        say_once(f"{name} is not available; {_CPU} is used in its place")
    return [(_CPU, {})], "cpu", "fp32"
