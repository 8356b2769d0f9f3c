#!/usr/bin/env python3
"""Runs the GPU tests, then times Planish in FP16 on one NVIDIA GPU against PyTorch and a stored TensorRT column.

    python3 bench/gpu.py                                   everything: tests, twelve rows, PyTorch beside them
    python3 bench/gpu.py --rows resnet18_224:1,minilm_128:1 --no-tests
    python3 bench/gpu.py --build='--tactic-sources own'    more arguments for `planish build`

Made for a machine without cargo and network: the binaries are looked for in target/carry (planish, and any
executable whose name starts with gpu, a test binary) and else where cargo puts them; models come from `planish zoo`
(--models FOLDER takes ONNX files instead); peers are those of the Python that runs this. Every row is built, its
output compared with the same model in FP32 on the CPU, and timed with inputs and outputs on the device, launches
recorded and replayed: medians, by the device's clock (`compute`) and by the host's (`run`). A table goes to standard
output, a CSV to $OUT or --out.
"""

import argparse
import csv
import glob
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CARRY = os.path.join(ROOT, "target", "carry")

# Row: input and its sizes behind the batch; medians in ms on one H200, device-resident, CUDA graph, of TensorRT 8.6.0
# with its own tactics only (no cuBLAS or cuDNN sources), FP16, from an opset-17 export.
ROWS = {
    "resnet18_224:1": ("x", "3x224x224", 0.153),
    "resnet18_224:16": ("x", "3x224x224", 0.290),
    "labelfree_unet2d_256:1": ("x", "1x256x256", 0.164),
    "seg_unet3d_64:1": ("x", "1x64x64x64", 0.382),
    "mae3d_64:1": ("x", "1x64x64x64", 0.277),
    "minilm_128:1": ("ids", "128", 0.168),
    "bert_base_128:1": ("ids", "128", 0.496),
    "gen_encoder_256:1": ("image", "3x256x256", 0.437),
    "gen_unet_32:1": ("latent", "4x32x32", 0.424),
    "gen_decoder_32:1": ("latent", "4x32x32", 0.504),
    "mobilenet_v2_224:1": ("x", "3x224x224", 0.194),
    "cifar_cnn:32": ("x", "32x32x3", 0.081),
}
TENSORRT = "TensorRT 8.6.0, own tactics"

# Relative L2 of a plan against the model in FP32 on the CPU, by precision: what the figures to show ask for.
TOLERANCE = {"fp32": 1e-5, "tf32": 3e-3, "fp16": 5e-3, "bf16": 3e-2}
PRECISIONS = tuple(TOLERANCE)
TORCH_SECONDS = 0.7
SEED = 7


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help="rows as NAME:BATCH, separated by commas")
    parser.add_argument("--precision", default="fp16", choices=PRECISIONS)
    parser.add_argument("--planish", help="the planish binary")
    parser.add_argument("--models", help="a folder of ONNX files instead of `planish zoo`")
    parser.add_argument("--build", default="", metavar="ARGS", help="more arguments for `planish build`")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--duration", default="1s", help="of one timing")
    parser.add_argument("--no-tests", action="store_true")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--no-check", action="store_true", help="leave the comparison with FP32 on the CPU out")
    parser.add_argument("--profile", action="store_true", help="write `planish profile` of every row beside the CSV")
    parser.add_argument("--budget", type=float, default=540, help="seconds; rows that no longer fit are left out")
    parser.add_argument("--out", default=os.environ.get("OUT") or os.path.join(ROOT, "bench", "results"))
    return parser.parse_args()


def binary(given):
    for path in [given, os.path.join(CARRY, "planish"), os.path.join(ROOT, "target", "quick", "planish"),
                 os.path.join(ROOT, "target", "release", "planish")]:
        if path and os.access(path, os.X_OK):
            return path
    sys.exit("no planish binary; build one with `cargo build --profile quick -p planish-cli`, or give --planish")


