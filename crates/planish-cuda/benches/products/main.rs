//! Times every convolution and matrix product of the suite's models, all tactics of each, on a GPU, and checks
//! their results: what prices and tiles are judged by.
//!
//! `cargo bench -p planish-cuda --bench products -- [--out FILE] [--only TEXT,…] [--family NAME,…] [--most N] [--likely]`: the best tactics of each layer
//! with microseconds (in a replayed graph of many launches), TFLOP/s and error, then sums over models; every single
//! time goes to FILE. `--only` takes layers with one of the texts in their title, `--family` and `--most` these
//! families and the N likely best of each. With `--likely` families offer what they would offer to a plan instead
//! of everything.

#![allow(unsafe_code)]

mod layers;
mod measure;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use planish_cuda::{Cuda, offline};
use planish_kernel::Budget;

use crate::layers::{Layer, layers};
use crate::measure::{Outcome, Subject, compile_all};

/// Ways that are expected to take more than this many times as long as the best are left out.
const PATIENCE: f64 = 2.2;

/// How many ways are tried where results matter more than times.
const MOST_OF_EDGES: usize = 14;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = None;
    let mut only = None;
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let mut everything = true;
    let mut families = None;
    let mut most_of_family = usize::MAX;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--out" => out = arguments.next(),
            "--only" => only = arguments.next(),
            "--family" => families = arguments.next(),
            "--most" => most_of_family = arguments.next().unwrap_or_default().parse()?,
            "--likely" => everything = false,
            other => return Err(format!("unknown argument `{other}`").into()),
        }
    }
    let start = Instant::now();
    let cuda = Cuda::open(0)?;
    println!("{} ({} multiprocessors)", cuda.gpu().name, cuda.gpu().n_sms);
    let budget = if everything { Budget::EVERYTHING } else { Budget::USUAL };
    let chosen: Vec<Layer> = layers()
        .into_iter()
        .filter(|layer| {
            only.as_ref().is_none_or(|only| only.split(',').any(|text| layer.title().contains(text)))
        })
        .collect();
    // One problem stands in several models: measured once.
    let mut tasks = Vec::new();
    for layer in &chosen {
        let key = layer.problem.key();
        if tasks.iter().any(|(other, _, _): &(String, &Layer, Vec<_>)| *other == key) {
            continue;
        }
        let chosen = |name: &str| families.as_ref().is_none_or(|list| list.split(',').any(|own| own == name));
        let mut candidates = Vec::new();
        for family in offline::families().into_iter().filter(|name| chosen(name)) {
            let mut offered = cuda.candidates_of(family, &layer.problem, &budget);
            offered.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
            candidates.extend(offered.into_iter().take(most_of_family));
        }
        candidates.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
        let most = candidates.first().map_or(0.0, |best| best.predicted_ns * PATIENCE);
        candidates.retain(|candidate| candidate.predicted_ns <= most);
        if layer.model == "edges" {
            // Their programs and types make modules of their own: some of all tiles will do.
            let step = candidates.len().div_ceil(MOST_OF_EDGES).max(1);
            candidates = candidates.into_iter().step_by(step).collect();
        }
        if !candidates.is_empty() {
            tasks.push((key, layer, candidates));
        }
    }
    let pairs = tasks.iter().flat_map(|(_, layer, candidates)| {
        candidates.iter().map(|candidate| (layer.problem.for_candidate(candidate), &candidate.tactic))
    });
    let (n_modules, failed) = compile_all(&cuda, pairs.collect());
    println!("{n_modules} modules compiled after {:.1} s", start.elapsed().as_secs_f64());
    failed.iter().for_each(|failure| println!("NOT COMPILED {failure}"));

    let mut csv = String::from("layer,m,n,k,tactic,predicted_us,us,tflops,error\n");
    let mut best: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (key, layer, candidates) in &tasks {
        let mut subject = Subject::new(&cuda, layer)?;
        let mut results: Vec<(f64, usize, f64)> = Vec::new();
        let mut predicted_first = None;
        for (idx, candidate) in candidates.iter().enumerate() {
            match subject.run(candidate) {
                Ok(Outcome { us, error }) => {
                    let tflops = layer.flops() / us * 1e-6;
                    let name = &candidate.tactic.name;
                    let [m, n, k] = layer.sizes();
                    let _ = writeln!(
                        csv,
                        "{},{m},{n},{k},{name},{:.3},{us:.3},{tflops:.2},{error:.2e}",
                        layer.title(),
                        candidate.predicted_ns * 1e-3
                    );
                    if error > layer.tolerance() || error.is_nan() {
                        wrong.push(format!("{}: {name}: error {error:.2e}", layer.title()));
                        continue;
                    }
                    predicted_first.get_or_insert(us);
                    results.push((us, idx, error));
                }
                Err(error) => wrong.push(format!("{}: {}: {error}", layer.title(), candidate.tactic)),
            }
        }
        results.sort_by(|a, b| a.0.total_cmp(&b.0));
        println!("{}  {:?}  ({} ways)", layer.title(), layer.sizes(), results.len());
        for (us, idx, error) in results.iter().take(4) {
            let Some(candidate) = candidates.get(*idx) else { continue };
            println!(
                "    {us:8.2} us {:7.1} TFLOP/s  error {error:.1e}  rank {idx:3}  {}",
                layer.flops() / us * 1e-6,
                candidate.tactic.name
            );
        }
        if let Some((us, ..)) = results.first() {
            best.insert(key.clone(), (*us, predicted_first.unwrap_or(*us)));
        }
    }
    if let Some(out) = out {
        std::fs::write(out, csv)?;
    }
    let mut models: BTreeMap<&str, (f64, f64, u32)> = BTreeMap::new();
    for layer in &chosen {
        if let Some((us, first)) = best.get(&layer.problem.key()) {
            let sum = models.entry(layer.model).or_default();
            sum.0 += us * f64::from(layer.count);
            sum.1 += first * f64::from(layer.count);
            sum.2 += layer.count;
        }
    }
    println!("--- sums over layers: best, and what would be taken untuned");
    for (model, (us, first, n)) in models {
        println!("{model:24} {n:3} layers  {us:8.1} us  {first:8.1} us");
    }
    println!("--- {} wrong or refused", wrong.len());
    wrong.iter().take(60).for_each(|line| println!("{line}"));
    println!("{:.1} s in all", start.elapsed().as_secs_f64());
    Ok(())
}
