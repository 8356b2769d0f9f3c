#!/usr/bin/env python3
"""INT8 or FP8 against our own FP16 on one NVIDIA GPU: medians by the device's clock, both plans in turns.

    python3 bench/acceptance/gpu_int8.py --work FOLDER                       the rows that figures are asked for
    python3 bench/acceptance/gpu_int8.py --rows resnet18_224:1,resnet50_224:64
    python3 bench/acceptance/gpu_int8.py --profile                           the slowest steps of each INT8 plan
    python3 bench/acceptance/gpu_int8.py --low fp8 --rows bert_base_128:32   the same in FP8

Models come from `planish zoo`, with random weights; ranges from eight random inputs on the CPU's FP32 plan. The first
and last layers of such a plan are in FP16. Asked for in INT8: ResNet-18 in at most 60 us at batch 1 and 150 us at batch
16, 1.5 times FP16 on ResNet-50 and the 2-D UNet at batch 64; in FP8: 1.4 times FP16 on BERT-base at batch 32; and no row
slower than FP16.
"""

import json
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from gpu_common import INPUTS, all_good, binary, build_plan, call, figure, model_file, plan_parser, relative_l2, sizes  # noqa: E402
from suite import SUITE  # noqa: E402

ROWS = {"fp8": "bert_base_128:32", "int8": "resnet18_224:1,resnet18_224:16,resnet50_224:64,resnet50_224:128,labelfree_unet2d_256:1,labelfree_unet2d_256:64"}
MAX_US = {"int8": {"resnet18_224:1": 60, "resnet18_224:16": 150}, "fp8": {}}
MIN_RATIO = {
    "int8": {"resnet50_224:64": 1.5, "labelfree_unet2d_256:1": 1.15, "labelfree_unet2d_256:64": 1.5},
    "fp8": {"bert_base_128:32": 1.4},
}
TURNS = 3
SEED = 7


def arguments():
    parser = plan_parser(__doc__)
    parser.add_argument("--low", choices=sorted(ROWS), default="int8", help="the precision of 8 bits")
    parser.add_argument("--rows", help="as in resnet18_224:16,…; those that figures are asked for if not given")
    parser.add_argument("--duration", default="0.5s", help="of one timing")
    parser.add_argument("--profile", action="store_true", help="print the slowest steps of each plan of 8 bits")
    parser.add_argument("--no-check", action="store_true", help="leave the distance between both plans out")
    return parser.parse_args()


def calibration(planish, work, name):
    """Ranges over eight random inputs."""
    path = os.path.join(work, f"{name}.calib")
    if not os.path.exists(path):
        import numpy
        samples = os.path.join(work, f"{name}.samples.npy")
        rest = [int(size) for size in INPUTS[name][1].split("x")]
        random = numpy.random.default_rng(SEED)
        words = re.search(r"ids\((\d+)\)", SUITE[name])
        if words:
            numpy.save(samples, random.integers(0, int(words.group(1)), [8, *rest]))
        else:
            numpy.save(samples, random.standard_normal([8, *rest]).astype("f4"))
        model = model_file(planish, work, name)
        call([planish, "calibrate", model, "--data", samples, "--calibrator", "minmax", "--device", "cpu", "-o", path])
    return path


def compute_us(planish, args, plan):
    command = [planish, "bench", plan, "--device", args.device, "--duration", args.duration, "--json"]
    if args.device != "cpu":
        command += ["--no-transfers", "--spin"]
    said = json.loads(call(command).stdout)
    return round(1e3 * min(said[key] for key in ("compute_ms", "median_ms") if said.get(key)), 1)


def distance(planish, args, work, name, batch, plans):
    """Relative L2 between the outputs of both plans on one random input."""
    import numpy
    outputs = []
    for number, plan in enumerate(plans):
        path = os.path.join(work, f"out{number}.npz")
        call([planish, "run", plan, "--device", args.device, "--shapes", sizes(name, batch), "--random", str(SEED), "-o", path])
        with numpy.load(path) as file:
            outputs.append({key: file[key] for key in file.files})
    fp16, low = outputs
    return max(relative_l2(low[key], fp16[key]) for key in fp16)


def main():
    args = arguments()
    planish = binary(args.planish)
    work = args.work or tempfile.mkdtemp(prefix="planish-int8-")
    os.makedirs(work, exist_ok=True)
    name_of = args.low.upper()
    for row in (args.rows or ROWS[args.low]).split(","):
        name, _, batch = row.rpartition(":")
        try:
            ranges = calibration(planish, work, name)
            fp16, _ = build_plan(planish, work, name, batch, "fp16", args.device, args.build)
            low, built = build_plan(planish, work, name, batch, args.low, args.device, f"{args.build} --calib {ranges}")
            for note in built.get("notes", []):
                print(f"{row}: {note}")
            times = {plan: [] for plan in (fp16, low)}
            for _ in range(TURNS):
                for plan in times:
                    times[plan].append(compute_us(planish, args, plan))
            best = {plan: min(list) for plan, list in times.items()}
            ratio = best[fp16] / best[low]
            off = "" if args.no_check else f", distance {distance(planish, args, work, name, batch, [fp16, low]):.3f}"
            print(f"{row}: FP16 {times[fp16]} us, {name_of} {times[low]} us{off}")
            seen = f"{best[low]:.1f} us, {ratio:.2f} x FP16, {int(batch) / best[low] * 1e6:.0f} a second"
            most = MAX_US[args.low].get(row)
            if most:
                figure(f"{name_of} {row}", f"<= {most} us", seen, best[low] <= most)
            asked = MIN_RATIO[args.low].get(row, 1.0)
            figure(f"{name_of} {row} against FP16", f">= {asked} x", seen, ratio >= asked)
            if args.profile:
                said = call([planish, "profile", low, "--device", args.device]).stdout
                print("\n".join(said.splitlines()[:60]))
        except RuntimeError as error:
            figure(f"{name_of} {row}", "a plan", str(error), False)
    sys.exit(0 if all_good() else 1)


if __name__ == "__main__":
    main()
