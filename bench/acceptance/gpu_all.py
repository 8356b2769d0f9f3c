#!/usr/bin/env python3
"""All figures of the CUDA engine on one GPU, in one table.

    python3 bench/acceptance/gpu_all.py --work FOLDER                          everything, more than an hour
    python3 bench/acceptance/gpu_all.py --work FOLDER --only suite,pipeline    a few sections
    python3 bench/acceptance/gpu_all.py --list                                 the sections and what each runs
    python3 bench/acceptance/gpu_all.py --rehearse                             the same programs, small, on the CPU

`calls` and `dynamo` need the Python package installed (`pip install .`, or a wheel). Each section is a program of its own with a time limit; what it prints is shown as it comes, and its lines of figures
(`figure: NAME | ASKED | SEEN | yes`) are gathered. The table at the end has one line a figure; sections that were
ended or failed without a figure are in it too. Models, plans, timings and peers' times stay in the folder, so that a
second call takes them from there.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from gpu_common import ROOT, binary  # noqa: E402

BENCH = os.path.join(ROOT, "bench")


def script(name, *more):
    folder = BENCH if name == "gpu.py" else os.path.join(BENCH, "acceptance")
    return [sys.executable, os.path.join(folder, name), *more]


def scenarios(planish, args):
    """The scenarios one after another; each leaves its tables and its page in a folder of its own."""
    each = [f"{planish} demo --scenario {name} {os.path.join(args.work, name)} --device cuda"
            for name in ("generation", "microscopy", "resnet18", "classifier")]
    return ["bash", "-c", "set -e; " + "; ".join(f"SECONDS=0; {one}; echo {one.split()[3]}: $SECONDS s" for one in each)]


def sections(args):
    """Section -> (seconds that it may take, command); in the order in which plans are best made."""
    work = ["--work", args.work]
    device, xtask = "cuda", binary(args.xtask, "xtask") if not args.list else "xtask"
    precision = ["--precision", "fp16"]
    plan = os.path.join(args.work, "resnet18_224_16_fp16.plan")
    dynamic = [xtask, "dynamic", "resnet18", "--device", device, *precision, *work, "--timing-cache",
               os.path.join(args.work, "timings")]
    four = "resnet18_224:1,resnet18_224:16,labelfree_unet2d_256:1,minilm_128:1"
    if args.rehearse:
        fp32 = ["--device", "cpu", "--precision", "fp32"]
        quick = ["--build=--tune-level 0", "--duration", "100ms", "--no-tests", "--no-torch", *work, "--out", args.work]
        return {
            "suite": (120, script("gpu.py", "--rows", "cifar_cnn:32,resnet18_224:1", *fp32, *quick)),
            "own": (120, script("gpu.py", "--rows", "cifar_cnn:32,resnet18_224:1", "--own", *fp32, *quick)),
            "start": (120, script("first_result.py", *fp32, *work, "--build=--tune-level 0")),
            "transfers": (120, [xtask, "transfers", "--batch", "1", "--seconds", "0.2", "--tune-level", "0", *fp32]),
            "accuracy": (300, script("gpu_accuracy.py", "--models", "cifar_cnn", "--precisions", "fp32", "--jobs", "1",
                                     "--device", "cpu", *work)),
            "dynamic": (300, [xtask, "dynamic", "resnet18", "--rounds", "1", "--sizes", "1,2", "--tune-level", "0", *work]),
            "pipeline": (600, script("gpu_pipeline.py", *fp32, *work, "--build=--tune-level 0", "--iterations", "3",
                                     "--interleaved", "4", "--threads", "2", "--seconds", "0.5", "--no-torch")),
        }
    out = ["--out", args.out]
    return {
        "tests": (240, script("gpu.py", "--rows", "", "--no-torch", *out)),
        "suite": (420, script("gpu.py", "--no-tests", "--duration", "500ms", "--budget", "400", *work, *out)),
        "own": (300, script("gpu.py", "--own", "--no-tests", "--no-torch", "--duration", "500ms", "--budget", "280", *work,
                            *out)),
        "start": (90, script("first_result.py", *work)),
        "hgmma": (60, script("hgmma.py", *work)),
        "pipeline": (180, script("gpu_pipeline.py", *work)),
        "transfers": (60, [xtask, "transfers", plan]),
        "dynamic": (240, dynamic),
        "matrix": (240, script("gpu.py", "--rows", "matrix", "--torch", "fp32", "--no-tests", "--duration",
                               "200ms", "--build=--tune-level 1 --no-verify", "--tag", "matrix", "--budget", "220", *work, *out)),
        "accuracy": (360, script("gpu_accuracy.py", *work)),
        "beyond": (300, script("gpu.py", "--rows", "beyond", "--no-torch", "--no-tests", "--duration", "300ms", "--budget",
                               "280", *work, *out)),
        "batches": (540, script("gpu.py", "--rows", "batches", "--no-torch", "--no-tests", "--no-check", "--duration",
                                "300ms", "--build=--no-verify", "--budget", "520", *work, *out)),
        "int8": (540, script("gpu_int8.py", *work)),
        "fp8": (300, script("gpu_int8.py", "--low", "fp8", *work)),
        "bert_large": (540, script("gpu_bert_large.py", *work)),
        "recurrent": (180, script("gpu_recurrent.py")),
        "streaming": (180, script("gpu_streaming.py")),
        "scenarios": (540, scenarios(binary(args.planish) if not args.list else "planish", args)),
        "calls": (60, [sys.executable, os.path.join(BENCH, "python_calls.py"), "--device", "cuda"]),
        "dynamo": (540, [sys.executable, os.path.join(BENCH, "torch_compile.py"), "--device", "cuda", "--dtype", "float16",
                         "--rounds", "2"]),
        "compile": (480, script("gpu.py", "--rows", four, "--torch", "compile", "--no-tests", "--no-check", "--duration",
                                "200ms", "--budget", "460", "--compile-seconds", "115", *work, *out)),
    }


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="sections, separated by commas")
    parser.add_argument("--work", help="a folder that keeps what is made; a temporary one if not given")
    parser.add_argument("--xtask", help="the xtask binary")
    parser.add_argument("--planish", help="the planish binary")
    parser.add_argument("--out", default=os.environ.get("OUT") or os.path.join(ROOT, "bench", "results"))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--rehearse", action="store_true", help="small, on the CPU, to try the programs themselves")
    return parser.parse_args()


def run(name, seconds, command):
    """Runs a section, shows what it prints, and gives its figures: (name, asked, seen, ok)."""
    began, found = time.time(), []
    print(f"\n== {name} (at most {seconds} s)", flush=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
                          env={**os.environ, "PYTHONUNBUFFERED": "1"}, start_new_session=True) as child:
        ended = threading.Event()

        def end():
            ended.set()
            # The section's own processes, all in its session.
            os.killpg(child.pid, 9)

        clock = threading.Timer(seconds, end)
        clock.start()
        for line in child.stdout:
            print(line, end="", flush=True)
            if line.startswith("figure: "):
                parts = line.removeprefix("figure: ").rstrip().split(" | ")
                found.append(tuple(parts) if len(parts) == 4 else (line.strip(), "", "", "NO"))
        child.wait()
        clock.cancel()
    if ended.is_set():
        found.append((f"section {name}", "an end", f"ended after {seconds} s", "NO"))
    elif child.returncode and all(figure[3] == "yes" for figure in found):
        found.append((f"section {name}", "no error", f"exit {child.returncode}", "NO"))
    print(f"== {name} took {time.time() - began:.0f} s", flush=True)
    return found


def table(figures):
    widths = [max(len(figure[column]) for figure in figures) for column in range(4)]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(figure, widths)).rstrip() for figure in figures)


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        args.work = os.path.abspath(args.work or folder)
        known = sections(args)
        if args.list:
            for name, (seconds, command) in known.items():
                print(f"{name:<10} {seconds:>4} s  {' '.join(os.path.basename(part) or part for part in command[:1])} "
                      f"{' '.join(command[1:])}")
            return
        names = args.only.split(",") if args.only else list(known)
        if unknown := [name for name in names if name not in known]:
            sys.exit(f"no such sections: {', '.join(unknown)}; there are {', '.join(known)}")
        os.makedirs(args.work, exist_ok=True)
        os.makedirs(args.out, exist_ok=True)
        figures = []
        for name in names:
            figures += run(name, *known[name])
    shown = table([("figure", "asked", "seen", "ok"), *figures])
    print(f"\n{shown}")
    with open(os.path.join(args.out, "gpu_figures.txt"), "w") as file:
        file.write(shown + "\n")
    sys.exit(0 if figures and all(figure[3] == "yes" for figure in figures) else 1)


if __name__ == "__main__":
    main()
