#!/usr/bin/env python3
"""Builds models twice and compares the plans byte by byte: a plan must follow from its model and the timing cache.

    python3 bench/acceptance/twice.py                                  ResNet-18, batch 1, FP16, on the GPU
    python3 bench/acceptance/twice.py --rows resnet18_224:1,minilm_128:1 --build='--tactic-sources own'

Each row is built three times: from nothing; from the timing cache and the compiled kernels of the first build; from
the timing cache alone, every kernel compiled again. Where bytes differ, the sections of the file that do are named,
and the first lines in which `planish inspect --text` differs are shown. Exits 1 if any plan differs. No cargo needed:
the binary is looked for where bench/gpu.py looks for it.
"""

import argparse
import difflib
import os
import shlex
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from gpu_common import binary, call, sizes  # noqa: E402

SECTIONS = {1: "header", 2: "program", 3: "list of weights", 4: "graph", 5: "evidence", 6: "certificate", 7: "code",
            8: "checksums of weights", 9: "weights"}
# The head and each entry of the table of sections, see crates/planish-plan/src/container.rs.
PREFIX = ENTRY = 64
MAX_LINES = 12


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="resnet18_224:1", help="models of the suite as NAME:BATCH, by commas")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--planish", help="the planish binary")
    parser.add_argument("--build", default="", metavar="ARGS", help="more arguments for `planish build`")
    return parser.parse_args()


def sections(path):
    """The bytes of each section of a plan file, by name."""
    with open(path, "rb") as file:
        data = file.read()
    (count,) = struct.unpack_from("<I", data, 12)
    found = {}
    for idx in range(count):
        kind, _, offset, length = struct.unpack_from("<IIQQ", data, PREFIX + idx * ENTRY)
        found[SECTIONS.get(kind, f"section {kind}")] = data[offset:offset + length]
    return found


def difference(planish, one, other):
    """What two plans have apart, in words; nothing where their bytes are the same."""
    with open(one, "rb") as a, open(other, "rb") as b:
        if a.read() == b.read():
            return None
    left, right = sections(one), sections(other)
    names = [name for name in left if left[name] != right.get(name)]
    words = [f"differs in: {', '.join(names) or 'padding'}"]
    texts = [call([planish, "inspect", path, "--text"]).stdout.splitlines() for path in (one, other)]
    lines = [line for line in difflib.unified_diff(*texts, n=0, lineterm="") if line[:3] not in ("---", "+++")]
    words += [f"    {line[:240]}" for line in lines[:MAX_LINES]]
    if len(lines) > MAX_LINES:
        words.append(f"    and {len(lines) - MAX_LINES} lines more")
    return "\n".join(words)


def main():
    args = arguments()
    planish = binary(args.planish)
    good = True
    print(f"{'row':<24} {'build':<36} {'s':>6} {'bytes':>12} {'times':>6}  against the first")
    for row in args.rows.split(","):
        name, batch = row.split(":")
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model.onnx")
            call([planish, "zoo", name, "-o", model])
            timings = os.path.join(folder, "timings")
            kernels = os.path.join(folder, "kernels")
            shapes = sizes(name, batch)
            first = None
            for idx, (what, cache) in enumerate([("from nothing", kernels), ("from times and kernels", kernels),
                                                 ("from times, kernels compiled again", "")]):
                plan = os.path.join(folder, f"{idx}.plan")
                command = [planish, "build", model, "-o", plan, "--device", args.device, "--precision", args.precision,
                           "--shapes", shapes, "--timing-cache", timings, *shlex.split(args.build)]
                began = time.time()
                done = subprocess.run(command, capture_output=True, text=True,
                                      env={**os.environ, "PLANISH_KERNEL_CACHE": cache})
                took = time.time() - began
                if done.returncode != 0:
                    sys.exit(f"{row}: {what}: {done.stderr.strip()[-400:]} (exit {done.returncode})")
                with open(timings) as file:
                    n_times = sum(1 for line in file if not line.startswith("#")) - 1
                first = first or plan
                apart = difference(planish, first, plan)
                good &= apart is None
                verdict = "" if idx == 0 else apart or "the same bytes"
                print(f"{row:<24} {what:<36} {took:>6.1f} {os.path.getsize(plan):>12,} {n_times:>6}  {verdict}", flush=True)
                for line in done.stderr.splitlines():
                    if line.startswith("note:") and idx == 0:
                        print(f"    {line[:200]}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