def call(command, timeout=600):
    """Runs a command; gives what it printed, or raises with its last line of complaint."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        raise RuntimeError(f"{os.path.basename(command[0])} {command[1]}: {lines[-1][:300]} (exit {done.returncode})")
    return done


def run_tests():
    """Every test binary that was carried along; gives whether all passed."""
    found = sorted(path for path in glob.glob(os.path.join(CARRY, "gpu*")) if os.access(path, os.X_OK))
    if not found:
        print("tests     none carried in target/carry (gpu*)")
        return True
    good = True
    for path in found:
        began = time.time()
        done = subprocess.run([path, "--test-threads", "4"], capture_output=True, text=True, cwd=ROOT)
        results = [line for line in done.stdout.splitlines() if line.startswith("test result")]
        print(f"tests     {os.path.basename(path)}: {'; '.join(results) or 'no result'} ({time.time() - began:.0f} s)")
        if done.returncode != 0:
            good = False
            failed = [line for line in done.stdout.splitlines() if line.endswith("FAILED") and line.startswith("test ")]
            for line in failed[:20]:
                print(f"          {line}")
            print("\n".join((done.stdout + done.stderr).splitlines()[-25:]))
    return good


def build(planish, args, name, batch, folder):
    """The model's file, its plan's, and what the build said of itself."""
    if args.models:
        model = os.path.join(args.models, f"{name}.onnx")
    else:
        model = os.path.join(folder, f"{name}.onnx")
        if not os.path.exists(model):
            call([planish, "zoo", name, "-o", model])
    plan = os.path.join(folder, f"{name}_{batch}.plan")
    inputs = f"{ROWS[f'{name}:{batch}'][0]}:{batch}x{ROWS[f'{name}:{batch}'][1]}"
    command = [planish, "build", model, "-o", plan, "--device", args.device, "--precision", args.precision,
               "--shapes", inputs, "--timing-cache", os.path.join(folder, "timings"), "--json"] + shlex.split(args.build)
    done = call(command)
    notes = [line for line in done.stderr.splitlines() if line.startswith("note:")]
    return model, plan, inputs, json.loads(done.stdout), notes


def distance(planish, args, model, plan, inputs, folder):
    """Relative L2 of the plan's outputs against FP32 on the CPU, on the same random input."""
    import numpy
    here, there = os.path.join(folder, "cpu.npz"), os.path.join(folder, "gpu.npz")
    call([planish, "run", model, "--device", "cpu", "--shapes", inputs, "--random", str(SEED), "-o", here])
    call([planish, "run", plan, "--device", args.device, "--shapes", inputs, "--random", str(SEED), "-o", there])
    worst = 0.0
    with numpy.load(here) as expected, numpy.load(there) as got:
        for name in expected.files:
            want, have = expected[name].astype("f8"), got[name].astype("f8")
            norm = math.sqrt(float((want**2).sum())) or 1.0
            worst = max(worst, math.sqrt(float(((have - want) ** 2).sum())) / norm)
    return worst


def bench(planish, args, plan):
    done = call([planish, "bench", plan, "--device", args.device, "--no-transfers", "--spin", "--duration", args.duration,
                 "--json"])
    return json.loads(done.stdout)


def torch_times(name, batch):
    """Medians of PyTorch, ms: FP32 eager; FP16, channels last where there are images, in a CUDA graph."""
    import torch
    sys.path.insert(0, os.path.join(ROOT, "bench"))
    import export_suite
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False

    def median(work):
        for _ in range(10):
            work()
        torch.cuda.synchronize()
        times, end = [], time.time() + TORCH_SECONDS
        while time.time() < end:
            begin, done = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            work()
            done.record()
            done.synchronize()
            times.append(begin.elapsed_time(done))
        return statistics.median(times)

    def graphed(work):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay

    make, example, _ = export_suite.MODELS[name]
    torch.manual_seed(SEED)
    model, example = make(), example(batch)
    with torch.no_grad():
        model, x = model.cuda().eval(), example.cuda()
        fp32 = median(lambda: model(x))
        torch.cuda.reset_peak_memory_stats()
        half = model.half()
        xh = x.half() if x.is_floating_point() else x
        if xh.dim() == 4 and name != "cifar_cnn":
            half, xh = half.to(memory_format=torch.channels_last), xh.to(memory_format=torch.channels_last)
        fp16 = median(graphed(lambda: half(xh)))
        peak = torch.cuda.max_memory_allocated()
    del model, half, x, xh
    torch.cuda.empty_cache()
    return fp32, fp16, peak


def machine(planish):
    lines = []
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm", "--format=csv,noheader"]
        lines.append(call(query, 60).stdout.strip())
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        lines.append(f"nvidia-smi: {error}")
    lines.append(call([planish, "--version"]).stdout.strip())
    try:
        import torch
        lines.append(f"PyTorch {torch.__version__}")
    except ImportError:
        lines.append("no PyTorch")
    return "; ".join(lines)


