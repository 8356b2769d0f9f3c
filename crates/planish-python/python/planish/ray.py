"""Planish on Ray: predictors for Ray Data, deployments for Ray Serve, and sliding windows over volumes larger than memory.

It needs Ray, which is not installed with Planish: `pip install 'ray[data,serve]'`; `sliding_window` also needs `zarr`.
"""

import functools
import itertools
import math
import os

import numpy as np

from . import errors
from ._planish import load

__all__ = ["Predictor", "blocks", "deployment", "map_batches", "sliding_window"]


def _lacking(package, what):
    return errors.Lacking(f"{what} takes {package}, which is not installed: pip install {package}")


def _ray():
    try:
        import ray
    except ImportError:
        raise _lacking("ray", "planish.ray") from None
    return ray


@functools.lru_cache(maxsize=4)
def _engine(path, device, threads, _stamp):
    """The engine of a plan, opened once in a process."""
    return load(path, device, threads=threads)


def _opened(path, device, threads):
    stamp = os.stat(path)
    return _engine(os.fspath(path), device, threads, (stamp.st_mtime_ns, stamp.st_size))


class Predictor:
    """What Ray Data's `map_batches` calls: an actor that opens a plan once, and runs it on the columns of batches.

        dataset.map_batches(planish.ray.Predictor, fn_constructor_args=("model.plan",), concurrency=2, num_cpus=1, batch_size=32)

    `columns` names the column of each input, `{"x": "image"}`; columns are called like inputs if not given. Batches larger
    than `batch_size` are cut, smaller ones are run as they are; a plan for one batch alone is filled up. The outputs are new
    columns; `keep` names those of the input that stay, all of them if not given.
    """

    def __init__(self, plan, *, device="auto", threads=1, batch_size=None, columns=None, keep=None):
        self.engine = _opened(plan, device, threads)
        self.columns = {info.name: (columns or {}).get(info.name, info.name) for info in self.engine.inputs}
        first = self.engine.inputs[0]
        #: The batch of a plan for one size alone.
        self.fixed = first.shape[0] if first.shape and isinstance(first.shape[0], int) else None
        self.batch_size = self.fixed or batch_size
        self.keep = keep

    def __call__(self, batch):
        feed = {}
        for info in self.engine.inputs:
            column = self.columns[info.name]
            if column not in batch:
                raise errors.WrongInputs(f"input `{info.name}` is looked for in the column `{column}`; the batch has {', '.join(batch)}")
            array = np.asarray(batch[column])
            if array.dtype == object:
                array = np.stack(list(array))
            feed[info.name] = np.ascontiguousarray(array, info.dtype)
        n = len(next(iter(feed.values())))
        size = self.batch_size or n
        parts = [self._run({name: array[start : start + size] for name, array in feed.items()}) for start in range(0, n, size)]
        kept = {name: values for name, values in batch.items() if self.keep is None or name in self.keep}
        outputs = {info.name: np.concatenate([part[info.name] for part in parts]) for info in self.engine.outputs} if parts else {}
        return {**kept, **outputs}

    def _run(self, feed):
        n = len(next(iter(feed.values())))
        if self.fixed is None or n == self.fixed:
            return self.engine.run(feed)
        filled = {name: np.concatenate([array, np.repeat(array[-1:], self.fixed - n, 0)]) for name, array in feed.items()}
        return {name: array[:n] for name, array in self.engine.run(filled).items()}


def map_batches(dataset, plan, *, concurrency=2, batch_size=32, num_cpus=1, num_gpus=0, **options):
    """A dataset with a plan's outputs: `concurrency` actors, each with an engine and its share of CPUs or GPUs.

    With `num_gpus`, plans run on the GPU that Ray gives the actor; else on `num_cpus` threads. `options` are those of
    `Predictor`.
    """
    device = "cuda" if num_gpus else "cpu"
    told = {"device": device, "threads": max(int(num_cpus), 1), "batch_size": batch_size, **options}
    share = {"num_gpus": num_gpus} if num_gpus else {"num_cpus": num_cpus}
    return dataset.map_batches(Predictor, fn_constructor_args=(os.fspath(plan),), fn_constructor_kwargs=told, concurrency=concurrency, batch_size=batch_size, **share)


