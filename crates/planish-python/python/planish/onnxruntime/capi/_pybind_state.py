"""The same, where older scripts import it from."""

from planish.onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403
