#!/usr/bin/env python3
"""The three-engine pipeline on a GPU: images per second against PyTorch FP32, distance to FP32, equality of results.

    python3 bench/acceptance/gpu_pipeline.py --work FOLDER [--iterations 100000]
    python3 bench/acceptance/gpu_pipeline.py --device cpu --precision fp32 --iterations 4 --interleaved 8 --build='--tune-level 0'

Builds the three plans of `planish zoo` unless the folder has them, times PyTorch FP32 eager in a tight loop on the
same networks, and hands over to `cargo xtask pipeline` (the carried binary on a machine without cargo), which chains
the engines in device memory and prints the figures.
"""

import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from gpu_common import binary, build_plan, plan_parser, suite, torch_as_measured  # noqa: E402

MODELS = ("gen_encoder_256", "gen_unet_32", "gen_decoder_32")


def arguments():
    parser = plan_parser(__doc__)
    parser.add_argument("--iterations", type=int, default=100_000)
    parser.add_argument("--interleaved", type=int, default=4_000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one rate")
    parser.add_argument("--no-torch", action="store_true")
    return parser.parse_args()


def torch_rate(device, seconds):
    """Images per second of PyTorch, FP32, eager, one image after the other."""
    torch = torch_as_measured()
    torch.manual_seed(0)
    stages = [suite().MODELS[name][0]().eval().to(device) for name in MODELS]
    image = torch.randn(1, 3, 256, 256, device=device)

    def one():
        x = image
        for stage in stages:
            x = stage(x)
        return x

    def settle():
        if device == "cuda":
            torch.cuda.synchronize()

    with torch.no_grad():
        for _ in range(20 if device == "cuda" else 1):
            one()
        settle()
        n, began = 0, time.time()
        while time.time() - began < seconds:
            # The clock is looked at seldom and the device seldomer: a tight loop.
            for _ in range(20 if device == "cuda" else 1):
                one()
                n += 1
            settle()
        rate = n / (time.time() - began)
        if not bool(torch.isfinite(one()).all()):
            sys.exit("PyTorch's picture is not finite")
    if device == "cuda":
        del stages, image
        torch.cuda.empty_cache()
    return rate


def main():
    args = arguments()
    planish, xtask = binary(args.planish), binary(args.xtask, "xtask")
    with tempfile.TemporaryDirectory() as folder:
        work = args.work or folder
        os.makedirs(work, exist_ok=True)
        plans = []
        for name in MODELS:
            began = time.time()
            plan, built = build_plan(planish, work, name, 1, args.precision, args.device, args.build)
            kept = "kept from before" if built.get("kept") else f"built in {time.time() - began:.1f} s"
            print(f"plan      {name} {args.precision}, {kept}", flush=True)
            plans.append(plan)
        command = [xtask, "pipeline", *plans, "--device", args.device, "--iterations", str(args.iterations),
                   "--interleaved", str(args.interleaved), "--threads", str(args.threads),
                   "--seconds", str(args.seconds)]
        if not args.no_torch:
            rate = torch_rate(args.device, args.seconds)
            print(f"PyTorch   FP32 eager: {rate:.1f} images per second", flush=True)
            command += ["--peer-rate", str(rate)]
        sys.exit(subprocess.run(command).returncode)


if __name__ == "__main__":
    main()
