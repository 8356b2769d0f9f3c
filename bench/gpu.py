#!/usr/bin/env python3
"""Runs the GPU tests, then times Planish in FP16 on one NVIDIA GPU against PyTorch and a stored TensorRT column.

    python3 bench/gpu.py                                   everything: tests, twelve rows, PyTorch beside them
    python3 bench/gpu.py --rows resnet18_224:1,minilm_128:1 --no-tests
    python3 bench/gpu.py --rows matrix --torch fp32        ResNet-18 at 224 to 512, batches 1, 8 and 16
    python3 bench/gpu.py --rows beyond,batches --no-torch  rows beyond the twelve; batches of 8 to 256, shares of the peak
    python3 bench/gpu.py --own                             with our own kernels alone; nothing but the driver mapped
    python3 bench/gpu.py --rows resnet18_224:1 --torch compile     torch.compile beside, which takes minutes
    python3 bench/gpu.py --build='--tune-level 1'          more arguments for `planish build`
    python3 bench/acceptance/gpu_all.py                               this and all other figures, in one table

Made for a machine without cargo and network: the binaries are looked for in target/carry (planish, and any
executable whose name starts with gpu, a test binary) and else where cargo puts them; models come from `planish zoo`
(--models FOLDER takes ONNX files instead); peers are those of the Python that runs this. Every row is built (or taken
from --work, where an earlier call left it), its output compared with the same model in FP32 on the CPU, and timed with
inputs and outputs on the device, launches recorded and replayed: medians, by the device's clock (`compute`) and by the
host's (`run`). A table goes to standard output, a CSV to $OUT or --out. `--device cpu --precision fp32` is a rehearsal.
"""

import argparse
import csv
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from gpu_common import (CARRY, DRIVERS, INPUTS, PRECISIONS, ROOT, TOLERANCE, all_good, binary, build_plan, call, figure,
                        geometric_mean, model_file, relative_l2, sizes, suite, torch_as_measured)

# Medians in ms on one H200, device-resident, CUDA graph, of TensorRT 8.6.0 with its own tactics only (no cuBLAS or
# cuDNN sources), FP16, from an opset-17 export.
TENSORRT_MS = {
    "resnet18_224:1": 0.153,
    "resnet18_224:16": 0.290,
    "labelfree_unet2d_256:1": 0.164,
    "seg_unet3d_64:1": 0.382,
    "mae3d_64:1": 0.277,
    "minilm_128:1": 0.168,
    "bert_base_128:1": 0.496,
    "gen_encoder_256:1": 0.437,
    "gen_unet_32:1": 0.424,
    "gen_decoder_32:1": 0.504,
    "mobilenet_v2_224:1": 0.194,
    "cifar_cnn:32": 0.081,
}
TENSORRT = "TensorRT 8.6.0, own tactics"
MATRIX = [f"resnet18_{size}:{batch}" for size in (224, 256, 384, 512) for batch in (1, 8, 16)]
BEYOND = ["vit_b_16_224:1", "convnext_tiny_224:1", "efficientnet_b0_224:1", "resnet50_224:1"]
BATCHES = [*(f"resnet50_224:{batch}" for batch in (8, 32, 64, 128, 256)), "bert_base_128:8", "bert_base_128:32",
           "labelfree_unet2d_256:32", "seg_unet3d_64:32"]

# What the figures to show ask for.
MIN_MEAN, MIN_MEAN_OWN, MIN_ROW = 1.0, 0.85, 0.8
MIN_TORCH_FP32 = 2.7
AGAINST_FP32 = ("resnet18_224:1", "labelfree_unet2d_256:1", "seg_unet3d_64:1", "mae3d_64:1", *MATRIX)
MAX_OVERHEAD_US = 10
# Of single rows in FP16: microseconds, samples a second of a model's best batch, shares of the peak, seconds of a build.
MAX_US = {"resnet18_224:1": 60, "bert_base_128:1": 270, "vit_b_16_224:1": 300, "convnext_tiny_224:1": 260,
          "efficientnet_b0_224:1": 180, "bert_base_128:32": 1400}
