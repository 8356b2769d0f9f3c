"""What the programs that measure on a GPU share: where binaries are, how models become plans, how a figure is said.

A figure is one line, `figure: NAME | ASKED | SEEN | yes` (or `NO`), as `cargo xtask` prints them too, so that
bench/acceptance/gpu_all.py gathers the lines of all programs into one table.
"""

import argparse
import json
import math
import os
import re
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench"))
from suite import INPUTS  # noqa: E402

CARRY = os.path.join(ROOT, "target", "carry")

# Relative L2 of a plan against the model in more than its precision: what the figures to show ask for.
TOLERANCE = {"fp32": 1e-5, "tf32": 3e-3, "fp16": 5e-3, "bf16": 3e-2}
PRECISIONS = tuple(TOLERANCE)

# The driver's own libraries, which a plan of our own kernels may map.
DRIVERS = re.compile(r"^(libcuda(debugger)?\.so|libnvidia-)")

_all_good = True


def figure(name, asked, seen, ok):
    """Says one figure, at once."""
    global _all_good
    _all_good = _all_good and bool(ok)
    print(f"figure: {name} | {asked} | {seen} | {'yes' if ok else 'NO'}", flush=True)


def all_good():
    return _all_good


def binary(given=None, name="planish"):
    """The binary that was given, carried along in target/carry, or built by cargo."""
    for path in [given, os.path.join(CARRY, name), os.path.join(ROOT, "target", "quick", name),
                 os.path.join(ROOT, "target", "release", name)]:
        if path and os.access(path, os.X_OK):
            return path
    package = "planish-cli" if name == "planish" else name
    sys.exit(f"no {name} binary; build one with `cargo build --profile quick -p {package}`")


def call(command, timeout=600):
    """Runs a command; gives what it printed, or raises with its last line of complaint."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        raise RuntimeError(f"{os.path.basename(command[0])} {command[1]}: {lines[-1][:300]} (exit {done.returncode})")
    return done


def sizes(name, batch):
    """The argument of --shapes."""
    given, rest = INPUTS[name]
    return f"{given}:{batch}x{rest}"


def model_file(planish, work, name, models=None):
    """The model's ONNX file: from the folder that was given, or written by `planish zoo`."""
    if models:
        return os.path.join(models, f"{name}.onnx")
    path = os.path.join(work, f"{name}.onnx")
    if not os.path.exists(path):
        # Under another name first, so that a program that is stopped leaves no half of one.
        call([planish, "zoo", name, "-o", f"{path}.part"])
        os.replace(f"{path}.part", path)
    return path


def plan_parser(description):
    """The arguments of programs that build plans by themselves."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", help="a folder that keeps models, plans and times between calls")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--build", default="", metavar="ARGS", help="more arguments for `planish build`")
    parser.add_argument("--planish", help="the planish binary")
    parser.add_argument("--xtask", help="the xtask binary")
    return parser


def build_plan(planish, work, name, batch, precision, device, more="", tag="", models=None, timings=True, timeout=600):
    """The plan of a model, built unless the folder has it, and what its build said of itself."""
    tag = f"_{tag}" if tag else ""
    plan = os.path.join(work, f"{name}_{batch}_{precision}{tag}.plan")
    said = f"{plan}.json"
    if os.path.exists(plan) and os.path.exists(said):
        with open(said) as file:
            return plan, {**json.load(file), "kept": True}
    model = model_file(planish, work, name, models)
    command = [planish, "build", model, "-o", plan, "--device", device, "--precision", precision,
               "--shapes", sizes(name, batch), "--json"] + shlex.split(more)
    if timings:
        command += ["--timing-cache", os.path.join(work, "timings")]
    done = call(command, timeout)
    built = json.loads(done.stdout)
    built["notes"] = [line for line in done.stderr.splitlines() if line.startswith("note:")]
    with open(said, "w") as file:
        json.dump(built, file)
    return plan, built


def relative_l2(got, want):
    """Of two arrays of numpy, in f64; infinite where one has no finite number."""
    got, want = got.astype("f8"), want.astype("f8")
    if got.shape != want.shape:
        raise ValueError(f"an output is {got.shape}, not {want.shape}")
    norm = math.sqrt(float((want**2).sum()))
    distance = math.sqrt(float(((got - want) ** 2).sum()))
    ratio = distance / norm if norm > 0 else math.inf
    return ratio if math.isfinite(ratio) else math.inf


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def torch_as_measured():
    """PyTorch as it is measured: exact f32 products, cuDNN's own search for algorithms."""
    import torch
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return torch


def suite():
    """bench/export_suite.py as a module."""
    sys.path.insert(0, os.path.join(ROOT, "bench"))
    import export_suite
    return export_suite
