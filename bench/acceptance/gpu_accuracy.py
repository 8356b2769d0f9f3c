#!/usr/bin/env python3
"""How far plans and PyTorch are from PyTorch in float64, on the same weights and input, in every precision.

    python3 bench/acceptance/gpu_accuracy.py --work FOLDER                        all models, fp32, tf32, fp16, bf16
    python3 bench/acceptance/gpu_accuracy.py --models minilm_128,cifar_cnn --precisions fp16
    python3 bench/acceptance/gpu_accuracy.py --device cpu --precisions fp32 --models cifar_cnn

A model is made by bench/export_suite.py, run by PyTorch in float64 and in the precision, exported, built and run by
Planish: relative L2 of both against float64, and that of PyTorch in float64 with nothing but its weights rounded to the
precision, which no engine that stores such weights can be expected to beat by much. Asked for: at most 1.5 times
PyTorch's own error, and at most what the precision allows. Models are treated side by side in processes of their own;
times play no part here, so plans are built by the cost model (--build changes that), of our own kernels (by the cost
model a library's would be taken unseen) and without the self-check, which this is a stricter form of. Models whose
outputs are few numbers run on more images: the distance of ten numbers is chance.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from gpu_common import INPUTS, PRECISIONS, TOLERANCE, all_good, binary, build_plan, call, figure, relative_l2, suite  # noqa: E402

# Of PyTorch's own error in that precision.
MAX_RATIO = 1.5
# Images at a time, where it is not one.
BATCHES = {"cifar_cnn": 32}
SEED = 7


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(INPUTS))
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--work", help="a folder that keeps models and plans between calls")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--build", default="--tune-level 0 --no-verify --tactic-sources own", metavar="ARGS", help="for `planish build`")
    parser.add_argument("--planish", help="the planish binary")
    parser.add_argument("--jobs", type=int, default=6, help="models at a time")
    parser.add_argument("--seconds", type=float, default=240, help="for one model; what lasts longer is ended")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def torch_output(torch, model, x, precision, device):
    """The model's output in a precision, as float64."""
    allowed = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
    kind = {"f64": torch.float64, "fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16,
            "bf16": torch.bfloat16}[precision]
    model = model.to(device=device, dtype=kind)
    x = x.to(device)
    with torch.no_grad():
        return model(x.to(kind) if x.is_floating_point() else x).double().cpu().numpy()


def with_rounded_weights(torch, model, precision):
    """The model with its weights in the precision and all else exact: as near as whoever stores such weights can come."""
    with torch.no_grad():
        for weight in (weight for weight in model.parameters() if weight.dim() > 1):
            if precision == "tf32":
                # To the nearest number of 10 bits after the point, ties to even.
                bits = weight.data.float().view(torch.int32)
                bits = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF
                weight.data = bits.view(torch.float32)
            else:
                weight.data = weight.data.to(torch.float16 if precision == "fp16" else torch.bfloat16).float()
    return model


def one(args, name):
    """Prints one line of JSON for each precision of a model."""
    import copy

    import numpy
    import torch

    exporter = suite()
    model = exporter.prepared(name)
    path = os.path.join(args.work, f"{name}.onnx")
    if not os.path.exists(path):
        partial = f"{path}.{os.getpid()}"
        exporter.export(name, partial, model)
        os.replace(partial, path)
    torch.manual_seed(SEED)
    batch = BATCHES.get(name, 1)
    x = exporter.MODELS[name][1](batch)
    inputs = os.path.join(args.work, f"{name}.npz")
    numpy.savez(inputs, **{INPUTS[name][0]: x.numpy()})
    # Each precision from the first weights: converting back and forth would round them.
    exact = torch_output(torch, copy.deepcopy(model), x, "f64", args.device)
    planish = binary(args.planish)
    for precision in args.precisions.split(","):
        result = {"model": name, "precision": precision}
        if precision != "fp32":
            rounded = with_rounded_weights(torch, copy.deepcopy(model), precision)
            result["weights"] = relative_l2(torch_output(torch, rounded, x, "f64", args.device), exact)
        try:
            theirs = torch_output(torch, copy.deepcopy(model), x, precision, args.device)
            result["torch"] = relative_l2(theirs, exact)
        except Exception as error:  # a peer that cannot run takes nothing from the plan's own figure
            result["torch_error"] = f"{type(error).__name__}: {str(error)[:160]}"
        try:
            plan, _ = build_plan(planish, args.work, name, batch, precision, args.device, args.build, "accuracy",
                                 models=args.work, timings=False)
            output = os.path.join(args.work, f"{name}_{precision}_out.npz")
            call([planish, "run", plan, "--device", args.device, "--inputs", inputs, "-o", output])
            with numpy.load(output) as got:
                result["planish"] = relative_l2(got[got.files[0]], exact)
        except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as error:
            result["error"] = str(error)[:300]
        print(json.dumps(result), flush=True)


