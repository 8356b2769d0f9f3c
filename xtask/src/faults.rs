//! `cargo xtask faults`: a drill. Processes are killed, disks fill up, memory runs out, caches are damaged, and each time
//! the same is asked: no half-written file, nothing lost that was finished, the next command works, one clear line.
//!
//! It drives the release binary from outside, as users do. Numbers are drawn from a seed, so a run can be repeated;
//! where a process is when it is killed depends on the machine.

mod caches;
mod engines;
mod gpu;
mod kills;
mod limits;
mod place;

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use place::Place;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The `planish` to try; built here in release mode if not given.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// How many processes are killed in all.
    #[arg(long, default_value_t = 500)]
    kills: usize,
    /// The seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where engines are opened besides the CPU: `cuda` has allocations fail there, and the device lost.
    #[arg(long, default_value = "cpu")]
    device: planish::Device,
    /// Only the parts whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// Loses the device in this process, which is of no use after it: what the drill starts for that.
    #[arg(long, hide = true)]
    lose_device: bool,
}

/// One line of the table.
pub(crate) struct Row {
    pub(crate) fault: String,
    /// How often it was tried.
    pub(crate) n: usize,
    /// What was seen, in words.
    pub(crate) seen: String,
    /// What should not have been; empty when all is well.
    pub(crate) losses: Vec<String>,
}

type Part = (&'static str, fn(&Place, &Options) -> Result<Vec<Row>>);

const PARTS: [Part; 10] = [
    ("kill build", |place, options| kills::build(place, options.kills * 2 / 5)),
    ("kill write", |place, options| kills::write(place, options.kills / 5)),
    ("kill bench", |place, options| kills::bench(place, options.kills / 5)),
    ("kill cache", |place, options| kills::timings(place, options.kills - options.kills * 4 / 5)),
    ("interrupt", |place, _| kills::interrupt(place, 40)),
    ("full disk", |place, _| limits::disk(place, 40)),
    ("memory", |place, _| limits::memory(place, 60)),
    ("caches", |place, _| caches::damaged(place, 40)),
    ("eight builds", |place, _| caches::shared(place, 8)),
    ("engines", |place, _| engines::opened(place, 200)),
];

pub(crate) fn run(options: &Options) -> Result<bool> {
    if options.lose_device {
        return gpu::lose(options.device);
    }
    let begun = Instant::now();
    let binary = match &options.binary {
        Some(binary) => binary.canonicalize().with_context(|| format!("{}", binary.display()))?,
        None => release_binary()?,
    };
    let place = Place::new(binary, options.seed)?;
    let mut rows = Vec::new();
    for (name, part) in PARTS {
        if name.contains(&options.only) {
            say(part(&place, options).with_context(|| name.to_string())?, &mut rows);
        }
    }
    if options.device != planish::Device::Cpu && "gpu".contains(&options.only) {
        say(gpu::faults(options.device).context("gpu")?, &mut rows);
    }
    let n_lost: usize = rows.iter().map(|row| row.losses.len()).sum();
    println!("\n| fault | tried | seen | losses |\n|---|---|---|---|");
    for Row { fault, n, seen, losses } in &rows {
        println!("| {fault} | {n} | {seen} | {} |", losses.len());
    }
    let n: usize = rows.iter().map(|row| row.n).sum();
    println!("\n{n} faults, {n_lost} losses, seed {}, {:.0} s", options.seed, begun.elapsed().as_secs_f64());
    Ok(n_lost == 0)
}

/// Prints lines as they come: a drill that is stopped has then said what it knew.
fn say(new: Vec<Row>, rows: &mut Vec<Row>) {
    for row in new {
        println!("{} ({} times): {}, {} losses", row.fault, row.n, row.seen, row.losses.len());
        row.losses.iter().for_each(|loss| println!("  LOSS: {loss}"));
        rows.push(row);
    }
}

pub(crate) fn release_binary() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let arguments = ["build", "--release", "-p", "planish-cli"];
    let status = Command::new(cargo).args(arguments).current_dir(crate::root()).status()?;
    ensure!(status.success(), "the release binary could not be built");
    Ok(crate::root().join("target/release/planish"))
}
