#!/usr/bin/env python3
"""Runs compute-sanitizer over every family of GPU kernels and prints what each tool found.

    python3 bench/acceptance/sanitize.py                          memcheck, racecheck, initcheck, synccheck; 12 runs a family
    python3 bench/acceptance/sanitize.py --tools racecheck --families wconv,wgemm --most 40

Made for a machine without cargo: the test binary is target/carry/gpu* (`cargo test -p planish-cuda --profile quick
--test gpu --no-run` builds it), and so is planish, if it is there. Every family is a process of its own, --jobs of them
at once. A first pass without the sanitizer compiles all kernels into a folder that the others read, and says what each
family does unwatched. The table has a row a family and a column a tool: errors (and, of races, warnings), `-` where a
tool is not run. Full reports go to --out, those that are not clean in one file to $OUT, if that is set. Exits 1 if any tool found anything or did not end.

What is left out, and why:
- The test that asks for more memory than there is (`the_device_layer_keeps_its_promises`): its refused allocation is
  what it wants, and memcheck reports every refused call.
- Families that call cuBLASLt and cuDNN run under memcheck alone, and the plan is built of our own kernels: races inside
  of NVIDIA's kernels are not ours to mend (racecheck reports some in cuBLASLt's), and memcheck sees what we hand
  to them. Their refused calls are not reported (--report-api-errors no): both probe what
  a device can do by calls that fail.
- Under initcheck outputs and scratch memory are left as they were allocated (PLANISH_GPU_BARE), else nothing would be
  uninitialized, and operands lie alone.
"""

import argparse
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CARRY = os.path.join(ROOT, "target", "carry")
TOOLS = {
    "memcheck": ["--leak-check", "no"],
    "racecheck": ["--racecheck-report", "all"],
    "initcheck": [],
    "synccheck": [],
}
LIBRARIES = ("cublaslt", "cudnn")
# A model small enough to be watched, for the parts that kernels alone do not show: captured graphs, transfers, arenas.
MODEL, SHAPE = "cifar_cnn", "x:2x32x32x3"
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (error|hazard)s?(?: displayed)?(?: \((\d+) errors?, (\d+) warnings?\))?")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--families", help="by commas; all that the test binary knows if not given")
    parser.add_argument("--most", type=int, default=12, help="runs a family")
    parser.add_argument("--jobs", type=int, default=8, help="processes at once")
    parser.add_argument("--timeout", type=float, default=100, help="seconds that one process may take")
    parser.add_argument("--budget", type=float, default=280, help="seconds; what has not begun by then is left out")
    parser.add_argument("--binary", help="the test binary")
    parser.add_argument("--sanitizer", default="compute-sanitizer")
    parser.add_argument("--out", default=os.path.join(ROOT, "target", "sanitize"), help="a folder for full reports")
    return parser.parse_args()


def executables(pattern):
    return sorted(path for path in glob.glob(pattern) if os.access(path, os.X_OK) and not path.endswith(".d"))


def find_binary(given):
    found = [given] if given else executables(os.path.join(CARRY, "gpu*")) or sorted(
        executables(os.path.join(ROOT, "target", "quick", "deps", "gpu-*")), key=os.path.getmtime, reverse=True)
    if not found:
        sys.exit("no test binary; build one with `cargo test -p planish-cuda --profile quick --test gpu --no-run`")
    return found[0]


def families(binary):
    """What the binary says that it knows."""
    done = subprocess.run([binary, "--exact", "families_are_listed", "--nocapture"], capture_output=True, text=True)
    names = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("family ")]
    if not names:
        sys.exit(f"{binary} lists no families: {done.stderr.strip()[-300:]}")
    return names


def environment(args, family, tool):
    values = {**os.environ, "PLANISH_KERNEL_CACHE": os.path.join(args.out, "kernels"), "PLANISH_GPU_MOST": str(args.most),
              "PLANISH_GPU_CHILD": f"{family}:0"}
    if tool == "initcheck":
        values["PLANISH_GPU_BARE"] = "1"
    return values


def commands(args, binary, planish, subject):
    """What runs a family, or the model, unwatched."""
    if subject != "plan":
        return [binary, "--exact", "one_family", "--nocapture", "--test-threads", "1"]
    return [planish, "bench", os.path.join(args.out, f"{MODEL}.onnx"), "--device", "cuda", "--precision", "fp16",
            "--shapes", SHAPE, "--no-cache", "--tactic-sources", "own", "--tune-level", "0", "--no-verify", "--contexts", "2",
            "--warmup", "0s", "--duration", "0s", "--iterations", "6"]


