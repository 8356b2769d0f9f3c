//! Rates of runs and their shares of the machine's measured peaks: for `planish bench`.

use std::io::Write;

use anyhow::Result;
use planish::machine::Peaks;
use planish::{Engine, Roof, StepWork, Tensor};
use serde_json::{Map, Value, json};

use crate::print;

/// What is said where no peaks of the device are kept.
const HOW_TO_MEASURE: &str = "`planish doctor --measure` lets this show shares of the machine's peaks";

/// How to get shares, where there are none.
pub(crate) fn print_how(out: &mut dyn Write) -> Result<()> {
    writeln!(out, "peaks    {HOW_TO_MEASURE}")?;
    Ok(())
}

/// The steps of a plan, counted, and what their device can do at most.
pub(crate) struct Rates {
    steps: Vec<StepWork>,
    roof: Option<Roof>,
}

impl Rates {
    /// Of runs with these inputs on this many threads, those of all contexts together.
    pub(crate) fn new(engine: &Engine, inputs: &[(String, Tensor)], threads: usize) -> Result<Rates> {
        let dims: Vec<(&str, &[usize])> =
            inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.shape())).collect();
        let record = engine.record();
        Ok(Rates {
            steps: engine.work_at(&engine.sizes_of(&dims)?),
            roof: Peaks::kept().and_then(|peaks| Roof::new(&peaks, &record.runs_on().device, threads)),
        })
    }

    fn flops(&self) -> f64 {
        self.steps.iter().filter_map(|step| step.flops).map(|flops| flops as f64).sum()
    }

    fn bytes(&self) -> f64 {
        self.steps.iter().filter_map(|step| step.bytes).map(|bytes| bytes as f64).sum()
    }

    /// Steps that are left out of the sums.
    fn n_uncounted(&self) -> usize {
        self.steps.iter().filter(|step| step.flops.is_none() || step.bytes.is_none()).count()
    }

    /// The shares of the arithmetic's and of the memory's peak of runs that take this long each.
    fn shares(&self, seconds: f64) -> Option<(f64, f64)> {
        let roof = self.roof.as_ref()?;
        Some((roof.compute_seconds(&self.steps) / seconds, roof.memory_seconds(&self.steps) / seconds))
    }

    /// The lines of `planish bench` for runs that take this long each.
    pub(crate) fn print(&self, out: &mut dyn Write, seconds: f64) -> Result<()> {
        let (flops, bytes) = (self.flops(), self.bytes());
        let [of_flops, of_bytes] = match self.shares(seconds) {
            Some((compute, memory)) => {
                [compute, memory].map(|share| format!(", {:.1} % of the peak", 100.0 * share))
            }
            None => Default::default(),
        };
        writeln!(
            out,
            "compute  {} a run, {:.1} GFLOP/s{of_flops}",
            print::flops(flops as u64),
            flops / seconds / 1e9
        )?;
        writeln!(
            out,
            "traffic  {} of weights and activations a run, {:.1} GB/s{of_bytes}",
            print::bytes(bytes as u64),
            bytes / seconds / 1e9
        )?;
        if self.n_uncounted() > 0 {
            writeln!(out, "         without {} steps that cannot be counted", self.n_uncounted())?;
        }
        if self.roof.is_none() {
            print_how(out)?;
        }
        Ok(())
    }

    /// The same for `--json`.
    pub(crate) fn json(&self, seconds: f64) -> Map<String, Value> {
        let (compute, memory) = self.shares(seconds).unzip();
        let fields = [
            ("gflop", json!(self.flops() / 1e9)),
            ("gflop_per_second", json!(self.flops() / seconds / 1e9)),
            ("tflop_per_second", json!(self.flops() / seconds / 1e12)),
            ("compute_peak_share", json!(compute)),
            ("traffic_gb", json!(self.bytes() / 1e9)),
            ("gb_per_second", json!(self.bytes() / seconds / 1e9)),
            ("memory_peak_share", json!(memory)),
            ("uncounted_steps", json!(self.n_uncounted())),
        ];
        fields.map(|(name, value)| (name.to_string(), value)).into_iter().collect()
    }
}
