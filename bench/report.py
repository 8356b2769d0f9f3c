"""What the benchmark found, as lines, CSV and Markdown; and what machine it ran on."""

import csv
import json
import math
import os
import platform
import re
import resource
import statistics
import subprocess
import time

TITLES = {"planish": "Planish", "ort": "ONNX Runtime", "openvino": "OpenVINO"}
FEATURES = ["avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8"]
COLUMNS = [
    "date", "cpu", "model", "batch", "threads", "engine", "version", "median_ms", "spread_pct", "block_medians_ms",
    "cpu_ms", "min_ms", "others_pct", "on_reference",
    "peak_rss_mb", "base_rss_mb", "load_ms", "gflop", "fma_peak_gflops", "ratio_of_planish", "rel_l2", "verdict", "error",
]  # fmt: skip
# Above this share of the processors in other hands, times by the clock are marked.
BUSY = 0.1
# Cases that are named where the slowest are.
LEAST = 10
_FMA = {}


class Result:
    """One engine's blocks in one case."""

    def __init__(self, engine):
        self.engine, self.version, self.error = engine, "", ""
        self.cpu_blocks, self.shortest = [], []
        self.blocks, self.peak_mb, self.base_mb, self.load_ms = [], 0.0, None, None

    def median(self):
        return statistics.median(self.blocks) if self.blocks else None

    def cpu(self):
        """Processor time of a run, all threads together."""
        found = [block for block in self.cpu_blocks if block]
        return statistics.median(found) if found else None

    def spread(self):
        """How far the blocks are apart, in percent of their median."""
        return 100 * (max(self.blocks) - min(self.blocks)) / self.median() if self.blocks else None


class Row:
    """A case when it is done: what is left of it for the report."""

    def __init__(self, case, bound, gflop, fma_peak):
        self.name, self.batch, self.threads, self.kind = case.name, case.batch, case.threads, case.kind
        self.results, self.distances = case.results, case.distances
        self.bound, self.gflop, self.fma_peak, self.others = bound, gflop, fma_peak, case.others
        self.on_reference = case.on_reference

    @staticmethod
    def lost(name, batch, threads, engines, error):
        """A case that never came to its blocks."""
        row = Row.__new__(Row)
        row.name, row.batch, row.threads, row.kind = name, batch, threads, "single"
        row.results = {engine: Result(engine) for engine in engines}
        for result in row.results.values():
            result.error = error
        row.distances, row.bound, row.gflop, row.fma_peak, row.others = {}, 0.0, None, None, None
        row.on_reference = []
        return row

    def ratio(self, peer, own="planish"):
        """How many times faster `own` is than the peer."""
        own, peer = self.results.get(own), self.results.get(peer)
        if not own or not peer or not own.blocks or not peer.blocks:
            return None
        return peer.median() / own.median()

    def cpu_ratio(self, peer, own="planish"):
        """The same by processor time, which other work on the machine does not touch much. Only on one thread:
        threads that wait by spinning count as if they worked.
        """
        own, peer = self.results.get(own), self.results.get(peer)
        if self.threads != 1 or not own or not peer or not own.cpu() or not peer.cpu():
            return None
        return peer.cpu() / own.cpu()

    def shortest_ratio(self, peer, own="planish"):
        """The same by the shortest run of each: beside other work the one that was disturbed least."""
        own, peer = self.results.get(own), self.results.get(peer)
        if not own or not peer or not own.shortest or not peer.shortest:
            return None
        return min(peer.shortest) / min(own.shortest)

    def fair_ratio(self, peer, own="planish"):
        """The ratio that says most: by the clock where the machine was quiet, else by processor time on one thread and
        by the shortest runs on several.
        """
        if not self.is_busy():
            return self.ratio(peer, own)
        return self.cpu_ratio(peer, own) or self.shortest_ratio(peer, own)

    def distance(self, a, b):
        found = self.distances.get((a, b))
        return self.distances.get((b, a)) if found is None else found

    def agrees(self, a, b):
        found = self.distance(a, b)
        return isinstance(found, float) and found <= self.bound

    def is_busy(self):
        """Whether others had so much of the machine that the clock says little."""
        return self.others is not None and self.others > BUSY

    def verdict(self):
        """Whether the outputs are one function's: in words."""
        failed = [TITLES[name] for name, result in self.results.items() if result.error]
        said = [f"{', '.join(failed)} failed"] if failed else []
        pairs = list(self.distances)
        apart = [pair for pair in pairs if not self.agrees(*pair)]
        if apart:
            said += ["differ: " + "; ".join(f"{TITLES[a]} and {TITLES[b]}" for a, b in apart)]
        elif pairs:
            said += ["same"]
        return ", ".join(said) or "not compared"

    def is_wrong(self):
        """Planish failed, or it stands alone against peers that agree with each other or against its only peer."""
        planish = self.results.get("planish")
        if planish is None:
            return False
        if planish.error:
            return True
        peers = [name for name in self.results if name != "planish" and self.distance("planish", name) is not None]
        return bool(peers) and not any(self.agrees("planish", name) for name in peers)

    def worst(self):
        numbers = [found for found in self.distances.values() if isinstance(found, float)]
        return max(numbers) if numbers else None

    def line(self):
        parts = [f"{self.name:<24} b{self.batch:<3} t{self.threads:<2}"]
        for name, result in self.results.items():
            median = result.median()
            parts.append(f"{name} {median:9.3f} ms" if median else f"{name} failed: {result.error}")
        for peer in ("ort", "openvino"):
            ratio = self.ratio(peer)
            if ratio:
                cpu = self.cpu_ratio(peer)
                shortest = self.shortest_ratio(peer)
                more = [f"{kind} x{found:.2f}" for kind, found in (("cpu", cpu), ("shortest", shortest)) if found]
                parts.append(f"x{ratio:.2f} {peer}" + (f" ({', '.join(more)})" if more else ""))
        if "planish" not in self.results and self.ratio("ort", "openvino"):
            parts.append(f"openvino x{self.ratio('ort', 'openvino'):.2f} ort")
        if self.is_busy():
            parts.append(f"busy {100 * self.others:.0f} %")
        if self.on_reference:
            parts.append(f"{len(self.on_reference)} steps on the reference")
        parts.append(self.verdict() + (f" ({self.worst():.1e})" if self.worst() is not None else ""))
        return "  ".join(parts)


