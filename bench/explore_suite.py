#!/usr/bin/env python3
"""`planish explore` on every model of the suite: are all nodes of the file accounted for, and do layers add up to the run?

    python3 bench/explore_suite.py --planish target/release/planish [NAME…]

Models are those of `planish zoo`, built by the cost model alone. For each: the nodes of the ONNX file and those whose fate the
page names, the share of a run that is in no layer (asked: at most 2 %), and the size of the page.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import suite

#: What of a run may be in no layer.
MOST_OUTSIDE = 0.02


def row(planish, name, folder):
    """Nodes of the file, nodes with a fate, the share outside of layers, and the bytes of the page."""
    onnx, plan, page = (os.path.join(folder, f"{name}.{end}") for end in ("onnx", "plan", "html"))
    run = lambda *told: subprocess.run([planish, *told], check=True, capture_output=True, text=True).stdout  # noqa: E731
    run("zoo", name, "-o", onnx)
    run("build", onnx, "-o", plan, "--tune-level", "0", "--no-verify")
    shown = json.loads(run("explore", plan, "--onnx", onnx, "--json", "-o", page))
    run("explore", plan, "--onnx", onnx, "--no-time", "-o", page)
    in_file = json.loads(run("inspect", onnx, "--json"))["nodes"]
    with_fate = sum(1 for node in shown["nodes"] if node.get("fate"))
    found = in_file, with_fate, shown["outside_us"] / shown["total_us"], os.path.getsize(page)
    for path in (onnx, plan, page):
        os.remove(path)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--planish", default="planish")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    is_well = True
    print(f"{'model':<24}{'nodes':>7}{'mapped':>8}{'outside':>9}{'page KB':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name in args.names or suite.SUITE:
            nodes, mapped, outside, size = row(args.planish, name, folder)
            is_well &= nodes == mapped and abs(outside) <= MOST_OUTSIDE
            print(f"{name:<24}{nodes:7}{mapped:8}{outside:9.2%}{size / 1e3:9.0f}", flush=True)
    print(f"\nall nodes mapped, layers within {MOST_OUTSIDE:.0%} of the run: {'yes' if is_well else 'NO'}")
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
