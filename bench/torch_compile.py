#!/usr/bin/env python3
"""torch.compile(model, backend="planish") against inductor (with freezing) and PyTorch as it is.

    python3 bench/torch_compile.py                    in an environment with Planish, torch and torchvision
    python3 bench/torch_compile.py --device cuda --dtype float16 --models resnet18_224

The models are those of the suite (`export_suite.py`), with its seeded weights. Each side is a process of its own with the
same number of threads; they take turns, and the median of all calls is printed. On a GPU inductor is `max-autotune`, and
times are of calls that are waited for one by one. A compiled module is called as users call it: with dynamo's guards.
Outputs are held against PyTorch's own, by the largest distance in parts of the largest value.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

from gpu_common import all_good, figure

HERE = os.path.dirname(os.path.abspath(__file__))
SIDES = ("eager", "inductor", "planish")
MODELS = ("resnet18_224", "mobilenet_v2_224", "bert_base_128", "labelfree_unet2d_256")
#: How many times as fast as inductor and PyTorch is asked, and how near outputs must be, in FP32 and below.
ASKED = {"inductor": 1.3, "eager": 1.5}
ASKED_CUDA = {"inductor": 2.0, "eager": 1.0}
NEAR = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


def work(side, name, args):
    """A process of one side: what a call takes, on demand."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import export_suite
    import torch

    torch.set_num_threads(args.threads)
    dtype = getattr(torch, args.dtype)
    model = export_suite.prepared(name)
    torch.manual_seed(7)
    x = export_suite.MODELS[name][1](args.batch)
    model = model.to(args.device, dtype)
    x = x.to(args.device, dtype if x.is_floating_point() else x.dtype)
    start = time.perf_counter()
    reports = ""
    if side == "inductor":
        import torch._inductor.config

        torch._inductor.config.freezing = True
        mode = "max-autotune" if args.device == "cuda" else None
        model = torch.compile(model, mode=mode)
    elif side == "planish":
        precision = {"float16": "fp16", "bfloat16": "bf16"}.get(args.dtype, "fp32")
        model = torch.compile(model, backend="planish", options={"precision": precision})

    def call():
        made = model(x)
        if args.device == "cuda":
            torch.cuda.synchronize()
        return made

    with torch.inference_mode():
        made = call()
        seconds = time.perf_counter() - start
        for _ in range(3):
            made = call()
        made.float().cpu().numpy().tofile(args.output)
        if side == "planish":
            import planish.torch

            reports = "; ".join(report.summary() for report in planish.torch.reports())
        print(json.dumps({"seconds": seconds, "report": reports}), file=out, flush=True)
        for line in sys.stdin:
            times, end = [], time.perf_counter() + float(line)
            while time.perf_counter() < end:
                before = time.perf_counter()
                call()
                times.append(time.perf_counter() - before)
            print(json.dumps(times), file=out, flush=True)


def distance(path, reference):
    """The largest distance of two files of f32 in parts of the largest value."""
    import numpy as np

    a, b = np.fromfile(path, np.float32), np.fromfile(reference, np.float32)
    return float(np.abs(a - b).max() / np.abs(b).max())


def row(name, args, folder):
    """The times of the sides on one model, and how far their outputs are from PyTorch's."""
    processes, told = {}, {}
    outputs = {side: os.path.join(folder, f"{name}.{side}") for side in SIDES}
    try:
        for side in SIDES:
            command = [sys.executable, os.path.abspath(__file__), "--side", side, "--models", name, "--output", outputs[side]]
            command += ["--threads", str(args.threads), "--device", args.device, "--dtype", args.dtype, "--batch", str(args.batch)]
            environment = {**os.environ, "PYTHONPATH": HERE, "OMP_NUM_THREADS": str(args.threads)}
            processes[side] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            told[side] = json.loads(processes[side].stdout.readline())
        times = {side: [] for side in SIDES}
        for turn in range(args.rounds):
            for side in SIDES if turn % 2 == 0 else SIDES[::-1]:
                processes[side].stdin.write(f"{args.block}\n")
                processes[side].stdin.flush()
                times[side] += json.loads(processes[side].stdout.readline())
    finally:
        for process in processes.values():
            process.stdin.close()
            process.wait()
    far = {side: distance(outputs[side], outputs["eager"]) for side in SIDES[1:]}
    return {side: statistics.median(list_) for side, list_ in times.items()}, far, told


def geomean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", choices=tuple(NEAR))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--block", type=float, default=1.0, help="seconds of a turn")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        return work(args.side, args.models, args)
    print(f"{'model':<22}" + "".join(f"{side + ' ms':>13}" for side in SIDES) + f"{'x inductor':>12}{'x eager':>9}{'distance':>11}{'inductor':>10}")
    faster, is_near = {"inductor": [], "eager": []}, True
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models.split(","):
            times, far, told = row(name, args, folder)
            for side, list_ in faster.items():
                list_.append(times[side] / times["planish"])
            is_near &= far["planish"] <= NEAR[args.dtype]
            print(
                f"{name:<22}" + "".join(f"{times[side] * 1e3:13.3f}" for side in SIDES)
                + f"{faster['inductor'][-1]:12.2f}{faster['eager'][-1]:9.2f}{far['planish']:11.1e}{far['inductor']:10.1e}"
                + f"   {told['planish']['report']}; first call {told['planish']['seconds']:.1f} s, inductor {told['inductor']['seconds']:.1f} s",
                flush=True,
            )  # fmt: skip
    asked = ASKED if args.device == "cpu" else ASKED_CUDA
    for side, list_ in faster.items():
        mean = geomean(list_)
        figure(f"torch.compile on {args.device}, {args.dtype}, times {side}", f">= {asked[side]}", f"{mean:.2f} ({len(list_)} models)", mean >= asked[side])
    figure(f"torch.compile on {args.device}, {args.dtype}, outputs", f"within {NEAR[args.dtype]:g}", "within" if is_near else "beyond", is_near)
    sys.exit(0 if all_good() else 1)


if __name__ == "__main__":
    main()
