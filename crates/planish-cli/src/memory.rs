//! The memory of plans and contexts, in words and for scripts.

use std::io::Write;

use anyhow::Result;
use planish::{ContextMemory, Engine, MemoryInfo, TargetNeeds};
use serde_json::{Value, json};

use crate::print::bytes;

/// What a plan needs at given sizes.
pub(crate) struct Needs {
    sizes: Vec<(String, i64)>,
    /// The backends' names, and what the plan takes there.
    targets: Vec<(String, TargetNeeds)>,
    is_whole: bool,
}

impl Needs {
    pub(crate) fn at(engine: &Engine, sizes: &[(String, i64)]) -> Result<Needs> {
        let needs = engine.memory_at(sizes)?;
        let names = engine.record().header.targets.iter().map(|target| target.backend.clone());
        Ok(Needs {
            sizes: sizes.to_vec(),
            targets: names.zip(needs.targets).collect(),
            is_whole: needs.is_whole,
        })
    }

    /// What the plan takes of its device's memory.
    pub(crate) fn on_device(&self) -> Option<TargetNeeds> {
        self.targets.iter().map(|(_, needs)| *needs).find(|needs| needs.on_device)
    }

    /// Bytes of the weights and of so many contexts, on all targets.
    pub(crate) fn total(&self, contexts: usize) -> usize {
        let one = |needs: &TargetNeeds| needs.weights + contexts * (needs.ring + needs.arena + needs.values);
        self.targets.iter().map(|(_, needs)| one(needs)).sum()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let sizes: Vec<String> = self.sizes.iter().map(|(symbol, size)| format!("{symbol}={size}")).collect();
        let at = if sizes.is_empty() { String::new() } else { format!(" at {}", sizes.join(" ")) };
        let more = if self.is_whole { "" } else { "; more after sizes that only a run can tell" };
        let line = |(name, needs): &(String, TargetNeeds)| {
            let expanded = match needs.expanded {
                0 => String::new(),
                made => format!(" ({} of it made on opening)", bytes(made as u64)),
            };
            let streamed = match needs.streamed {
                0 => String::new(),
                away => format!(
                    ", {} streamed from pinned host memory through a ring of {} in each context",
                    bytes(away as u64),
                    bytes(needs.ring as u64)
                ),
            };
            format!(
                "{name}{at}: weights {}{expanded}{streamed}; each context arena {} (workspace {} of it), outputs {}{more}",
                bytes(needs.weights as u64),
                bytes(needs.arena as u64),
                bytes(needs.workspace as u64),
                bytes(needs.values as u64)
            )
        };
        self.targets.iter().map(line).collect()
    }

    pub(crate) fn json(&self) -> Value {
        let targets: Vec<Value> = self
            .targets
            .iter()
            .map(|(name, needs)| {
                json!({
                    "backend": name, "weight_bytes": needs.weights, "expanded_bytes": needs.expanded,
                    "streamed_bytes": needs.streamed, "ring_bytes": needs.ring,
                    "arena_bytes": needs.arena, "workspace_bytes": needs.workspace, "output_bytes": needs.values,
                })
            })
            .collect();
        let sizes: serde_json::Map<String, Value> =
            self.sizes.iter().map(|(symbol, size)| (symbol.clone(), json!(size))).collect();
        json!({ "sizes": sizes, "targets": targets, "whole": self.is_whole })
    }
}

/// What one context took of a GPU, by its own list and by the GPU's.
pub(crate) struct Held {
    listed: ContextMemory,
    /// Inputs and outputs that the benchmark keeps on the device.
    buffers: usize,
    /// Bytes that were no longer free after it, and by how many the backend's pool grew.
    measured: Option<(i64, i64)>,
}

impl Held {
    pub(crate) fn new(
        listed: ContextMemory,
        buffers: usize,
        before: Option<MemoryInfo>,
        after: Option<MemoryInfo>,
    ) -> Held {
        let measured = before.zip(after).map(|(before, after)| {
            (before.free as i64 - after.free as i64, after.pooled as i64 - before.pooled as i64)
        });
        Held { listed, buffers, measured }
    }

    /// Arena, values, the ring of streamed weights, captured graphs and buffers on the device.
    fn sum(&self) -> usize {
        let Held { listed, buffers, .. } = self;
        listed.device_arena + listed.device_values + listed.device_ring + listed.graphs + buffers
    }

    pub(crate) fn json(&self) -> Value {
        let listed = &self.listed;
        json!({
            "arena_bytes": listed.device_arena, "workspace_bytes": listed.device_workspace,
            "value_bytes": listed.device_values, "ring_bytes": listed.device_ring, "graphs": listed.n_graphs,
            "graph_bytes": listed.graphs, "buffer_bytes": self.buffers, "listed_bytes": self.sum(),
            "pinned_bytes": listed.host, "staging_bytes": listed.staging,
            "measured_bytes": self.measured.map(|(taken, _)| taken),
            "pool_growth_bytes": self.measured.map(|(_, pool)| pool),
        })
    }

    fn line(&self) -> String {
        let listed = &self.listed;
        let mut line = format!(
            "{} there: arena {} (workspace {} of it), values {}, {} captured graphs {}, buffers {}",
            bytes(self.sum() as u64),
            bytes(listed.device_arena as u64),
            bytes(listed.device_workspace as u64),
            bytes(listed.device_values as u64),
            listed.n_graphs,
            bytes(listed.graphs as u64),
            bytes(self.buffers as u64)
        );
        if listed.device_ring > 0 {
            line += &format!(", a ring for streamed weights {}", bytes(listed.device_ring as u64));
        }
        line += &format!(
            "; pinned on the host {}, staging {}",
            bytes(listed.host as u64),
            bytes(listed.staging as u64)
        );
        if let Some((taken, pool)) = self.measured {
            line += &format!("; the GPU has {} less free, {} of it in the pool", signed(taken), signed(pool));
        }
        line
    }
}

fn signed(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", bytes(number.unsigned_abs()))
}

/// A line for each context. The first brings what the process has once: code, and what libraries take.
pub(crate) fn print_contexts(out: &mut dyn Write, held: &[Held]) -> Result<()> {
    for (idx, held) in held.iter().enumerate() {
        writeln!(out, "context {} {}", idx + 1, held.line())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_listed_beside_what_was_measured() {
        let listed = ContextMemory {
            device_arena: 12_000_000,
            device_workspace: 1_000_000,
            n_graphs: 1,
            graphs: 2_000_000,
            host: 4000,
            ..ContextMemory::default()
        };
        let info = |free, pooled| Some(MemoryInfo { free, total: 1 << 30, pooled });
        let held = Held::new(listed, 600_000, info(100_000_000, 0), info(84_000_000, 14_000_000));
        assert_eq!(
            held.line(),
            "14.6 MB there: arena 12.0 MB (workspace 1.00 MB of it), values 0 B, 1 captured graphs 2.00 MB, buffers \
             600 kB; pinned on the host 4.00 kB, staging 0 B; the GPU has 16.0 MB less free, 14.0 MB of it in the pool"
        );
        assert_eq!(held.json()["listed_bytes"], 14_600_000);
        assert_eq!(held.json()["measured_bytes"], 16_000_000);
    }
}
