//! Engines that are opened and closed many times: memory, mappings, files and threads come back.

use std::fs;

use anyhow::{Context, Result};
use planish::{ContextOptions, Device, Engine, Plan, View};

use super::Row;
use super::place::Place;

/// Opened and closed before anything is counted: what is made once (threads, tables, the allocator's own).
const N_FIRST: usize = 20;
/// What the allocator may keep more than before. A plan's weights alone are 47 MB.
const MAX_GROWTH_KB: i64 = 8 << 10;

#[derive(Debug)]
struct Held {
    kilobytes: i64,
    n_maps: usize,
    n_files: usize,
    n_threads: usize,
}

impl Held {
    fn now() -> Result<Held> {
        let status = fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
        Ok(Held {
            kilobytes: line.trim().trim_end_matches(" kB").parse()?,
            n_maps: fs::read_to_string("/proc/self/maps")?.lines().count(),
            n_files: fs::read_dir("/proc/self/fd")?.count(),
            n_threads: fs::read_dir("/proc/self/task")?.count(),
        })
    }
}

pub(crate) fn opened(place: &Place, n: usize) -> Result<Vec<Row>> {
    let path = place.path("engines.plan");
    place.succeeds("build large.onnx -o engines.plan --tune-level 0 --no-verify --device cpu")?;
    let mut first: Option<Vec<u8>> = None;
    let mut losses = Vec::new();
    let mut turn = |idx: usize| -> Result<()> {
        let plan = if idx.is_multiple_of(2) { Plan::open(&path)? } else { Plan::open_copied(&path)? };
        let engine = Engine::new(plan, Device::Cpu)?;
        let mut context = engine.context_with(ContextOptions::new(2))?;
        let pixels = vec![0.5f32; 3 * 224 * 224];
        let view = View::new(&[1, 3, 224, 224], &pixels).context("an input")?;
        context.run_in_order(&[view])?;
        let output = context.output(0).context("the plan has no output")?;
        let bytes = output.to_tensor().bytes().to_vec();
        if first.get_or_insert_with(|| bytes.clone()) != &bytes {
            losses.push(format!("engine {idx} gave other bits"));
        }
        Ok(())
    };
    (0..N_FIRST).try_for_each(&mut turn)?;
    let before = Held::now()?;
    (N_FIRST..N_FIRST + n).try_for_each(&mut turn)?;
    let after = Held::now()?;
    let growth = after.kilobytes - before.kilobytes;
    if growth > MAX_GROWTH_KB || after.n_files > before.n_files || after.n_threads > before.n_threads {
        losses.push(format!("before {before:?}, after {after:?}"));
    }
    let seen = format!(
        "{growth:+} kB of {} MB, {:+} mappings, {:+} files, {:+} threads; the same bits",
        before.kilobytes >> 10,
        after.n_maps as i64 - before.n_maps as i64,
        after.n_files as i64 - before.n_files as i64,
        after.n_threads as i64 - before.n_threads as i64
    );
    Ok(vec![Row { fault: "engines of a 47 MB plan opened, run and closed".into(), n, seen, losses }])
}
