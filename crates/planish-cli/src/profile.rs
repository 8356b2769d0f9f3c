//! `planish profile`: the time of every layer.

use std::io::Write;

use anyhow::Result;
use planish::io::Sources;
use planish::{ContextOptions, View};
use serde_json::json;

use crate::args::Profile;
use crate::ending::Answer;
use crate::inspect_plan::tactic;
use crate::roof::{Rates, StepRates};
use crate::{load, print, say_note};

pub(crate) fn command(args: &Profile, out: &mut dyn Write) -> Result<Answer> {
    load::check_opening(&args.model, args.building.device, &args.opening)?;
    let made = load::plan(&args.model, &args.building, &args.opening, args.no_cache)?;
    let threads = args.building.threads.unwrap_or(made.plan.record().header.threads as usize).max(1);
    let engine = load::engine(&args.model, made.plan, args.building.device, &args.opening)?;
    let sources = Sources {
        shapes: &args.building.shapes,
        defaults: &engine.record().header.tuned_at,
        ..Sources::default()
    };
    let fed = sources.gather_for(&engine)?;
    fed.notes.iter().for_each(|note| say_note(note));
    let inputs: Vec<(&str, View<'_>)> =
        fed.tensors.iter().map(|(name, tensor)| (name.as_str(), View::from(tensor))).collect();
    let mut context = engine.context_with(ContextOptions::new(threads))?;
    for _ in 0..3 {
        context.run(&inputs)?;
    }
    let steps = &engine.record().program.steps;
    let mut samples: Vec<Vec<u64>> = vec![Vec::new(); steps.len()];
    let mut totals = Vec::new();
    for _ in 0..args.iterations.max(1) {
        let profiled = context.profile(&inputs)?;
        totals.push(profiled.total_ns);
        for time in profiled.steps {
            samples[time.step].push(time.ns);
        }
    }
    let median = |list: &mut Vec<u64>| {
        list.sort_unstable();
        list.get(list.len() / 2).copied().unwrap_or(0) as f64 / 1e3
    };
    let times: Vec<f64> = samples.iter_mut().map(median).collect();
    let total = median(&mut totals);
    let sum: f64 = times.iter().sum();
    let rates = Rates::new(&engine, &fed.tensors, threads)?;
    let rates_of = |idx: usize| rates.step(idx, times[idx] / 1e6);
    let mut order: Vec<usize> = (0..steps.len()).collect();
    if args.top > 0 {
        order.sort_by(|&a, &b| times[b].total_cmp(&times[a]));
        order.truncate(args.top);
    }
    if !args.json.replaces_tables() {
        let [flops, bytes, roof] = StepRates::HEADINGS;
        let headings = ["us", "share", flops, bytes, roof, "layer", "operators", "kernel"];
        let mut rows = vec![headings.map(String::from).to_vec()];
        for &idx in &order {
            let [flops, bytes, roof] = rates_of(idx).cells();
            rows.push(vec![
                format!("{:.1}", times[idx]),
                format!("{:.1} %", 100.0 * times[idx] / sum.max(1e-9)),
                flops,
                bytes,
                roof,
                shorten(&steps[idx].name, 60),
                shorten(&steps[idx].region.ops(), 40),
                tactic(&steps[idx]),
            ]);
        }
        print::table(out, &rows, &[0, 1, 2, 3, 4])?;
        writeln!(
            out,
            "layers  {sum:.1} us in {} steps, the whole run {total:.1} us on {threads} threads",
            steps.len()
        )?;
        rates.print_how(out)?;
    }
    let layers: Vec<_> = (0..steps.len())
        .map(|idx| {
            let step = &steps[idx];
            let mut layer =
                json!({ "name": step.name, "ops": step.region.ops(), "kernel": tactic(step), "us": times[idx] });
            for (name, value) in rates_of(idx).fields() {
                layer[name] = value;
            }
            layer
        })
        .collect();
    print::json(
        out,
        &args.json,
        &json!({ "layers": layers, "sum_us": sum, "total_us": total, "threads": threads }),
    )?;
    Ok(Answer::Yes)
}

fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    let mut short: String = text.chars().take(most - 1).collect();
    short.push('…');
    short
}
