"""Times as on a machine with AVX2 and no more, taken on one that has more (`--isa avx2` of run.py and acceptance/cpu_int8.py).

Planish takes itself for such a machine by PLANISH_ISA; the peers look at CPUID, which as_avx2.c answers for them.
"""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# What the peers do not see any more.
HIDDEN = ("avx512", "amx", "avx_vnni")


def environment(isa, folder):
    """What children get beside their environment, ours and the peers': two dictionaries."""
    if not isa:
        return {}, {}
    if isa != "avx2":
        return {"PLANISH_ISA": isa}, {}
    library = os.path.join(folder, "as_avx2.so")
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", library, os.path.join(HERE, "as_avx2.c")]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"--isa avx2 compiles bench/as_avx2.c for the peers: {error}; install a C compiler")
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-1000:]}")
    tried = subprocess.run([sys.executable, "-c", ""], env={**os.environ, "LD_PRELOAD": library}, capture_output=True, text=True)
    if tried.returncode:
        sys.exit(f"--isa avx2: {tried.stderr.strip() or 'the library that hides instructions does not work here'}")
    return {"PLANISH_ISA": isa}, {"LD_PRELOAD": library}
