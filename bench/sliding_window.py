#!/usr/bin/env python3
"""Sliding windows: Planish against MONAI with PyTorch on the same CPU, and two Ray workers against one.

    python3 bench/sliding_window.py            in an environment with Planish, torch, torchvision, onnxscript and monai
    python3 bench/sliding_window.py --ray      with `ray[data]` and zarr as well: the volume in blocks on one and two workers

The models are the UNets of the suite (`export_suite.py`), with its seeded weights. Against MONAI the sides take turns in
processes of their own with the same number of threads and the same arguments; the median is printed, and the largest distance
of their results in parts of the largest value. With Ray each worker has one thread; what starts before the first block (the
processes, the plan's opening) is not timed: a first run over a small volume is.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SIDES = ("monai", "planish")
#: Model, image or volume, window, overlap, windows at once.
CASES = (
    ("labelfree_unet2d_256", (1, 1, 1024, 1024), (256, 256), 0.5, 1),
    ("labelfree_unet2d_256", (1, 1, 1024, 1024), (256, 256), 0.25, 4),
    ("seg_unet3d_64", (1, 1, 96, 160, 160), (64, 64, 64), 0.5, 1),
)
#: FP32 on both sides: sums in another order through some twenty layers.
NEAR = 1e-4
WORKERS_ASKED = 1.8


def pixels(shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def work(side, args):
    """A process of one side: a run over the whole image for each line that it reads."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    name, shape, roi, overlap, batch = CASES[args.case]
    image = pixels(shape)
    if side == "monai":
        import export_suite
        import torch
        from monai.inferers import sliding_window_inference

        torch.set_num_threads(args.threads)
        model, tensor = export_suite.prepared(name).eval(), torch.from_numpy(image)

        def call():
            with torch.inference_mode():
                return sliding_window_inference(tensor, roi, batch, model, overlap=overlap, mode="gaussian").numpy()

    else:
        import planish

        engine = planish.load(args.plan, threads=args.threads)

        def call():
            return engine.sliding_window(image, roi=roi, overlap=overlap, mode="gaussian", batch_size=batch)

    call().astype(np.float32).tofile(args.output)
    print("ready", file=out, flush=True)
    for _ in sys.stdin:
        before = time.perf_counter()
        call()
        print(time.perf_counter() - before, file=out, flush=True)


def built(name, roi, batch, threads, folder):
    import export_suite
    import planish

    path = os.path.join(folder, f"{name}.onnx")
    if not os.path.exists(path):
        export_suite.export(name, path)
    plan = os.path.join(folder, f"{name}.{batch}.{threads}.plan")
    planish.build(path, shapes={"x": (batch, 1, *roi)}, threads=threads, device="cpu").save(plan)
    return plan


def against_monai(args, folder):
    holds = True
    print(f"{'model':<22}{'image':>18}{'windows':>13}{'overlap':>9}{'at once':>9}{'monai s':>10}{'planish s':>11}{'times':>7}{'distance':>10}")
    for case, (name, shape, roi, overlap, batch) in enumerate(CASES):
        plan = built(name, roi, batch, args.threads, folder)
        outputs = {side: os.path.join(folder, f"{case}.{side}") for side in SIDES}
        processes = {}
        for side in SIDES:
            command = [sys.executable, os.path.abspath(__file__), "--side", side, "--case", str(case), "--plan", plan]
            command += ["--output", outputs[side], "--threads", str(args.threads)]
            environment = {**os.environ, "PYTHONPATH": HERE, "OMP_NUM_THREADS": str(args.threads)}
            processes[side] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            processes[side].stdout.readline()
        times = {side: [] for side in SIDES}
        for turn in range(args.rounds):
            for side in SIDES if turn % 2 == 0 else SIDES[::-1]:
                processes[side].stdin.write("go\n")
                processes[side].stdin.flush()
                times[side].append(float(processes[side].stdout.readline()))
        for process in processes.values():
            process.stdin.close()
            process.wait()
        monai, planish = (statistics.median(times[side]) for side in SIDES)
        a, b = (np.fromfile(outputs[side], np.float32) for side in SIDES)
        far = float(np.abs(a - b).max() / np.abs(a).max())
        holds &= far <= NEAR and planish < monai
        sizes, window = ("x".join(map(str, each)) for each in (shape[2:], roi))
        print(f"{name:<22}{sizes:>18}{window:>13}{overlap:>9}{batch:>9}{monai:10.3f}{planish:11.3f}{monai / planish:7.2f}{far:10.1e}", flush=True)
    return holds


def with_ray(args, folder):
    import planish.ray
    import ray
    import zarr

    name, shape, roi, overlap, _ = CASES[2]
    plan = built(name, roi, 1, 1, folder)
    source, small = (os.path.join(folder, each) for each in ("in.zarr", "small.zarr"))
    for path, sizes in ((source, (128, 192, 256)), (small, (96, 64, 64))):
        zarr.create_array(path, shape=sizes, chunks=(64, 64, 64), dtype="f4")[:] = pixels(sizes)
    run = lambda path, target: planish.ray.sliding_window(plan, path, os.path.join(folder, target), roi, overlap=overlap, mode="gaussian", windows=2)  # noqa: E731
    seconds = {}
    for n_workers in (1, 2, 2, 1):
        ray.init(num_cpus=n_workers, log_to_driver=False, include_dashboard=False)
        run(small, "warm.zarr")
        before = time.perf_counter()
        n_blocks = run(source, f"{n_workers}.zarr")
        seconds.setdefault(n_workers, []).append(time.perf_counter() - before)
        ray.shutdown()
    one, two = (zarr.open_array(os.path.join(folder, f"{n}.zarr"), mode="r")[:].tobytes() for n in (1, 2))
    times = min(seconds[1]) / min(seconds[2])
    print(f"{name}, {n_blocks} blocks: one worker {seconds[1]} s, two {seconds[2]} s: {times:.2f} times (asked {WORKERS_ASKED}); same bytes: {one == two}")
    return times >= WORKERS_ASKED and one == two


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ray", action="store_true", help="two Ray workers against one")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    for hidden in ("--plan", "--output"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        return work(args.side, args)
    with tempfile.TemporaryDirectory() as folder:
        holds = with_ray(args, folder) if args.ray else against_monai(args, folder)
    print(f"holds: {'yes' if holds else 'NO'}")
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