def deployment(plan, *, max_batch_size=32, batch_wait_timeout_s=0.005, num_replicas=1, num_cpus=1, num_gpus=0, **options):
    """A deployment of Ray Serve that gathers requests to batches: `serve.run(planish.ray.deployment("model.plan"))`.

    A request is a dict of arrays by input without the batch axis, or the array of the only input; by HTTP, JSON of the same.
    Its answer is a dict of arrays by output, or lists by HTTP. `options` are those of `Predictor`.
    """
    try:
        from ray import serve
    except ImportError:
        raise _lacking("'ray[serve]'", "planish.ray.deployment") from None
    told = {"device": "cuda" if num_gpus else "cpu", "threads": max(int(num_cpus), 1), **options}
    share = {"num_gpus": num_gpus} if num_gpus else {"num_cpus": num_cpus}
    path = os.path.abspath(plan)

    @serve.deployment(name="planish", num_replicas=num_replicas, ray_actor_options=share)
    class Model:
        """A plan behind requests."""

        def __init__(self):
            self.predictor = Predictor(path, **told)

        @serve.batch(max_batch_size=max_batch_size, batch_wait_timeout_s=batch_wait_timeout_s)
        async def infer(self, requests):
            """Many requests in one run."""
            return _answers(self.predictor, requests)

        async def __call__(self, request):
            if hasattr(request, "json"):
                made = await self.infer(await request.json())
                return {name: array.tolist() for name, array in made.items()}
            return await self.infer(request)

    return Model.bind()


def _answers(predictor, requests):
    """An answer for each request of a batch."""
    inputs = predictor.engine.inputs
    feeds = [request if isinstance(request, dict) else {inputs[0].name: request} for request in requests]
    batch = {predictor.columns[info.name]: np.stack([np.asarray(feed[info.name], info.dtype) for feed in feeds]) for info in inputs}
    made = predictor(batch)
    return [{info.name: made[info.name][idx] for info in predictor.engine.outputs} for idx in range(len(requests))]


# Sliding windows in blocks.


def _starts(size, window, step):
    """Where windows begin along an axis: at multiples of the step, the last one moved back to end with the image."""
    if size <= window:
        return [0]
    return [min(idx * step, size - window) for idx in range(math.ceil((size - window) / step) + 1)]


def blocks(sizes, roi, overlap, windows):
    """The blocks of a volume: each as ranges of the volume that it fills, and of what it reads for that.

    A block reads all windows that touch it and no others, and begins and ends where windows do: the windows over what it
    reads are those of the whole volume, in the same order, so its elements are summed as on one machine. `windows` is how many
    steps of the grid a block has along each axis.

    >>> import planish.ray
    >>> planish.ray.blocks([10], [4], [0.5], [2])
    [([(0, 4)], [(0, 6)]), ([(4, 8)], [(2, 10)]), ([(8, 10)], [(6, 10)])]
    """
    axes = []
    for size, window, part, count in zip(sizes, roi, overlap, windows):
        window = min(window, size)
        step = max(int(window * (1 - part)), 1)
        starts = _starts(size, window, step)
        ranges = []
        for first in range(0, size, count * step):
            last = min(first + count * step, size)
            touching = [start for start in starts if start < last and start + window > first]
            ranges.append(((first, last), (touching[0], touching[-1] + window)))
        axes.append(ranges)
    return [([fills for fills, _ in each], [reads for _, reads in each]) for each in itertools.product(*axes)]


def _first(made, options):
    """The first output, with an axis for channels: labels have none."""
    made = made[0] if isinstance(made, tuple) else made
    return made[:, None] if options["argmax"] else made


