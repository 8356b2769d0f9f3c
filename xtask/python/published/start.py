"""Starts a script as `python3 script.py` would, with stand-ins for what this machine has not."""

import importlib.util
import pathlib
import runpy
import sys

import planish.tensorrt

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import host_cuda  # noqa: E402

if not host_cuda.has_gpu():
    host_cuda.install()
# Libraries in between (Polygraphy) import it by its own name.
if importlib.util.find_spec("tensorrt") is None:
    sys.modules["tensorrt"] = planish.tensorrt

try:
    from PIL import Image

    # Called so until Pillow 10.
    Image.ANTIALIAS = Image.LANCZOS
except ImportError:
    pass

sys.argv = sys.argv[1:]
sys.path[0] = str(pathlib.Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