class Others:
    """What other processes take of the processors, from now on."""

    def __init__(self):
        self.start = self.now()

    @staticmethod
    def now():
        """Seconds of work of all processes, of our children alone, and on the clock."""
        found = re.match(r"cpu +(.+)", read("/proc/stat"))
        ticks = [int(text) for text in found.group(1).split()[:8]] if found else [0] * 8
        # user nice system idle iowait irq softirq steal
        busy = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
        own = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return busy, own, time.monotonic()

    def share(self):
        busy, own, clock = (after - before for before, after in zip(self.start, self.now()))
        if busy <= 0 or clock <= 0:
            return None
        return max(0.0, busy - own) / (clock * os.cpu_count())


def geometric_mean(numbers):
    return math.exp(statistics.fmean(map(math.log, numbers)))


def comparisons(engines):
    """(own, peer) pairs whose ratio is reported: Planish against each peer, or the peers among themselves."""
    if "planish" in engines:
        return [("planish", peer) for peer in engines if peer != "planish"]
    return [("openvino", "ort")] if {"ort", "openvino"} <= set(engines) else []


def summary(rows, engines):
    lines = []
    for own, peer in comparisons(engines):
        for threads in sorted({row.threads for row in rows}):
            able = [row for row in rows if row.threads == threads and row.ratio(peer, own)]
            quiet = [(row.ratio(peer, own), row) for row in able if not row.is_busy()]
            by_cpu = [(row.cpu_ratio(peer, own), row) for row in able if row.cpu_ratio(peer, own)]
            shortest = [(row.shortest_ratio(peer, own), row) for row in able if row.shortest_ratio(peer, own)]
            kinds = [("by the clock", quiet), ("by CPU time", by_cpu), ("by the shortest runs", shortest)]
            said = [kind + " " + spoken(found) for kind, found in kinds if found]
            if able:
                where = f"{TITLES[own]} against {TITLES[peer]}, {threads} thread{'s' * (threads > 1)}"
                lines.append(f"{where}: " + ("; ".join(said) or "the machine was too busy to tell"))
                least = sorted((row.fair_ratio(peer, own), row.name) for row in able if row.fair_ratio(peer, own))
                named = ", ".join(f"{name} {ratio:.2f}" for ratio, name in least[:LEAST])
                lines.append(f"{where}, the least: {named}")
    behind = {row.name: row.on_reference for row in rows if row.on_reference}
    for name, steps in behind.items():
        kinds = ", ".join(sorted(set(steps))[:LEAST])
        lines.append(f"{name}: {len(steps)} steps on the reference ({kinds})")
    n_busy = sum(row.is_busy() for row in rows)
    if n_busy:
        lines.append(
            f"{n_busy} of {len(rows)} cases are left out by the clock: other processes had more than "
            f"{100 * BUSY:.0f} % of the processors"
        )
    heavy = memory(rows)
    if heavy:
        ratio, row = max(heavy, key=lambda pair: pair[0])
        lines.append(
            f"Peak resident memory, Planish against ONNX Runtime: geometric mean "
            f"{geometric_mean([ratio for ratio, _ in heavy]):.2f}x, most {ratio:.2f}x ({row.name}, batch {row.batch})"
        )
    troubles = [row for row in rows if row.verdict() != "same"]
    lines.append(f"{len(rows) - len(troubles)} of {len(rows)} cases ran everywhere with the same outputs")
    return "\n".join(lines)