def number(value, digits=3):
    return "" if value is None else f"{value:.{digits}f}"


def main():
    args = arguments()
    planish = binary(args.planish)
    began = time.time()
    print(f"machine   {machine(planish)}")
    good = args.no_tests or run_tests()
    rows, unknown = [], [row for row in args.rows.split(",") if row not in ROWS]
    if unknown:
        sys.exit(f"no such rows: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    os.makedirs(args.out, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for row in args.rows.split(","):
            name, batch = row.rsplit(":", 1)
            result = {"row": row, "precision": args.precision, "tensorrt_ms": ROWS[row][2] if args.precision == "fp16" else None}
            rows.append(result)
            if time.time() - began > args.budget:
                result["error"] = "no time left"
                continue
            try:
                model, plan, inputs, built, notes = build(planish, args, name, int(batch), folder)
                result["build_s"] = built["build_ms"] / 1e3
                result["steps"] = built["n_steps"]
                result["notes"] = " | ".join(notes)
                timed = bench(planish, args, plan)
                for key in ["median_ms", "compute_ms", "std_ms", "device_bytes", "arena_bytes", "weight_bytes"]:
                    result[key] = timed.get(key)
                if not args.no_check:
                    result["rel_l2"] = distance(planish, args, model, plan, inputs, folder)
                    good &= result["rel_l2"] <= TOLERANCE[args.precision]
                if args.profile:
                    shown = call([planish, "profile", plan, "--device", args.device, "--top", "0"])
                    with open(os.path.join(args.out, f"profile_{name}_{batch}.txt"), "w") as file:
                        file.write(shown.stdout)
            except (RuntimeError, subprocess.TimeoutExpired, OSError, KeyError, ValueError) as error:
                result["error"] = str(error)
                good = False
            if not args.no_torch:
                try:
                    result["torch_fp32_ms"], result["torch_fp16_graph_ms"], result["torch_peak_bytes"] = torch_times(name, int(batch))
                except Exception as error:  # a peer that cannot run takes nothing from the others
                    result["torch_error"] = f"{type(error).__name__}: {str(error)[:200]}"
            print_row(result)
    write_csv(rows, args)
    summary(rows, args)
    sys.exit(0 if good else 1)


def own(result):
    """What is compared: the device's own time of a run, else the host's."""
    return result.get("compute_ms") or result.get("median_ms")


def print_row(result):
    time_ms, parts = own(result), [f"{result['row']:<24}"]
    parts.append(f"compute {number(time_ms) or '-':>7} ms, run {number(result.get('median_ms')) or '-':>7}")
    for key, title in [("tensorrt_ms", "TRT8.6"), ("torch_fp16_graph_ms", "torch16g"), ("torch_fp32_ms", "torch32")]:
        if result.get(key) and time_ms:
            parts.append(f"{title} {number(result[key])} ({result[key] / time_ms:.2f}x)")
    if result.get("rel_l2") is not None:
        parts.append(f"L2 {result['rel_l2']:.1e}")
    if result.get("build_s"):
        parts.append(f"built {result['build_s']:.0f} s")
    for key in ["error", "torch_error"]:
        if result.get(key):
            parts.append(f"{key}: {result[key]}")
    print(", ".join(parts), flush=True)
    if result.get("notes"):
        print(f"    {result['notes'][:600]}", flush=True)


def write_csv(rows, args):
    keys = ["row", "precision", "compute_ms", "median_ms", "std_ms", "tensorrt_ms", "torch_fp16_graph_ms", "torch_fp32_ms",
            "rel_l2", "build_s", "steps", "weight_bytes", "arena_bytes", "device_bytes", "torch_peak_bytes", "error",
            "torch_error", "notes"]
    path = os.path.join(args.out, f"gpu_{args.precision}.csv")
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, keys, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    print(f"csv       {path}")


def summary(rows, args):
    for key, title in [("tensorrt_ms", TENSORRT), ("torch_fp16_graph_ms", "PyTorch FP16, channels last, CUDA graph"),
                       ("torch_fp32_ms", "PyTorch FP32, eager")]:
        ratios = [row[key] / own(row) for row in rows if row.get(key) and own(row)]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"against   {title}: {mean:.2f}x in geometric mean over {len(ratios)} rows, least {min(ratios):.2f}x")


if __name__ == "__main__":
    main()