MIN_A_SECOND = {"resnet50_224": 55000}
MIN_PEAK_SHARE = {"labelfree_unet2d_256:32": 0.4, "seg_unet3d_64:32": 0.4}
MAX_BUILD_S = {"resnet18_224:1": 10, "resnet50_224:128": 30}
# 8192 x 8192 x 8192 in FP16 by cuBLASLt on one H200.
PEAK_TFLOP_S = 766

TORCH_SECONDS = 0.7
SEED = 7


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="suite", help="NAME:BATCH,…, `suite` (twelve rows), `matrix`, `beyond` or `batches`")
    parser.add_argument("--precision", default="fp16", choices=PRECISIONS)
    parser.add_argument("--planish", help="the planish binary")
    parser.add_argument("--models", help="a folder of ONNX files instead of `planish zoo`")
    parser.add_argument("--work", help="a folder that keeps models, plans, timings and PyTorch's times between calls")
    parser.add_argument("--build", default="", metavar="ARGS", help="more arguments for `planish build`")
    parser.add_argument("--tag", default="", help="tells plans in --work apart that were built with other arguments")
    parser.add_argument("--own", action="store_true", help="our own kernels alone, and a look at what is mapped")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--duration", default="1s", help="of one timing")
    parser.add_argument("--torch", default="fp32,fp16", help="which of fp32, fp16 and compile run beside")
    parser.add_argument("--compile-seconds", type=float, default=150, help="of torch.compile a row; then it is ended")
    parser.add_argument("--no-tests", action="store_true")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--no-check", action="store_true", help="leave the comparison with FP32 on the CPU out")
    parser.add_argument("--profile", action="store_true", help="write `planish profile` of every row beside the CSV")
    parser.add_argument("--budget", type=float, default=540, help="seconds; rows that no longer fit are left out")
    parser.add_argument("--out", default=os.environ.get("OUT") or os.path.join(ROOT, "bench", "results"))
    parser.add_argument("--peer", metavar="ROW", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.own:
        args.build, args.tag = f"{args.build} --tactic-sources own", args.tag or "own"
    named = {"suite": list(TENSORRT_MS), "matrix": MATRIX, "beyond": BEYOND, "batches": BATCHES}
    args.rows = [row for part in args.rows.split(",") for row in named.get(part, [part]) if row]
    if unknown := [row for row in args.rows if row.rpartition(":")[0] not in INPUTS]:
        parser.error(f"no such rows: {', '.join(unknown)}; models are {', '.join(INPUTS)}")
    args.torch = [] if args.no_torch else args.torch.split(",")
    return args


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
    figure("tests of kernels on the GPU", "all pass", f"{len(found)} binaries", good)
    return good


def distance(planish, args, name, batch, plan, work):
    """Relative L2 of the plan's outputs against FP32 on the CPU, on the same random input."""
    import numpy
    model, inputs = model_file(planish, work, name, args.models), sizes(name, batch)
    # What the CPU says is the same for every plan of the model.
    here = os.path.join(work, f"{name}_{batch}_cpu.npz")
    there = os.path.join(work, "gpu.npz")
    if not os.path.exists(here):
        partial = os.path.join(work, "cpu.npz")
        call([planish, "run", model, "--device", "cpu", "--shapes", inputs, "--random", str(SEED), "-o", partial,
              "--tune-level", "0"])
        os.replace(partial, here)
    call([planish, "run", plan, "--device", args.device, "--shapes", inputs, "--random", str(SEED), "-o", there])
    with numpy.load(here) as expected, numpy.load(there) as got:
        return max(relative_l2(got[key], expected[key]) for key in expected.files)


def bench(planish, args, plan):
    command = [planish, "bench", plan, "--device", args.device, "--duration", args.duration, "--json"]
    if args.device != "cpu":
        command += ["--no-transfers", "--spin"]
    return json.loads(call(command).stdout)


def torch_times(name, batch, what):
    """Medians of PyTorch, ms: FP32 eager; FP16, channels last where there are images, in a CUDA graph or compiled."""
    torch = torch_as_measured()

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

    make, example, _ = suite().MODELS[name]
    torch.manual_seed(SEED)
    model, example = make(), example(batch)
    seen = {}
    with torch.no_grad():
        model, x = model.cuda().eval(), example.cuda()
        if "fp32" in what:
            seen["torch_fp32_ms"] = median(lambda: model(x))
        torch.cuda.reset_peak_memory_stats()
        half = model.half()
        xh = x.half() if x.is_floating_point() else x
        if xh.dim() == 4 and name != "cifar_cnn":
            half, xh = half.to(memory_format=torch.channels_last), xh.to(memory_format=torch.channels_last)
        if "fp16" in what:
            seen["torch_fp16_graph_ms"] = median(graphed(lambda: half(xh)))
            seen["torch_peak_bytes"] = torch.cuda.max_memory_allocated()
        if "compile" in what:
            began = time.time()
            compiled = torch.compile(half, mode="max-autotune")
            for _ in range(3):
                compiled(xh)
            seen["torch_compile_s"] = time.time() - began
            seen["torch_compile_ms"] = median(lambda: compiled(xh))
    del model, half, x, xh
    torch.cuda.empty_cache()
    return seen


def end_with_parent():
    """Has the kernel end this process when the one that started it ends: a session of its own would outlive it."""
    import ctypes
    import signal
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def peers(args, row, work):
    """PyTorch's times of a row: from the folder, or measured; torch.compile in a process that can be ended."""
    kept = os.path.join(work, f"torch_{row.replace(':', '_')}.json")
    seen = {}
    if os.path.exists(kept):
        with open(kept) as file:
            seen = json.load(file)
    key = {"fp32": "torch_fp32_ms", "fp16": "torch_fp16_graph_ms", "compile": "torch_compile_ms"}
    missing = [what for what in args.torch if key[what] not in seen]
    name, _, batch = row.rpartition(":")
    if eager := [what for what in missing if what != "compile"]:
        seen.update(torch_times(name, int(batch), eager))
    if "compile" in missing:
        command = [sys.executable, os.path.abspath(__file__), "--peer", row]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                              preexec_fn=end_with_parent) as child:
            try:
                out, err = child.communicate(timeout=args.compile_seconds)
                line = (err.strip().splitlines() or ["no message"])[-1][:160]
                seen.update(json.loads(out.splitlines()[-1]) if child.returncode == 0 else {"torch_error": line})
            except subprocess.TimeoutExpired:
                # It compiles in processes of its own, which are in its session.
                os.killpg(child.pid, 9)
                child.communicate()
                seen["torch_error"] = f"torch.compile was ended after {args.compile_seconds:.0f} s"
    if missing:
        with open(kept, "w") as file:
            json.dump({key: value for key, value in seen.items() if key != "torch_error"}, file)
    return seen


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


