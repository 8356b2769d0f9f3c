"""Sessions and values, where scripts that go past the package import them from."""

from planish.onnxruntime import InferenceSession, IOBinding, OrtDevice, OrtValue, SparseTensor
from planish.onnxruntime._session import Session

__all__ = ["IOBinding", "InferenceSession", "OrtDevice", "OrtValue", "Session", "SparseTensor"]
