//! What `planish bench` prints, ending in the lines that scripts look for in trtexec's logs.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use planish::Engine;

use super::measure::Timed;
use super::told::Told;
use crate::stats::Stats;
use crate::{memory, print};

pub(super) struct Table<'a> {
    pub(super) model: &'a Path,
    pub(super) stats: &'a Stats,
    pub(super) told: &'a Told,
    pub(super) timed: &'a Timed,
    pub(super) qps: f64,
    pub(super) batch: usize,
    pub(super) threads: usize,
}

impl Table<'_> {
    pub(super) fn print(&self, engine: &Engine, out: &mut dyn Write) -> Result<()> {
        let Table { stats, timed, batch, threads, qps, .. } = *self;
        let n_runs = print::count(timed.times.len() as u64);
        writeln!(out, "model    {}", self.model.display())?;
        writeln!(out, "runs     {n_runs} at batch {batch} on {threads} threads")?;
        writeln!(
            out,
            "latency  median {:.3} ms{}, mean {:.3}, std {:.3}, trimmed mean {:.3} (std {:.3})",
            stats.median,
            self.told.line(),
            stats.mean,
            stats.std,
            stats.trimmed_mean,
            stats.trimmed_std
        )?;
        let peak = planish::machine::peak_memory();
        let peak =
            peak.map_or_else(String::new, |peak| format!(", peak of the process {}", print::bytes(peak)));
        writeln!(
            out,
            "memory   weights {}, arena {}{peak}",
            print::bytes(engine.weight_bytes() as u64),
            print::bytes(timed.arena_bytes as u64)
        )?;
        self.print_device(engine, out)?;
        writeln!(
            out,
            "samples  {:.2} per second, {:.4} ms each",
            qps * batch as f64,
            stats.median / batch.max(1) as f64
        )?;
        writeln!(out, "Throughput: {qps:.4} qps")?;
        writeln!(
            out,
            "Latency: min = {:.5} ms, max = {:.5} ms, mean = {:.5} ms, median = {:.5} ms, percentile(90%) = {:.5} \
             ms, percentile(95%) = {:.5} ms, percentile(99%) = {:.5} ms",
            stats.min, stats.max, stats.mean, stats.median, stats.p90, stats.p95, stats.p99
        )?;
        Ok(())
    }

    fn print_device(&self, engine: &Engine, out: &mut dyn Write) -> Result<()> {
        let Some(device) = &self.timed.device else { return Ok(()) };
        let phases = &device.phases;
        writeln!(
            out,
            "device   compute {:.4} ms, host to device {:.4}, device to host {:.4}",
            phases.compute_ns / 1e6,
            phases.upload_ns / 1e6,
            phases.download_ns / 1e6
        )?;
        let memory = &device.memory;
        let there = engine.weight_bytes() + memory.device_arena + memory.graphs;
        writeln!(
            out,
            "         {} there: weights {}, arena and workspace {}, {} captured graphs {}",
            print::bytes(there as u64),
            print::bytes(engine.weight_bytes() as u64),
            print::bytes(memory.device_arena as u64),
            memory.n_graphs,
            print::bytes(memory.graphs as u64)
        )?;
        memory::print_contexts(out, &self.timed.held)
    }
}
