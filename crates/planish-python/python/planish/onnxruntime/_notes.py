"""Words about what is not honoured, each said once."""

import warnings

_said = set()


def say_once(message):
    """Warns, the first time that there is this to say."""
    if message not in _said:
        _said.add(message)
        warnings.warn(f"planish.onnxruntime: {message}", UserWarning, stacklevel=3)
