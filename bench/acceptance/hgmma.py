#!/usr/bin/env python3
"""Counts Hopper's warpgroup products (HGMMA) in the disassembly of plans' own code.

    python3 bench/acceptance/hgmma.py resnet18_224_1_fp16_own.plan minilm_128_1_fp16_own.plan
    python3 bench/acceptance/hgmma.py --work FOLDER            the plans that `bench/gpu.py --own --work FOLDER` left there

`planish inspect --code` writes the cubins that a plan carries; cuobjdump (a CUDA toolkit has it) takes them apart.
Every plan must have kernels with HGMMA: the first is one of convolutions, the second one of matrix products.
"""

import argparse
import glob
import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from gpu_common import all_good, binary, call, figure  # noqa: E402

PLANS = ("resnet18_224_16_fp16_own.plan", "bert_base_128_1_fp16_own.plan")
FUNCTION = re.compile(r"^\s*Function\s*:\s*(\S+)")


def disassembled(cuobjdump, path):
    """Kernels of a cubin by name, with their counts of instructions and of HGMMA."""
    kernels, name = {}, None
    for line in call([cuobjdump, "--dump-sass", path], 120).stdout.splitlines():
        if found := FUNCTION.match(line):
            name = found.group(1)
            kernels[name] = [0, 0]
        elif name and "/*" in line and ";" in line:
            kernels[name][0] += 1
            kernels[name][1] += " HGMMA." in line
    return kernels


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plans", nargs="*")
    parser.add_argument("--work", default=".")
    parser.add_argument("--planish", help="the planish binary")
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump"))
    args = parser.parse_args()
    if not args.cuobjdump:
        sys.exit("no cuobjdump on the path; give --cuobjdump")
    planish = binary(args.planish)
    for plan in args.plans or [os.path.join(args.work, name) for name in PLANS]:
        if not os.path.exists(plan):
            figure(f"HGMMA in {os.path.basename(plan)}", ">= 1 kernel", "no such plan", False)
            continue
        with tempfile.TemporaryDirectory() as folder:
            call([planish, "inspect", plan, "--code", folder])
            cubins = sorted(glob.glob(os.path.join(folder, "*.cubin")))
            total, having = 0, 0
            for cubin in cubins:
                for name, (n_instructions, n_hgmma) in disassembled(args.cuobjdump, cubin).items():
                    total += 1
                    if n_hgmma:
                        having += 1
                        print(f"{os.path.basename(cubin):<28} {name:<16} {n_hgmma:>5} HGMMA of {n_instructions}", flush=True)
        figure(f"HGMMA in {os.path.basename(plan)}", ">= 1 kernel", f"{having} of {total} kernels", having >= 1)
    sys.exit(0 if all_good() else 1)


if __name__ == "__main__":
    main()
