"""Runs scripts that people published, with nothing changed but the name of the module that they import.

    python3 -m published FOLDER [NAME ...]        all of the manifest, or those of these names

FOLDER holds the repositories' files by commit, as `git archive COMMIT` writes them: FOLDER/COMMIT/samples/python/…. None of them
is part of this repository: `manifest.json` has their hashes, and what each exercises. Models and images are made here: the
scripts are tested, not what networks know. Where there is no GPU, `cuda` is a stand-in over host memory (`host_cuda.py`).
"""

import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
#: The only lines that are changed.
IMPORTS = {
    "tensorrt": (re.compile(rb"^(\s*)import tensorrt as trt\b", re.M), rb"\1import planish.tensorrt as trt"),
    "onnxruntime": (re.compile(rb"^(\s*)import onnxruntime( as \w+)?\s*$", re.M), None),
}
SECONDS = 300
DIGITS = pathlib.Path("/tmp/mnist/data")


def changed(content):
    """A script with its import lines changed, and how many there were."""
    pattern, by = IMPORTS["tensorrt"]
    content, n_first = pattern.subn(by, content)

    def renamed(found):
        name = (found.group(2) or b" as onnxruntime").strip()
        return found.group(1) + b"import planish.onnxruntime " + name

    content, n_second = IMPORTS["onnxruntime"][0].subn(renamed, content)
    return content, n_first + n_second


def prepared(entry, source, work):
    """A copy of a script's folder with its imports changed; raises where a file is not the one of the manifest."""
    for name, wanted in entry["files"].items():
        path = source / entry["commit"] / name
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != wanted:
            raise ValueError(f"{name} is another file than the manifest's: {found}")
        content, n_changed = changed(path.read_bytes())
        target = work / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        if name == entry["script"] and not n_changed:
            raise ValueError(f"{name} imports neither tensorrt nor onnxruntime")


def run(entry, source, data):
    """Runs one script; gives whether it succeeded, the seconds, and the end of what it said."""
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        prepared(entry, source, work)
        shutil.copytree(data, work / "data")
        main_script = work / entry["script"]
        started, said, code = time.time(), "", 0
        for arguments in entry["runs"]:
            # The script itself, or another one of its folder that makes what it reads.
            is_other = bool(arguments) and arguments[0].endswith(".py")
            script = main_script.parent / arguments[0] if is_other else main_script
            arguments = arguments[1:] if is_other else arguments
            command = [sys.executable, "-W", "ignore", str(HERE / "start.py"), str(script), *(each.replace("$DATA", str(work / "data")) for each in arguments)]
            done = subprocess.run(command, cwd=script.parent, capture_output=True, text=True, timeout=SECONDS)
            said, code = done.stdout + done.stderr, done.returncode
            if code:
                return False, time.time() - started, said
        return all(word in said for word in entry.get("says", [])), time.time() - started, said


def main():
    """Runs all, and prints a table."""
    source, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    entries = json.loads((HERE / "manifest.json").read_text())
    known = {entry["name"] for entry in entries}
    if set(names) - known:
        sys.exit(f"error: `{sorted(set(names) - known)[0]}` is not in the manifest")
    n_failed = n_missing = 0
    with tempfile.TemporaryDirectory() as folder:
        import made

        made.write(pathlib.Path(folder))
        # Where the samples that train on it look for it.
        if not (DIGITS / "MNIST").exists():
            shutil.copytree(pathlib.Path(folder) / "mnist", DIGITS, dirs_exist_ok=True)
        for entry in entries:
            if names and entry["name"] not in names:
                continue
            if not (source / entry["commit"]).is_dir():
                n_missing += 1
                print(f"--      {entry['name']}: {entry['commit']} is not in {source}")
                continue
            try:
                passed, seconds, said = run(entry, source, pathlib.Path(folder))
            except (ValueError, OSError, subprocess.TimeoutExpired) as error:
                passed, seconds, said = False, 0.0, str(error)
            n_failed += not passed
            print(f"{'ok' if passed else 'FAILED':<8}{entry['name']:<44}{seconds:6.1f} s  {entry['exercises']}", flush=True)
            if not passed:
                print("\n".join(f"        | {line}" for line in said.strip().splitlines()[-12:]), flush=True)
    print(f"{len(names or entries) - n_failed - n_missing} of {len(names or entries)} scripts run")
    sys.exit(1 if n_failed else 0)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
