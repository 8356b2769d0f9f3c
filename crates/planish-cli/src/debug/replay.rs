//! `planish debug replay`: a captured run once more, and whether it ends as it did.

use std::io::{self, Write};

use anyhow::{Context, Result, bail};
use clap::Parser;
use planish::Metrics;
use serde_json::json;

use crate::args::{Args, Command, DebugReplay};
use crate::capture::Capture;
use crate::compare::NamedOutputs;
use crate::ending::Answer;
use crate::scratch::Scratch;
use crate::{print, run};

pub(super) fn command(args: &DebugReplay, out: &mut dyn Write) -> Result<Answer> {
    let capture = Capture::open(&args.file)?;
    if let Some(folder) = &args.unpack {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        capture.unpack(folder)?;
        writeln!(out, "run     planish run {}", capture.arguments(folder)?.join(" "))?;
        return Ok(Answer::Yes);
    }
    let scratch = Scratch::new("replay")?;
    capture.unpack(scratch.path())?;
    let mut words = vec!["planish".to_string(), "run".to_string(), "--no-cache".to_string()];
    words.extend(capture.arguments(scratch.path())?);
    let Command::Run(run_args) = Args::try_parse_from(&words).context("the captured arguments")?.command
    else {
        bail!("{} is a capture of another command", args.file.display());
    };
    let ended = run::perform(&run_args, &mut io::sink());
    let then = &capture.about["ended"];
    let error_then = then["error"].as_str();
    // Paths are of this run, and say nothing.
    let folder = scratch.path().display().to_string();
    let error_now = ended.as_ref().err().map(|error| format!("{error:#}").replace(&folder, ""));
    let has_weights = capture.about["weights"].is_null();
    let (is_same, verdict) = match (error_then, &error_now, &ended) {
        (Some(then), Some(now), _) if plain(then) == plain(now) => (true, format!("the same error: {now}")),
        (Some(_), Some(now), _) => (false, format!("another error: {now}")),
        (Some(then), None, _) => (false, format!("no error any more; it was: {then}")),
        (None, Some(now), _) if then.is_null() => (true, format!("it ended the process then; now: {now}")),
        (None, Some(now), _) => (false, format!("an error that was not there: {now}")),
        (None, None, Ok(_)) if then.is_null() => {
            (false, "it ended the process then, and ends well now".to_string())
        }
        (None, None, Ok(_)) if !has_weights => {
            (true, "it ends well, as it did; without the weights outputs are others".to_string())
        }
        (None, None, Ok(outputs)) => compared(&capture.outputs, outputs),
        (None, None, Err(_)) => (false, String::new()),
    };
    let about = |name: &str| capture.about[name].as_str().unwrap_or("?").to_string();
    if !args.json.replaces_tables() {
        writeln!(out, "made    by Planish {} on {}", about("planish"), about("machine"))?;
        writeln!(out, "replay  {}: {verdict}", if is_same { "reproduced" } else { "NOT reproduced" })?;
    }
    let report = json!({
        "file": args.file, "reproduced": is_same, "verdict": verdict, "error_then": error_then, "error_now": error_now,
        "made_by": about("planish"), "machine": about("machine"),
    });
    print::json(out, &args.json, &report)?;
    Ok(if is_same { Answer::Yes } else { Answer::No })
}

/// An error without the names of files, which differ from place to place.
fn plain(error: &str) -> String {
    let is_path = |word: &&str| word.contains('/');
    error.split_whitespace().filter(|word| !is_path(word)).collect::<Vec<_>>().join(" ")
}

/// Results on another machine differ in their last digits; beyond this they are others.
const SAME: f64 = 1e-4;

fn compared(then: &NamedOutputs, now: &NamedOutputs) -> (bool, String) {
    if then.len() != now.len() {
        return (false, format!("{} outputs, there were {}", now.len(), then.len()));
    }
    let mut worst = (0.0, String::new());
    for ((name, then), (_, now)) in then.iter().zip(now) {
        let mut metrics = Metrics::default();
        metrics.add(now, then);
        let apart = metrics.relative_l2();
        if apart > worst.0 {
            worst = (apart, name.clone());
        }
    }
    let (apart, name) = worst;
    match () {
        () if apart == 0.0 => (true, "the same outputs to the last bit".to_string()),
        () if apart <= SAME => (true, format!("the same outputs but for rounding ({apart:.1e} at `{name}`)")),
        () => (false, format!("other outputs: relative L2 error {apart:.1e} at `{name}`")),
    }
}

#[cfg(test)]
mod tests {
    use planish::Tensor;

    use super::*;

    #[test]
    fn outputs_are_held_against_each_other() {
        let one = |value: f32| vec![("y".to_string(), Tensor::vector(vec![1.0, value]))];
        assert!(compared(&one(1.0), &one(1.0)).1.contains("last bit"));
        assert!(compared(&one(1.0), &one(1.000_001)).0 && !compared(&one(1.0), &one(1.1)).0);
        assert!(!compared(&one(1.0), &one(f32::NAN)).0 && !compared(&one(1.0), &Vec::new()).0);
        assert_eq!(plain("/tmp/a: cannot read /tmp/b"), "cannot read");
    }
}