def _block(plan, device, threads, source, target, fills, reads, options):
    """Reads a block's surroundings, runs over them, and writes the block. Writing it twice is the same as once."""
    import zarr

    volume, result = zarr.open_array(source, mode="r"), zarr.open_array(target, mode="r+")
    n_before = volume.ndim - len(reads)
    lead = (slice(None),) * n_before
    image = np.ascontiguousarray(volume[lead + tuple(slice(*each) for each in reads)])
    while image.ndim < len(reads) + 2:
        image = image[None]
    made = _first(_opened(plan, device, threads).sliding_window(image, **options), options)
    inside = tuple(slice(first - start, last - start) for (first, last), (start, _) in zip(fills, reads))
    result[(slice(None),) * 2 + tuple(slice(*each) for each in fills)] = made[(slice(None),) * 2 + inside]
    return [last - first for first, last in fills]


def sliding_window(plan, source, target, roi, *, overlap=0.25, mode="constant", sigma_scale=0.125, batch_size=1, argmax=False, windows=4, num_cpus=1, num_gpus=0, retries=-1, progress=None, dtype=None):
    """Runs over a volume in a zarr array, block by block on a Ray cluster, and writes a zarr array.

    `source` and `target` are paths that all nodes reach; the volume is `[N, C, …]`, `[C, …]` or pixels alone, at least a window
    large along each axis. The result is `[N, C, …]`, the same bytes as `engine.sliding_window` over the whole volume gives,
    with a chunk for each block of `windows` steps of the grid. A block whose worker dies is done again (`retries` times, -1 for
    as often as it takes); nothing else is. `progress` is a function that is told how many of the blocks are done, and of how
    many. Gives the number of blocks.
    """
    ray = _ray()
    try:
        import zarr
    except ImportError:
        raise _lacking("zarr", "planish.ray.sliding_window") from None
    path, source, target = os.path.abspath(plan), os.path.abspath(source), os.path.abspath(target)
    engine = _opened(path, "cuda" if num_gpus else "cpu", max(int(num_cpus), 1))
    if engine.inputs[0].shape is None:
        raise errors.WrongShape("the model takes images of any rank; sliding windows need to know it")
    n_pixels = len(engine.inputs[0].shape) - 2
    volume = zarr.open_array(source, mode="r")
    sizes = volume.shape[volume.ndim - n_pixels :]
    several = lambda value: list(value) if isinstance(value, (list, tuple)) else [value] * n_pixels  # noqa: E731
    roi, overlap, windows = several(roi), several(overlap), several(windows)
    for size, window in zip(sizes, roi):
        if size < window:
            raise errors.WrongShape(f"the volume has the sizes {tuple(sizes)}, a window {tuple(roi)}: use engine.sliding_window")
    tasks = blocks(sizes, roi, overlap, windows)
    options = {"roi": roi, "overlap": overlap, "mode": mode, "sigma_scale": sigma_scale, "batch_size": batch_size, "argmax": argmax}
    # One window says what the result has in front of its pixels, and of which type.
    probe = np.zeros([1, *engine.inputs[0].shape[1:2], *roi] if isinstance(engine.inputs[0].shape[1], int) else [1, 1, *roi], volume.dtype)
    made = _first(engine.sliding_window(probe, **options), options)
    if list(made.shape[2:]) != list(roi):
        raise errors.Unsupported("the model's results have other sizes than its windows; use engine.sliding_window")
    n_images = volume.shape[0] if volume.ndim == n_pixels + 2 else 1
    chunk = [min(count * max(int(window * (1 - part)), 1), size) for count, window, part, size in zip(windows, roi, overlap, sizes)]
    zarr.create_array(target, shape=(n_images, made.shape[1], *sizes), chunks=(n_images, made.shape[1], *chunk), dtype=dtype or made.dtype, overwrite=True)
    share = {"num_gpus": num_gpus} if num_gpus else {"num_cpus": num_cpus}
    work = ray.remote(_block).options(max_retries=retries, **share)
    device, threads = ("cuda" if num_gpus else "cpu"), max(int(num_cpus), 1)
    waiting = [work.remote(path, device, threads, source, target, fills, reads, options) for fills, reads in tasks]
    n_done = 0
    while waiting:
        done, waiting = ray.wait(waiting)
        ray.get(done)
        n_done += len(done)
        if progress is not None:
            progress(n_done, len(tasks))
    return len(tasks)