def spoken(found):
    """Mean and least of (ratio, row) pairs."""
    least, row = min(found, key=lambda pair: pair[0])
    mean = geometric_mean([ratio for ratio, _ in found])
    cases = f"{len(found)} case{'s' * (len(found) != 1)}"
    return f"geometric mean {mean:.2f}x over {cases}, least {least:.2f}x ({row.name}, batch {row.batch})"


def memory(rows):
    found = []
    for row in rows:
        own, peer = row.results.get("planish"), row.results.get("ort")
        if own and peer and own.blocks and peer.blocks:
            found.append((own.peak_mb / peer.peak_mb, row))
    return found


def write_csv(path, rows, day, machine):
    partial = path + ".tmp"
    with open(partial, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            for name, result in row.results.items():
                others = [row.distance(name, other) for other in row.results if other != name]
                numbers = [found for found in others if isinstance(found, float)]
                writer.writerow([
                    day, machine.cpu, row.name, row.batch, row.threads, name, result.version,
                    number(result.median(), 4), number(result.spread(), 1),
                    " ".join(number(block, 4) for block in result.blocks), number(result.cpu(), 4),
                    number(min(result.shortest, default=None), 4),
                    number(None if row.others is None else 100 * row.others, 0),
                    len(row.on_reference) if name == "planish" else "",
                    number(result.peak_mb or None, 1),
                    number(result.base_mb, 1), number(result.load_ms, 1), number(row.gflop, 3),
                    number(row.fma_peak, 1), number(row.ratio(name), 3) if name != "planish" else "",
                    f"{max(numbers):.1e}" if numbers else "", row.verdict(), result.error,
                ])  # fmt: skip
    os.replace(partial, path)


def number(value, digits):
    return "" if value is None else f"{value:.{digits}f}"


def cell(value, form):
    return "–" if value is None else format(value, form)


def write_page(path, title, rows, args, machine, day, command):
    """Puts the section between its markers in the page; the rest of the page stays."""
    begin, end = f"<!-- bench:{title}:begin -->", f"<!-- bench:{title}:end -->"
    with open(path) as file:
        text = file.read()
    if begin not in text or end not in text:
        text = text.rstrip("\n") + f"\n\n{begin}\n{end}\n"
    before, rest = text.split(begin, 1)
    after = rest.split(end, 1)[1]
    section = markdown(rows, args, machine, day, command)
    with open(path + ".tmp", "w") as file:
        file.write(f"{before}{begin}\n\n{section}\n\n{end}{after}")
    os.replace(path + ".tmp", path)


def markdown(rows, args, machine, day, command):
    engines = args.engines
    pairs = comparisons(engines)
    versions = {name: next((r.results[name].version for r in rows if r.results[name].version), "?") for name in engines}
    peaks = {}
    for row in rows:
        if row.fma_peak:
            peaks.setdefault(row.threads, []).append(row.fma_peak)
    measured = ", ".join(
        f"{max(found):.0f} GFLOP/s on {threads} thread{'s' * (threads > 1)} (median beside the cases "
        f"{statistics.median(found):.0f})"
        for threads, found in sorted(peaks.items())
    )
    lines = [
        f"`{command}`, {day}, commit {machine.commit}.",
        "",
        f"- Machine: {machine.cpu}, {machine.n_cpus} CPUs, {machine.memory_gb:.0f} GB, {machine.system}; "
        f"{' '.join(machine.features)}.",
        f"- Versions: {', '.join(f'{TITLES[name]} {version}' for name, version in versions.items())}, "
        f"Python {platform.python_version()}.",
        f"- FMA peak measured: {measured or 'not measured'}.",
        f"- {args.rounds} blocks of {args.block:g} s an engine; *spread* is the largest distance of two blocks of one "
        "engine, in percent of their median; *others* is the share of the processors that other processes had meanwhile.",
    ]
    lines += ["", *("- " + line for line in summary(rows, engines).splitlines()), ""]
    head = ["model", "batch", "threads"] + [f"{TITLES[name]} ms" for name in engines]
    head += [f"{TITLES[own]} against {TITLES[peer]}" for own, peer in pairs]
    has_cpu = any(row.cpu_ratio(peer, own) for row in rows for own, peer in pairs)
    head += [f"against {TITLES[peer]} by CPU time" for _, peer in pairs] if has_cpu else []
    head += ["others %", "spread %"] + [f"{TITLES[name]} peak MB" for name in engines] + ["rel. L2", "outputs"]
    lines += ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 2) + "|---|"]
    for row in rows:
        spreads = [result.spread() for result in row.results.values() if result.blocks]
        cells = [row.name, str(row.batch), str(row.threads)]
        cells += [cell(row.results[name].median(), ".2f") for name in engines]
        cells += ["busy" if row.is_busy() else bold(row.ratio(peer, own)) for own, peer in pairs]
        cells += [bold(row.cpu_ratio(peer, own)) for own, peer in pairs] if has_cpu else []
        cells += [cell(None if row.others is None else 100 * row.others, ".0f")]
        cells += [cell(max(spreads) if spreads else None, ".0f")]
        cells += [cell(row.results[name].peak_mb or None, ".0f") for name in engines]
        cells += [cell(row.worst(), ".0e"), row.verdict()]
        lines.append("| " + " | ".join(cells) + " |")
    failures = [(row, result) for row in rows for result in row.results.values() if result.error]
    if failures:
        lines += ["", "What failed:", ""]
        lines += [
            f"- {row.name}, batch {row.batch}, {row.threads} threads, {TITLES[result.engine]}: {result.error}"
            for row, result in failures
        ]
    return "\n".join(lines)


