#!/usr/bin/env python3
"""From a plan's file to its first result on the host, ResNet-18 at batch 1, the driver's context apart.

    python3 bench/acceptance/first_result.py --work FOLDER
    python3 bench/acceptance/first_result.py --device cpu --precision fp32 --build='--tune-level 0'     a rehearsal

Three plans: with our own kernels alone, with whatever was fastest, and one whose convolutions are cuDNN's (built by
`cargo xtask library-plan`). Each is opened in fresh processes; the median counts.
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from gpu_common import DRIVERS, all_good, binary, build_plan, call, figure, plan_parser  # noqa: E402

MAX_OWN_MS, MAX_LIBRARY_MS = 150, 1000
N_PROCESSES = 5


def start(planish, device, plan):
    """What the median process says of its start."""
    command = [planish, "bench", plan, "--device", device, "--warmup", "0s", "--duration", "0s", "--iterations", "1",
               "--json"]
    starts = [json.loads(call(command).stdout) for _ in range(N_PROCESSES)]
    return sorted(starts, key=lambda one: one["first_result_ms"])[N_PROCESSES // 2]


def main():
    parser = plan_parser(__doc__)
    args = parser.parse_args()
    planish = binary(args.planish)
    with tempfile.TemporaryDirectory() as folder:
        work = args.work or folder
        os.makedirs(work, exist_ok=True)

        def built(tag, more):
            return build_plan(planish, work, "resnet18_224", 1, args.precision, args.device, f"{args.build} {more}", tag)[0]

        def cudnn():
            plan = os.path.join(work, f"resnet18_224_1_{args.precision}_cudnn.plan")
            if not os.path.exists(plan):
                done = call([binary(args.xtask, "xtask"), "library-plan", plan, "--device", args.device, "--precision",
                             args.precision])
                print(done.stdout.strip(), flush=True)
            return plan

        kinds = [("own kernels", MAX_OWN_MS, lambda: built("own", "--tactic-sources own")),
                 ("all tactics", MAX_LIBRARY_MS, lambda: built("", ""))]
        if args.device != "cpu":
            kinds.append(("cuDNN's convolutions", MAX_LIBRARY_MS, cudnn))
        for what, most, plan in kinds:
            name = f"plan open to first result, ResNet-18, {what}"
            try:
                seen = start(planish, args.device, plan())
            except (RuntimeError, OSError, ValueError, KeyError) as error:
                figure(name, f"<= {most} ms", str(error)[:200].replace("|", "/"), False)
                continue
            others = [library for library in seen["libraries"] if not DRIVERS.match(library)]
            has = f"{len(others)} libraries beside the driver's" if others else "no library but the driver's"
            print(f"{what}: mapped {' '.join(seen['libraries']) or 'nothing of CUDA'}", flush=True)
            is_that = {"own kernels": not others,
                       "cuDNN's convolutions": any("cudnn" in library for library in others)}.get(what, True)
            figure(name, f"<= {most} ms",
                   f"{seen['first_result_ms']:.0f} ms (open {seen['open_ms']:.0f}, context and run "
                   f"{seen['first_run_ms']:.0f}; driver {seen['device_ms'] or 0:.0f} before; {has})",
                   seen["first_result_ms"] <= most and is_that)
    sys.exit(0 if all_good() else 1)


if __name__ == "__main__":
    main()
