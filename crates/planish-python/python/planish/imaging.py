"""Microscopy and medical imaging: engines over images, volumes and files, with MONAI's arguments.

>>> import planish.imaging
>>> model = planish.Model.parse('graph "g" { input %x: f32[n,1,8,8] %y: f32[n,1,8,8] = Neg(%x) output %y }')
>>> planish.build(model).save("segment.plan")
>>> with planish.imaging.InferenceEngine("segment.plan", warmup=1) as engine:
...     made = engine.sliding_window_inference(numpy.ones((1, 1, 20, 12), "f"), roi_size=(8, 8), sw_batch_size=4, overlap=0.5)
>>> made.shape, float(made.max())
((1, 1, 20, 12), -1.0)

What is read and written as TIFF needs the package `tifffile`.
"""

import concurrent.futures
import os

import numpy as np

from . import errors
from ._planish import Engine, Plan, is_plan, load

__all__ = ["InferenceEngine", "SlidingWindowInferer", "TensorRTInferenceEngine", "sliding_window_inference"]


def _opened(source, device, threads):
    if isinstance(source, Engine):
        return source
    if isinstance(source, Plan):
        return source.engine(device, threads=threads)
    if hasattr(source, "engine"):
        return source.engine
    with open(source, "rb") as file:
        beginning = file.read(16)
    if not is_plan(beginning):
        raise errors.BadFile(f"{os.fspath(source)} is no plan; build one with planish.build, or `planish build`")
    return load(source, device, threads=threads)


def _first(outputs):
    return outputs[0] if isinstance(outputs, tuple) else outputs


