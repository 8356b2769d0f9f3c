//! A tour of what a builder can do: one program for each feature, in a file of its own.
//!
//! `cargo run --release --example tour` runs all of them, `cargo run --release --example tour -- calibrators` one.

mod calibrators;
mod checklist;
mod layer_by_layer;
mod layer_precision;
mod layer_times;
mod network;
mod profiles;
mod several_profiles;
mod streams;
mod timing_cache;

use planish::Error;

/// A program.
type Stop = fn() -> Result<(), Error>;

/// What there is to see, by name.
pub(crate) const STOPS: [(&str, Stop); 9] = [
    ("profiles", profiles::run),
    ("several_profiles", several_profiles::run),
    ("timing_cache", timing_cache::run),
    ("layer_precision", layer_precision::run),
    ("calibrators", calibrators::run),
    ("streams", streams::run),
    ("layer_times", layer_times::run),
    ("layer_by_layer", layer_by_layer::run),
    ("checklist", checklist::run),
];

fn main() -> Result<(), Error> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<&str> = STOPS.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = asked.iter().find(|name| !names.contains(&name.as_str())) {
        eprintln!("there is no {unknown}; there are {}", names.join(", "));
        std::process::exit(2);
    }
    for (name, run) in STOPS {
        if asked.is_empty() || asked.iter().any(|asked| asked == name) {
            println!("\n== {name}");
            run()?;
        }
    }
    Ok(())
}
