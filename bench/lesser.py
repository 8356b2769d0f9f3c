"""Times as on a machine that has less than this one (`--isa avx2|avx512` of run.py and acceptance/cpu_int8.py).

Planish takes itself for such a machine by PLANISH_ISA; the peers look at CPUID, which as_lesser.c answers for them.
"""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# What neither side sees any more, and how the library is compiled.
HIDDEN = {"avx2": ("avx512", "amx", "avx_vnni"), "avx512": ("amx",)}
DEFINED = {"avx2": [], "avx512": ["-DKEEP_AVX512"]}


def environment(isa, folder):
    """What children get beside their environment, ours and the peers': two dictionaries."""
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
    tried = subprocess.run([sys.executable, "-c", ""], env={**os.environ, "LD_PRELOAD": library}, capture_output=True, text=True)
    if tried.returncode:
        sys.exit(f"--isa {isa}: {tried.stderr.strip() or 'the library that hides instructions does not work here'}")
    return {"PLANISH_ISA": isa}, {"LD_PRELOAD": library}