class InferenceEngine:
    """One model or several over images: what scripts around TensorRT call a `TensorRTInferenceEngine`.

    `plans` is the path of a plan, a `planish.Plan`, a `planish.Engine`, or a list of them, whose answers are averaged
    (`ensemble="mean"`) or counted by class (`"vote"`). `devices` is one device or a list: with several, each has engines of
    its own, and lists are shared out among them. `preprocess` and `postprocess` are functions of an array, called before and
    after every run. `warmup` runs are made when a `with` block begins.
    """

    def __init__(self, plans, devices="auto", *, batch_size=None, preprocess=None, postprocess=None, ensemble="mean", warmup=3, threads=None):
        if ensemble not in ("mean", "vote"):
            raise errors.BadOption(f"ensemble is `mean` or `vote`, not `{ensemble}`")
        plans = list(plans) if isinstance(plans, (list, tuple)) else [plans]
        devices = [devices] if isinstance(devices, str) else list(devices)
        #: Engines by device, and of each device those of all members.
        self.engines = [[_opened(plan, device, threads) for plan in plans] for device in devices]
        self.batch_size, self.preprocess, self.postprocess = batch_size, preprocess, postprocess
        self.ensemble, self.n_warmup = ensemble, warmup

    @property
    def engine(self):
        """The first one."""
        return self.engines[0][0]

    def __enter__(self):
        if self.n_warmup:
            self.warmup(self.n_warmup)
        return self

    def __exit__(self, *_):
        self.engines = [[]]

    def warmup(self, runs=3, shape=None):
        """Runs on zeros, of this shape or of the smallest that the model takes, so that the first image does not wait."""
        for info in self.engine.inputs:
            if shape is None and info.shape is None:
                raise errors.WrongShape(f"give a shape to warm up with: input `{info.name}` may have any rank")
        feed = {
            info.name: np.zeros(shape or [size if isinstance(size, int) else 1 for size in info.shape], info.dtype)
            for info in self.engine.inputs
        }
        for engine in (engine for group in self.engines for engine in group):
            for _ in range(runs):
                engine.run(feed)

    def _before(self, image):
        return image if self.preprocess is None else self.preprocess(image)

    def _after(self, made):
        return made if self.postprocess is None else self.postprocess(made)

    def _joined(self, answers):
        """What members say together."""
        if len(answers) == 1:
            return answers[0]
        if isinstance(answers[0], tuple):
            return tuple(self._joined(list(each)) for each in zip(*answers))
        if self.ensemble == "mean":
            total = answers[0]
            for answer in answers[1:]:
                total = total + answer
            return total / len(answers)
        votes = sum((answer.argmax(1)[:, None] == _like(answer, np.arange(answer.shape[1]))) * 1 for answer in answers)
        return votes.argmax(1)

    def _joined_item(self, answers):
        """The same of answers without a batch axis."""
        if len(answers) == 1:
            return answers[0]
        alone = lambda answer: tuple(each[None] for each in answer) if isinstance(answer, tuple) else answer[None]  # noqa: E731
        made = self._joined([alone(answer) for answer in answers])
        return tuple(each[0] for each in made) if isinstance(made, tuple) else made[0]

    def infer(self, *inputs):
        """The answer on arrays with a batch axis, in the model's order."""
        inputs = [self._before(each) for each in inputs]
        return self._after(self._joined([engine(*inputs) for engine in self.engines[0]]))

    __call__ = infer

    def batch_inference(self, items, batch_size=None):
        """An answer for each item of an iterable: `batch_size` go together, and devices share them."""
        items = [self._before(item) for item in items]
        size = batch_size or self.batch_size

        def answers(group, part):
            made = [engine.batch_inference(part, batch_size=size) for engine in group]
            return [self._after(self._joined_item(list(each))) for each in zip(*made)]

        if len(self.engines) == 1:
            return answers(self.engines[0], items)
        # Parts of whole batches, one after another to each device.
        n = -(-len(items) // len(self.engines))
        n = -(-n // (size or 1)) * (size or 1)
        parts = [items[start : start + n] for start in range(0, len(items), n)]
        with concurrent.futures.ThreadPoolExecutor(len(self.engines)) as threads:
            return [answer for part in threads.map(answers, self.engines, parts) for answer in part]

    def sliding_window_inference(self, inputs, roi_size=None, sw_batch_size=None, **options):
        """Over an image of any size, with the arguments of MONAI's function; the members' answers are joined."""
        image = self._before(inputs)
        size = sw_batch_size or self.batch_size or 1
        made = [sliding_window_inference(image, roi_size, size, engine, **options) for engine in self.engines[0]]
        return self._after(self._joined(made))

    def predict_file(self, source, target=None, roi_size=None, *, argmax=False, axes=None, **options):
        """Reads a TIFF file, runs over it in windows, and writes a TIFF file; gives the result.

        Pages, or the first of the file's axes beyond those of the model's pixels, are channels where the model takes as many,
        and images otherwise. `argmax` writes labels.
        """
        image = read_tiff(source, self.engine, axes)
        made = _first(self.sliding_window_inference(image, roi_size, argmax=argmax, **options))
        if target is not None:
            write_tiff(target, np.asarray(made))
        return made


#: What scripts around TensorRT call it.
TensorRTInferenceEngine = InferenceEngine


def _like(array, numbers):
    """Class numbers along the second axis of an array, in its library."""
    shape = (1, -1) + (1,) * (array.ndim - 2)
    if hasattr(array, "new_tensor"):
        return array.new_tensor(numbers).reshape(shape)
    return numbers.reshape(shape)


def _tifffile():
    try:
        import tifffile
    except ImportError:
        raise errors.Lacking("reading and writing TIFF from Python takes tifffile; pip install tifffile") from None
    return tifffile


def read_tiff(source, engine, axes=None):
    """An image of a TIFF file as `[N, C, …]`, with the axes of pixels that an engine takes."""
    info = engine.inputs[0]
    if info.shape is None:
        raise errors.WrongShape(f"input `{info.name}` may have any rank; read the file, and give the array")
    array = _tifffile().imread(os.fspath(source))
    n_pixels, channels = len(info.shape) - 2, info.shape[1]
    if axes is not None:
        array = np.transpose(array, axes)
    if array.ndim < n_pixels or array.ndim > n_pixels + 2:
        raise errors.WrongShape(f"{os.fspath(source)} has {array.ndim} axes, the model takes {n_pixels} of pixels")
    if array.ndim == n_pixels:
        array = array[None, None]
    elif array.ndim == n_pixels + 1:
        # Colours come last in files, and channels first here.
        if array.shape[-1] == channels != array.shape[0] and isinstance(channels, int):
            array = np.moveaxis(array, -1, 0)
        array = array[None] if array.shape[0] == channels or not isinstance(channels, int) else array[:, None]
    return np.ascontiguousarray(array)


def write_tiff(target, array):
    """Writes `[N, C, …]` as a TIFF file, in one piece, without axes of one in front."""
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    target = os.fspath(target)
    partial = f"{target}.{os.getpid()}.partial"
    try:
        _tifffile().imwrite(partial, array, bigtiff=array.nbytes > 2**32 - 2**25)
        os.replace(partial, target)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


#: What the library itself does not do: arguments of MONAI's that must be left as they are.
_LEFT = {"sw_device": None, "device": None, "buffer_steps": None, "buffer_dim": -1, "roi_weight_map": None, "process_fn": None, "with_coord": False}


def sliding_window_inference(
    inputs,
    roi_size,
    sw_batch_size,
    predictor,
    overlap=0.25,
    mode="constant",
    sigma_scale=0.125,
    padding_mode="constant",
    cval=0.0,
    sw_device=None,
    device=None,
    progress=False,
    roi_weight_map=None,
    process_fn=None,
    buffer_steps=None,
    buffer_dim=-1,
    with_coord=False,
    *,
    condition=None,
    argmax=False,
):
    """MONAI's `monai.inferers.sliding_window_inference`, argument by argument, with an engine as the predictor.

    `predictor` is a `planish.Engine`, an `InferenceEngine` or a `planish.torch.Module`; `inputs` an array of numpy's, or a
    tensor of torch's, of the sizes `[N, C, …]`, and the result is of the same kind. `sw_device`, `device`, `buffer_steps` and
    `buffer_dim` are taken and left alone: there is no second copy of the image to be placed anywhere. `roi_weight_map`,
    `process_fn` and `with_coord` are refused. `condition` is a second image; `argmax` gives labels.
    """
    given = {"roi_weight_map": roi_weight_map, "process_fn": process_fn, "with_coord": with_coord}
    for name, value in given.items():
        if value is not _LEFT[name]:
            raise errors.Unsupported(f"`{name}` of MONAI's function is not there; leave it out")
    engine = predictor if isinstance(predictor, Engine) else getattr(predictor, "engine", None)
    if engine is None:
        raise errors.WrongType("the predictor is an engine of Planish's; for a function or a module use MONAI itself")
    sizes = roi_size
    if roi_size is not None and not isinstance(roi_size, int):
        sizes = [max(int(size), 0) for size in roi_size]
    image = inputs if condition is None else dict(zip((info.name for info in engine.inputs), (inputs, condition)))
    mode = str(getattr(mode, "value", mode))
    padding_mode = str(getattr(padding_mode, "value", padding_mode))
    away = getattr(inputs, "is_cuda", False)
    if away:
        # Blended on the host: there is no copy of the whole image beside the caller's.
        image = {name: each.cpu() for name, each in image.items()} if isinstance(image, dict) else image.cpu()
    made = engine.sliding_window(
        image, sizes, overlap=overlap, mode=mode, sigma_scale=sigma_scale, padding_mode=padding_mode, cval=cval, batch_size=sw_batch_size, argmax=argmax
    )
    if away:
        made = tuple(each.to(inputs.device) for each in made) if isinstance(made, tuple) else made.to(inputs.device)
    return made


class SlidingWindowInferer:
    """MONAI's `SlidingWindowInferer` over an engine: `inferer(inputs, network)`, or with the engine given beforehand."""

    def __init__(self, roi_size, sw_batch_size=1, overlap=0.25, mode="constant", engine=None, **options):
        self.roi_size, self.sw_batch_size, self.overlap, self.mode = roi_size, sw_batch_size, overlap, mode
        self.engine, self.options = engine, options

    def __call__(self, inputs, network=None, **options):
        options = {**self.options, **options}
        return sliding_window_inference(inputs, self.roi_size, self.sw_batch_size, network or self.engine, overlap=self.overlap, mode=self.mode, **options)
