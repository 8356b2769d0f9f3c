"""`python -m planish.exporter`: a model to a plan with the flags that exporters of microscopy and medical imaging have.

    python -m planish.exporter model.onnx --output model.plan --precision fp16 --input-shape 1 1 256 256 --dynamic-shapes \\
        --min-batch 1 --opt-batch 8 --max-batch 32 --workspace-size 4 --benchmark
    python -m planish.exporter package.models:UNet --ckpt last.ckpt --input-shape 1 1 256 256 --output model.plan
"""

import argparse
import glob
import os
import sys
import time

import numpy as np

from . import build, errors

_EXTENSIONS = (".npy", ".npz", ".tif", ".tiff")


def _parser():
    parser = argparse.ArgumentParser(prog="python -m planish.exporter", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="an ONNX file, or package.module:factory of a PyTorch module")
    parser.add_argument("--ckpt", help="weights of the module: a checkpoint of Lightning's, or a state dict")
    parser.add_argument("--output", "-o", help="the plan; beside the model if not given")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32", "fp16", "bf16", "int8", "fp8"])
    parser.add_argument("--input-shape", type=int, nargs="+", metavar="SIZE", help="sizes of the first input, the batch first")
    parser.add_argument("--dynamic-shapes", action="store_true", help="any batch from --min-batch to --max-batch")
    parser.add_argument("--min-batch", type=int, default=1)
    parser.add_argument("--opt-batch", type=int, default=None)
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--workspace-size", type=float, metavar="GB", help="the most memory that one kernel may ask for")
    parser.add_argument("--calibration-data", metavar="PATH", help="a folder of .npy, .npz or .tif files, or one file; for int8 and fp8")
    parser.add_argument("--num-calibration-samples", type=int, default=100)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--benchmark", action="store_true", help="times the plan")
    parser.add_argument("--benchmark-iterations", type=int, default=100)
    return parser


def samples(path, shape, most):
    """Arrays of a folder's files, or of one, each with the batch axis and the type of the model's input."""
    names = sorted(name for name in glob.glob(os.path.join(path, "*")) if name.lower().endswith(_EXTENSIONS)) if os.path.isdir(path) else [path]
    if not names:
        raise errors.FileError(f"{path} has no {', '.join(_EXTENSIONS)} files")
    count = 0
    for name in names:
        for array in _arrays(name):
            for sample in _batched(array, shape):
                if count == most:
                    return
                count += 1
                yield sample


def _arrays(name):
    if name.lower().endswith(".npy"):
        return [np.load(name, mmap_mode="r")]
    if name.lower().endswith(".npz"):
        with np.load(name) as file:
            return [file[key] for key in file]
    from .imaging import _tifffile

    return [_tifffile().imread(name)]


def _batched(array, shape):
    """One sample after another, with a batch of one."""
    rank = len(shape)
    if array.ndim == rank - 2:
        array = array[None, None]
    elif array.ndim == rank - 1:
        array = array[None]
    if array.ndim != rank:
        raise errors.WrongShape(f"a sample for calibration has the sizes {array.shape}, the model takes {tuple(shape)}")
    for idx in range(array.shape[0]):
        yield np.ascontiguousarray(array[idx : idx + 1], np.float32)


def main(arguments=None):
    """Builds the plan; gives the exit code."""
    args = _parser().parse_args(arguments)
    try:
        return _run(args)
    except (errors.Error, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(args):
    model, name = _model(args)
    first = model.inputs[0]
    if first.shape is None:
        raise errors.WrongShape(f"input `{first.name}` may have any rank; export it with sizes")
    shape = args.input_shape or [size if isinstance(size, int) else 1 for size in first.shape]
    if len(shape) != len(first.shape):
        raise errors.BadOption(f"--input-shape has {len(shape)} sizes, input `{first.name}` {len(first.shape)}")
    options = {"precision": args.precision, "device": args.device, "threads": args.threads, "progress": True}
    if args.workspace_size:
        options["workspace"] = int(args.workspace_size * 2**30)
    is_open = not isinstance(first.shape[0], int)
    if args.dynamic_shapes and not is_open:
        raise errors.BadOption(f"--dynamic-shapes: the batch of `{first.name}` is fixed to {first.shape[0]} in the model")
    if args.dynamic_shapes:
        usual = min(max(args.opt_batch or shape[0], args.min_batch), args.max_batch)
        options["profiles"] = {first.name: [[batch, *shape[1:]] for batch in (args.min_batch, usual, args.max_batch)]}
    elif any(not isinstance(size, int) for size in first.shape) and args.input_shape:
        options["shapes"] = {first.name: shape}
    if args.precision in ("int8", "fp8"):
        if not args.calibration_data:
            raise errors.BadOption(f"--precision {args.precision} needs --calibration-data")
        options["calib"] = samples(args.calibration_data, shape, args.num_calibration_samples)
    plan = build(model, **options)
    output = args.output or f"{name}.plan"
    plan.save(output)
    print(f"{output}: {os.path.getsize(output) / 1e6:.1f} MB, {len(plan.steps)} steps, {args.precision}, {'checked' if plan.is_checked else 'not checked'}")
    for note in plan.notes:
        print(f"note: {note}")
    if args.benchmark:
        _benchmark(plan, args, shape)
    return 0


def _model(args):
    from ._planish import Model

    if ":" in os.path.basename(args.model) and not os.path.exists(args.model):
        from .torch import from_checkpoint, model_of

        if not args.input_shape:
            raise errors.BadOption("a module takes --input-shape: the sizes of an example")
        import torch

        module = from_checkpoint(args.model, args.ckpt)
        batch = ({0: torch.export.Dim("batch")},) if args.dynamic_shapes else None
        # A batch of one would be taken for a size that is always so.
        example = torch.zeros([max(args.input_shape[0], 2) if args.dynamic_shapes else args.input_shape[0], *args.input_shape[1:]])
        return model_of(module, (example,), batch), args.model.rpartition(":")[2]
    if args.ckpt:
        raise errors.BadOption("--ckpt is for a module, as in package.module:factory; an ONNX file has its weights")
    return Model(args.model), os.path.splitext(args.model)[0]


def _benchmark(plan, args, shape):
    engine = plan.engine(args.device, threads=args.threads)
    batch = args.opt_batch if args.dynamic_shapes and args.opt_batch else shape[0]
    feed = {info.name: np.zeros([batch, *shape[1:]] if idx == 0 else [size if isinstance(size, int) else 1 for size in info.shape], info.dtype) for idx, info in enumerate(engine.inputs)}
    for _ in range(10):
        engine.run(feed)
    times = []
    for _ in range(args.benchmark_iterations):
        start = time.perf_counter()
        engine.run(feed)
        times.append(1e3 * (time.perf_counter() - start))
    times.sort()
    median = times[len(times) // 2]
    print(f"{args.benchmark_iterations} runs of batch {batch}: median {median:.3f} ms, least {times[0]:.3f}, p99 {times[min(len(times) - 1, len(times) * 99 // 100)]:.3f}, {1e3 * batch / median:.1f} images/s")


if __name__ == "__main__":
    sys.exit(main())