def measure(planish, args, row, result, work):
    """Builds, times and checks one row."""
    name, _, batch = row.rpartition(":")
    plan, built = build_plan(planish, work, name, int(batch), args.precision, args.device, args.build, args.tag,
                             args.models)
    result["build_s"] = built["build_ms"] / 1e3
    result["build_kept"] = built.get("kept", False)
    result["steps"] = built["n_steps"]
    result["notes"] = " | ".join(built["notes"])
    timed = bench(planish, args, plan)
    for key in ["median_ms", "compute_ms", "std_ms", "gflop", "device_bytes", "arena_bytes", "weight_bytes"]:
        result[key] = timed.get(key)
    result["libraries"] = timed["libraries"]
    if not args.no_check:
        result["rel_l2"] = distance(planish, args, name, int(batch), plan, work)
        if not result["rel_l2"] <= TOLERANCE[args.precision]:
            raise RuntimeError(f"relative L2 {result['rel_l2']:.1e} against FP32")
    if args.profile:
        shown = call([planish, "profile", plan, "--device", args.device, "--top", "0"])
        with open(os.path.join(args.out, f"profile_{name}_{batch}.txt"), "w") as file:
            file.write(shown.stdout)


def main():
    args = arguments()
    if args.peer:
        name, _, batch = args.peer.rpartition(":")
        print(json.dumps(torch_times(name, int(batch), ["compile"])))
        return
    planish = binary(args.planish)
    began = time.time()
    print(f"machine   {machine(planish)}", flush=True)
    good = args.no_tests or run_tests()
    os.makedirs(args.out, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        work = args.work or folder
        os.makedirs(work, exist_ok=True)
        for row in args.rows:
            result = {"row": row, "precision": args.precision}
            result["tensorrt_ms"] = TENSORRT_MS.get(row) if args.precision == "fp16" and args.device != "cpu" else None
            rows.append(result)
            if time.time() - began > args.budget:
                result["error"] = "no time left"
                print_row(result)
                continue
            try:
                measure(planish, args, row, result, work)
            except (RuntimeError, subprocess.TimeoutExpired, OSError, KeyError, ValueError) as error:
                result["error"] = str(error)
            if args.torch:
                try:
                    result.update(peers(args, row, work))
                except Exception as error:  # a peer that cannot run takes nothing from the others
                    result["torch_error"] = f"{type(error).__name__}: {str(error)[:200]}"
            print_row(result)
    write_csv(rows, args)
    summary(rows, args)
    good = good and not any(row.get("error") for row in rows)
    sys.exit(0 if good and all_good() else 1)


def own(result):
    """What is compared: the device's own time of a run, or the host's where that is less (what lies between two events
    holds the gap before the first kernel, which a slow host makes long)."""
    return min((result[key] for key in ("compute_ms", "median_ms") if result.get(key)), default=None)


def peak_share(result):
    """The share of the peak that a row's arithmetic reaches, a multiply-add counted as two."""
    return result["gflop"] / own(result) / PEAK_TFLOP_S


PEERS = [("tensorrt_ms", "TRT8.6"), ("torch_fp16_graph_ms", "torch16g"), ("torch_compile_ms", "compile"),
         ("torch_fp32_ms", "torch32")]


def print_row(result):
    time_ms, parts = own(result), [f"{result['row']:<24}"]
    parts.append(f"compute {number(time_ms) or '-':>7} ms, run {number(result.get('median_ms')) or '-':>7}")
    for key, title in PEERS:
        if result.get(key) and time_ms:
            parts.append(f"{title} {number(result[key])} ({result[key] / time_ms:.2f}x)")
    if time_ms and result.get("gflop"):
        batch = int(result["row"].rpartition(":")[2])
        parts.append(f"{batch / time_ms * 1e3:.0f} a second, {100 * peak_share(result):.0f} % of {PEAK_TFLOP_S} TFLOP/s")
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
    keys = ["row", "precision", "compute_ms", "median_ms", "std_ms", "gflop", "tensorrt_ms", "torch_fp16_graph_ms", "torch_fp32_ms",
            "torch_compile_ms", "torch_compile_s", "rel_l2", "build_s", "steps", "weight_bytes", "arena_bytes",
            "device_bytes", "torch_peak_bytes", "libraries", "error", "torch_error", "notes"]
    if not rows:
        return
    # Rows that somebody picked do not take the place of the whole suite's.
    picked = "" if args.rows in (list(TENSORRT_MS), MATRIX, BEYOND + BATCHES) else "_rows"
    path = os.path.join(args.out, f"gpu_{args.precision}{'_' + args.tag if args.tag else ''}{picked}.csv")
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, keys, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    print(f"csv       {path}")


def single_rows(timed):
    """The figures that are asked of single rows."""
    for row in timed:
        name, seen = row["row"], 1e3 * own(row)
        if name in MAX_US:
            figure(f"FP16 {name}", f"<= {MAX_US[name]} us", f"{seen:.1f} us", seen <= MAX_US[name])
        if name in MIN_PEAK_SHARE:
            share = peak_share(row)
            figure(f"FP16 {name}, share of {PEAK_TFLOP_S} TFLOP/s", f">= {MIN_PEAK_SHARE[name]}", f"{share:.2f}",
                   share >= MIN_PEAK_SHARE[name])
        if name in MAX_BUILD_S and not row["build_kept"]:
            figure(f"FP16 {name}, build", f"<= {MAX_BUILD_S[name]} s", f"{row['build_s']:.1f} s",
                   row["build_s"] <= MAX_BUILD_S[name])
    for model, asked in MIN_A_SECOND.items():
        rates = {row["row"]: int(row["row"].rpartition(":")[2]) / own(row) * 1e3 for row in timed
                 if row["row"].rpartition(":")[0] == model}
        if len(rates) > 1:
            best = max(rates, key=rates.get)
            figure(f"FP16 {model} at its best batch", f">= {asked} a second", f"{rates[best]:.0f} ({best})",
                   rates[best] >= asked)


def summary(rows, args):
    """The figures that these rows are for."""
    timed = [row for row in rows if own(row) and not row.get("error")]
    what = "own kernels" if args.own else "all tactics"

    def ratios(key, wanted=None):
        return {row["row"]: row[key] / own(row) for row in timed
                if row.get(key) and (wanted is None or row["row"] in wanted)}

    # Figures are of the whole suite; of rows that somebody picked, only ratios are said.
    whole = set(TENSORRT_MS) <= set(args.rows)
    for key, title in [("tensorrt_ms", TENSORRT), ("torch_fp16_graph_ms", "PyTorch FP16, channels last, CUDA graph"),
                       ("torch_compile_ms", "torch.compile max-autotune FP16"), ("torch_fp32_ms", "PyTorch FP32, eager")]:
        if found := ratios(key):
            print(f"against   {title}: {geometric_mean(found.values()):.2f}x in geometric mean over {len(found)} rows, "
                  f"least {min(found.values()):.2f}x ({min(found, key=found.get)})")
    if whole and (found := ratios("tensorrt_ms")):
        least, n_asked = min(found, key=found.get), len(TENSORRT_MS)
        asked = MIN_MEAN_OWN if args.own else MIN_MEAN
        mean = geometric_mean(found.values())
        figure(f"FP16, {what}, against {TENSORRT}, mean of {n_asked} rows", f">= {asked}", f"{mean:.3f} ({len(found)} rows)",
               mean >= asked and len(found) == n_asked)
        if not args.own:
            figure(f"FP16, {what}, against {TENSORRT}, least row", f">= {MIN_ROW}", f"{found[least]:.3f} ({least})",
                   found[least] >= MIN_ROW)
    if found := ratios("torch_fp32_ms", AGAINST_FP32):
        least, n_asked = min(found, key=found.get), sum(row in AGAINST_FP32 for row in args.rows)
        figure(f"FP16 against PyTorch FP32 eager, least of {n_asked} rows", f">= {MIN_TORCH_FP32}",
               f"{found[least]:.2f} ({least}, {len(found)} rows)",
               found[least] >= MIN_TORCH_FP32 and len(found) == n_asked)
    if args.device != "cpu":
        beyond = {row["row"]: 1e3 * (row["median_ms"] - row["compute_ms"]) for row in timed
                  if row["row"].endswith(":1") and row.get("compute_ms")}
        if beyond and whole:
            most = max(beyond, key=beyond.get)
            figure(f"overhead of run at batch 1, most of {len(beyond)} rows", f"<= {MAX_OVERHEAD_US} us",
                   f"{beyond[most]:.1f} us ({most})", beyond[most] <= MAX_OVERHEAD_US)
    memory = {row["row"]: row["device_bytes"] / row["torch_peak_bytes"] for row in timed
              if row.get("device_bytes") and row.get("torch_peak_bytes")}
    if memory and whole:
        most = max(memory, key=memory.get)
        figure(f"device memory against PyTorch FP16's peak, most of {len(memory)} rows", "< 1",
               f"{memory[most]:.2f} ({most})", memory[most] < 1)
    if args.device != "cpu" and args.precision == "fp16" and not args.own:
        single_rows(timed)
    if args.own and timed:
        mapped = sorted({library for row in timed for library in row["libraries"]})
        figure("own kernels: libraries of CUDA that are mapped", "the driver's", " ".join(mapped) or "none",
               all(DRIVERS.match(library) for library in mapped) and (bool(mapped) or args.device == "cpu"))


if __name__ == "__main__":
    main()