def watch(args, command, subject, tool, end):
    """Runs one process; gives its verdict in a word, and whether that is good."""
    left = end - time.time()
    if left < 5:
        return "late", False
    prefix = []
    if tool:
        api = "no" if subject in LIBRARIES else "explicit"
        prefix = [args.sanitizer, "--tool", tool, "--print-limit", "40", "--error-exitcode", "9", "--report-api-errors", api,
                  *TOOLS[tool]]
        if tool != "memcheck":
            at = prefix.index("--report-api-errors")
            del prefix[at:at + 2]
    log = os.path.join(args.out, f"{subject}.{tool or 'plain'}.txt")
    with open(log, "w") as file:
        try:
            done = subprocess.run(prefix + command, stdout=file, stderr=subprocess.STDOUT, timeout=min(args.timeout, left),
                                  env=environment(args, subject, tool), cwd=ROOT)
        except subprocess.TimeoutExpired:
            return "timeout", False
    with open(log, errors="replace") as file:
        text = file.read()
    if not tool:
        counted = re.search(rf"\| {subject}: (\d+) right, (\d+) wrong", text)
        if subject == "plan":
            return ("ran" if done.returncode == 0 else f"exit {done.returncode}"), done.returncode == 0
        return (f"{counted[1]} right, {counted[2]} wrong" if counted else f"exit {done.returncode}"), done.returncode == 0
    summaries = SUMMARY.findall(text)
    if not summaries:
        return f"exit {done.returncode}", False
    errors = sum(int(split or total) for total, _, split, _ in summaries)
    warnings = sum(int(warned or 0) for *_, warned in summaries)
    ended = subject == "plan" or "@ done" in text
    word = str(errors) + (f"+{warnings}w" if warnings else "") + ("" if ended else " cut")
    return word, errors == 0 and warnings == 0 and ended and done.returncode == 0


def first_lines(args, subject, tool):
    """What a report says first."""
    with open(os.path.join(args.out, f"{subject}.{tool}.txt"), errors="replace") as file:
        lines = [line.rstrip() for line in file if line.startswith("=========") or "FAILED" in line]
    skipped = ("========= COMPUTE-SANITIZER", "=========     Host Frame", "=========         in ", "=========     Saved host")
    lines = [line for line in lines if not line.startswith(skipped) and len(line) > 10]
    return lines[:6]


def main():
    args = arguments()
    began = time.time()
    end = began + args.budget
    os.makedirs(args.out, exist_ok=True)
    binary = find_binary(args.binary)
    planish = next(iter(executables(os.path.join(CARRY, "planish")) or executables(os.path.join(ROOT, "target", "quick", "planish"))), None)
    known = families(binary)
    subjects = args.families.split(",") if args.families else known + (["plan"] if planish else [])
    tools = args.tools.split(",")
    if not shutil.which(args.sanitizer):
        sys.exit(f"{args.sanitizer} is not here; it comes with the CUDA toolkit")
    if planish and "plan" in subjects:
        subprocess.run([planish, "zoo", MODEL, "-o", os.path.join(args.out, f"{MODEL}.onnx")], check=True, capture_output=True)
    cells = {}
    # Families with much code begin first.
    order = sorted(subjects, key=lambda name: name not in ("stem", "conv", "gemm", "halo", "wconv", "wgemm", "whalo", "attention"))
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for stage in ([None], tools):
            waiting = {pool.submit(watch, args, commands(args, binary, planish, subject), subject, tool, end): (subject, tool)
                       for tool in stage for subject in order
                       if not (tool and tool != "memcheck" and subject in LIBRARIES)}
            for done in concurrent.futures.as_completed(waiting):
                cells[waiting[done]] = done.result()
            if stage == [None]:
                print(f"unwatched: {time.time() - began:.0f} s", flush=True)
    width = max(map(len, subjects))
    print(f"{'family':<{width}}  {'unwatched':<20}" + "".join(f"  {tool:>10}" for tool in tools))
    for subject in subjects:
        row = [cells.get((subject, tool), ("-", True))[0] for tool in tools]
        print(f"{subject:<{width}}  {cells[(subject, None)][0]:<20}" + "".join(f"  {word:>10}" for word in row))
    bad = [key for key, (_, good) in cells.items() if not good]
    for subject, tool in bad[:12]:
        print(f"{subject} under {tool or 'nothing'}: {cells[(subject, tool)][0]}")
        if tool and cells[(subject, tool)][0] not in ("late", "timeout"):
            for line in first_lines(args, subject, tool):
                print(f"    {line[:200]}")
    if bad and os.environ.get("OUT"):
        with open(os.path.join(os.environ["OUT"], "sanitize_reports.txt"), "w") as joined:
            for subject, tool in bad:
                path = os.path.join(args.out, f"{subject}.{tool or 'plain'}.txt")
                if os.path.exists(path):
                    with open(path, errors="replace") as file:
                        joined.write(f"#### {subject} under {tool}\n{file.read()[:200_000]}\n")
    shutil.rmtree(os.path.join(args.out, "kernels"), ignore_errors=True)
    print(f"{len(cells)} processes, {len(bad)} not clean, {time.time() - began:.0f} s; reports in {args.out}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