def start(args, name):
    """One model in a process of its own; gives its results."""
    command = [sys.executable, os.path.abspath(__file__), "--one", name, "--work", args.work, "--device", args.device,
               "--precisions", args.precisions, f"--build={args.build}"]
    if args.planish:
        command += ["--planish", args.planish]
    environment = {**os.environ, "OMP_NUM_THREADS": "4"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
        try:
            out, err = child.communicate(timeout=args.seconds)
            why = (err.strip().splitlines() or ["no message"])[-1][:200] if child.returncode else ""
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
            why = f"ended after {args.seconds:.0f} s"
    results = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    said = {result["precision"] for result in results}
    for precision in args.precisions.split(","):
        if precision not in said:
            results.append({"model": name, "precision": precision, "error": why or "no result"})
    return results


def is_good(result):
    ours, theirs = result.get("planish"), result.get("torch")
    return ours is not None and ours <= TOLERANCE[result["precision"]] and theirs is not None and ours <= MAX_RATIO * theirs


def print_result(result):
    ours, theirs = result.get("planish"), result.get("torch")
    parts = [f"{result['model']:<22} {result['precision']}"]
    parts.append(f"Planish {ours:.2e}" if ours is not None else "Planish -")
    parts.append(f"PyTorch {theirs:.2e}" if theirs is not None else "PyTorch -")
    if ours is not None and theirs:
        parts.append(f"{ours / theirs:.2f} x")
    if result.get("weights") is not None:
        parts.append(f"rounded weights alone {result['weights']:.2e}")
    parts += [f"{key}: {result[key]}" for key in ("error", "torch_error") if key in result]
    print(", ".join(parts) + ("" if is_good(result) else "  <<<"), flush=True)


def main():
    args = arguments()
    names = args.models.split(",")
    unknown = [name for name in names if name not in INPUTS]
    unknown += [name for name in args.precisions.split(",") if name not in PRECISIONS]
    if unknown:
        sys.exit(f"no such model or precision: {', '.join(unknown)}")
    if args.one:
        return one(args, args.one)
    began, results = time.time(), []
    with tempfile.TemporaryDirectory() as folder:
        # Apart from the zoo's models and plans, which have other weights.
        args.work = os.path.join(args.work or folder, "accuracy")
        os.makedirs(args.work, exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            for done in concurrent.futures.as_completed([pool.submit(start, args, name) for name in names]):
                for result in done.result():
                    results.append(result)
                    print_result(result)
    for precision in args.precisions.split(","):
        own = [result for result in results if result["precision"] == precision]
        known = [result for result in own if result.get("planish") is not None]
        worst = max(known, key=lambda result: result["planish"], default=None)
        seen = f"{worst['planish']:.1e} ({worst['model']}), {len(known)} of {len(own)} models" if worst else "nothing"
        figure(f"accuracy {precision}, relative L2", f"<= {TOLERANCE[precision]:.0e}", seen,
               len(known) == len(own) and worst["planish"] <= TOLERANCE[precision])
        both = [result for result in known if result.get("torch")]
        worst = max(both, key=lambda result: result["planish"] / result["torch"], default=None)
        seen = "nothing"
        if worst:
            seen = f"{worst['planish'] / worst['torch']:.2f} x ({worst['model']}), {len(both)} of {len(own)} models"
        figure(f"accuracy {precision}, against PyTorch's own error", f"<= {MAX_RATIO} x", seen,
               len(both) == len(own) and worst["planish"] / worst["torch"] <= MAX_RATIO)
    print(f"took      {time.time() - began:.0f} s")
    sys.exit(0 if all_good() else 1)


if __name__ == "__main__":
    main()
