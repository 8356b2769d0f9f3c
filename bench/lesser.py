"""Times as on a machine that has less than this one (`--isa avx2|avx512` of run.py and acceptance/cpu_int8.py).

Planish takes itself for such a machine by PLANISH_ISA; the peers look at CPUID, which as_lesser.c answers for them.
Where the processor (or its hypervisor) lets nobody answer in its stead, the peers run from copies of their libraries
in which another instruction, one that always faults, stands where CPUID was.
"""

import os
import re
import shutil
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# What neither side sees any more, and how the library is compiled.
HIDDEN = {"avx2": ("avx512", "amx", "avx_vnni"), "avx512": ("amx",)}
DEFINED = {"avx2": [], "avx512": ["-DKEEP_AVX512"]}
# Who chooses kernels by CPUID.
PEERS = ["onnxruntime", "openvino"]
CPUID, INVD = b"\x0f\xa2", b"\x0f\x08"
# Ends the name of a folder of copies that is whole; raise it when what is put into them changes.
WHOLE = "whole-1"


def environment(isa, folder, python=sys.executable):
    """What children get beside their environment, ours and the peers', whose Python is `python`: two dictionaries."""
    if not isa:
        return {}, {}
    library = os.path.join(folder, f"as_{isa}.so")
    command = ["cc", "-O2", "-shared", "-fPIC", *DEFINED[isa], "-o", library, os.path.join(HERE, "as_lesser.c")]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"--isa compiles bench/as_lesser.c for the peers: {error}; install a C compiler")
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-1000:]}")
    peers_get = {"LD_PRELOAD": library}
    if starts(peers_get).returncode:
        path = [copies(folder, python), *filter(None, [os.environ.get("PYTHONPATH")])]
        peers_get |= {"AS_LESSER_COPIES": "1", "PYTHONPATH": os.pathsep.join(path)}
    tried = starts(peers_get)
    if tried.returncode:
        sys.exit(f"--isa {isa}: {tried.stderr.strip() or 'the library that hides instructions does not work here'}")
    return {"PLANISH_ISA": isa}, peers_get


def starts(more):
    """What becomes of a process with `more` in its environment."""
    return subprocess.run([sys.executable, "-c", ""], env={**os.environ, **more}, capture_output=True, text=True)


def copies(folder, python):
    """A folder with the peers' packages, INVD where their libraries have CPUID."""
    said = "import sysconfig; print(sysconfig.get_paths()['platlib'])"
    packages = subprocess.run([python, "-c", said], capture_output=True, text=True, check=True).stdout.strip()
    there = [name for name in PEERS if os.path.isdir(os.path.join(packages, name))]
    target = os.path.join(folder, f"peers-{'-'.join(there)}-{WHOLE}")
    if os.path.isdir(target):
        return target
    new = target + ".new"
    shutil.rmtree(new, ignore_errors=True)
    for name in there:
        shutil.copytree(os.path.join(packages, name), os.path.join(new, name), ignore=shutil.ignore_patterns("__pycache__"))
    for parent, _, files in os.walk(new):
        for name in files:
            if re.search(r"\.so(\.|$)", name):
                replace(os.path.join(parent, name))
    os.replace(new, target)
    return target


def replace(path):
    """Puts INVD in the place of every CPUID of a library, by its disassembly: the two bytes alone may be part of others."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    if CPUID not in data:
        return
    try:
        done = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"--isa: this processor hides nothing, and {path} cannot be taken apart: {error}; install binutils")
    for line in re.findall(r"^ *([0-9a-f]+):\s+cpuid", done.stdout, re.MULTILINE):
        at = place(data, int(line, 16))
        if data[at : at + 2] != CPUID:
            sys.exit(f"--isa: {path} has no CPUID at {at:#x}, where its disassembly has one")
        data[at : at + 2] = INVD
    with open(path, "wb") as file:
        file.write(data)


def place(data, address):
    """Where in an ELF file of 64 bits what is loaded to an address lies."""
    first, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    for idx in range(count):
        kind, _, offset, start, _, length = struct.unpack_from("<IIQQQQ", data, first + idx * size)
        if kind == 1 and start <= address < start + length:
            return offset + address - start
    sys.exit(f"--isa: no part of a library is loaded to {address:#x}")