def bold(ratio):
    """A ratio, bold where the first one is faster."""
    if ratio is None:
        return "–"
    return f"**{ratio:.2f}x**" if ratio >= 1 else f"{ratio:.2f}x"


def public_flags(argv):
    """The command line without what only this machine has: paths."""
    private = {"--planish", "--models-dir", "--lock", "--csv"}
    kept, skip = [], False
    for idx, word in enumerate(argv):
        if skip or word.split("=")[0] in private:
            skip = word in private and not skip
            continue
        if idx and argv[idx - 1] == "--real" and os.sep in word:
            continue
        kept.append(word)
    return kept


class Machine:
    """What the numbers were measured on."""


def machine(root, hidden=()):
    """This machine, without the features that begin with one of `hidden`, which is said."""
    found = Machine()
    info = read("/proc/cpuinfo")
    names = re.findall(r"model name\s*:\s*(.+)", info)
    found.cpu = names[0].strip() if names else platform.processor() or "unknown CPU"
    family = re.findall(r"cpu family\s*:\s*(\d+)", info)
    model = re.findall(r"^model\s*:\s*(\d+)", info, re.M)
    if family and model:
        found.cpu += f" (family {family[0]}, model {model[0]})"
    flags = set(" ".join(re.findall(r"flags\s*:\s*(.+)", info)).split())
    found.features = [name for name in FEATURES if name in flags and not name.startswith(tuple(hidden))]
    if hidden:
        found.cpu += f" as one with {' '.join(found.features)}"
    found.n_cpus = os.cpu_count()
    found.memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    found.system = f"{platform.system()} {platform.release().split('-')[0]}"
    found.slug = re.sub(r"[^a-z0-9]+", "-", found.cpu.lower()).strip("-")
    commit = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    found.commit = commit.stdout.strip() or "unknown"
    return found


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def measure_peaks(binary):
    """Has `planish doctor --measure` find the peaks of this machine; without the binary they are left out."""
    if not binary:
        return
    done = subprocess.run([binary, "doctor", "--measure", "--json"], capture_output=True, text=True)
    peaks = json.loads(done.stdout)["peaks"] if done.returncode == 0 else []
    for peak in peaks:
        name, _, threads = peak["name"].partition(", ")
        if name == "fp32 fma":
            _FMA[int(threads.split()[0])] = peak["per_second"] / 1e9


def fma_peak(threads):
    """GFLOP/s of fused multiply-adds on this many threads, as it was measured at the start."""
    return _FMA.get(threads)
