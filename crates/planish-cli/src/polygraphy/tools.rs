//! Polygraphy's other tools, in the words of commands that are here: `planish inspect`, `extract`, `surgeon`, `check`, `debug`.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, anyhow, bail, ensure};
use clap::Parser;
use planish::io::npy;

use super::{building, check_targets, inputs, say_without_effect};
use crate::args::{
    Args, PolygraphyCheck, PolygraphyConvert, PolygraphyDebug, PolygraphyInspect, PolygraphySurgeon,
};
use crate::ending::Answer;
use crate::files::{self, Kind};
use crate::scratch::Scratch;
use crate::{load, say_note, usage};

/// What Polygraphy calls the file that a check looks at.
const DEBUGGED: &str = "polygraphy_debug.onnx";

/// Runs another command of ours.
fn command(words: &[&str], out: &mut dyn Write) -> Result<Answer> {
    let args = Args::try_parse_from([&["planish"], words].concat())
        .map_err(|error| anyhow!(usage::line(&error).unwrap_or_else(|| error.to_string())))?;
    crate::command(args, out)
}

fn text(path: &Path) -> Result<&str> {
    match path.to_str() {
        Some(text) => Ok(text),
        None => bail!("{}: the name is no text; give the file another one", path.display()),
    }
}

/// Each word after the flag, if there are any.
fn flag<'a>(words: &mut Vec<&'a str>, flag: &'a str, values: &'a [String]) {
    if !values.is_empty() {
        words.push(flag);
        words.extend(values.iter().map(String::as_str));
    }
}

pub(super) fn convert(args: &PolygraphyConvert, out: &mut dyn Write) -> Result<Answer> {
    let run = &args.run;
    ensure!(
        args.convert_to == "trt",
        "--convert-to {}: models become plans (trt); `planish simplify` and `planish surgeon` write .onnx",
        args.convert_to
    );
    say_without_effect(run);
    load::readable(&run.model)?;
    ensure!(!load::is_plan(&run.model), "{} is a plan; give the .onnx file", run.model.display());
    check_targets(run)?;
    files::check_target(&args.output, Kind::Plan, &[&run.model])?;
    let begun = Instant::now();
    let made = load::build(&run.model, &building(run)?)?;
    for path in std::iter::once(&args.output).chain(&run.save_engine) {
        made.plan.save(path)?;
        writeln!(out, "[I] Saving engine to {}", path.display())?;
    }
    writeln!(out, "[I] PASSED | Runtime: {:.3}s", begun.elapsed().as_secs_f64())?;
    Ok(Answer::Yes)
}

pub(super) fn inspect(args: &PolygraphyInspect, out: &mut dyn Write) -> Result<Answer> {
    match args {
        PolygraphyInspect::Model { model, show, mode, .. } => {
            let path = text(model)?;
            let is_shown = |what: &[&str]| show.iter().chain(mode).any(|word| what.contains(&word.as_str()));
            let known = ["layers", "attrs", "weights", "none", "basic", "full"];
            if let Some(word) = show.iter().chain(mode).find(|word| !known.contains(&word.as_str())) {
                bail!("`{word}` is nothing that could be shown; give layers, attrs or weights");
            }
            command(&["inspect", path], out)?;
            match load::is_plan(model) {
                true if is_shown(&["layers", "attrs", "weights", "basic", "full"]) => {
                    command(&["inspect", path, "--layers"], out)
                }
                false if is_shown(&["layers", "attrs", "weights", "basic", "full"]) => {
                    command(&["inspect", path, "--graph"], out)
                }
                _ => Ok(Answer::Yes),
            }
        }
        PolygraphyInspect::Data { file, show_values, .. } => {
            let arrays = npy::read_archive(file, &npy::accept_all)?;
            writeln!(out, "[I] ==== Data ({} arrays) ====", arrays.len())?;
            for (name, tensor) in &arrays {
                let values = tensor.to_f64s();
                let (low, high, sum) = values
                    .iter()
                    .fold((f64::INFINITY, f64::NEG_INFINITY, 0.0), |(low, high, sum), &value| {
                        (low.min(value), high.max(value), sum + value)
                    });
                let mean = sum / values.len().max(1) as f64;
                let shape = tensor.shape();
                writeln!(
                    out,
                    "    {name} [dtype={}, shape={shape:?}] | min={low:.6}, max={high:.6}, mean={mean:.6}",
                    tensor.dtype()
                )?;
                if *show_values {
                    let words: Vec<String> = values.iter().map(f64::to_string).collect();
                    writeln!(out, "        [{}]", words.join(", "))?;
                }
            }
            Ok(Answer::Yes)
        }
        PolygraphyInspect::Capability { model } => command(&["check", text(model)?], out),
    }
}

pub(super) fn surgeon(args: &PolygraphySurgeon, out: &mut dyn Write) -> Result<Answer> {
    match args {
        PolygraphySurgeon::Extract { model, inputs, outputs, output } => {
            let plain: Vec<String> = outputs.iter().map(|text| without_type(text)).collect();
            let mut words = vec!["extract", text(model)?, "-o", text(output)?];
            flag(&mut words, "--inputs", inputs);
            flag(&mut words, "--outputs", &plain);
            command(&words, out)
        }
        PolygraphySurgeon::Sanitize { model, fold_constants, override_input_shapes, output, .. } => {
            let scratch = Scratch::new("polygraphy")?;
            let reshaped = scratch.path().join("reshaped.onnx");
            let mut source = text(model)?;
            if !override_input_shapes.is_empty() {
                let shapes =
                    override_input_shapes.iter().map(|text| dimensions(text)).collect::<Result<Vec<_>>>()?;
                let mut words = vec!["surgeon", "reshape", source, "-o", text(&reshaped)?];
                flag(&mut words, "--inputs", &shapes);
                command(&words, &mut std::io::sink())?;
                source = text(&reshaped)?;
            }
            let mut words = vec!["surgeon", "sanitize", source, "-o", text(output)?];
            if *fold_constants {
                words.push("--fold-constants");
            }
            command(&words, out)
        }
        PolygraphySurgeon::Insert { model, op, name, inputs, outputs, attrs, output } => {
            let mut words = vec!["surgeon", "insert", text(model)?, "--op", op, "-o", text(output)?];
            if let Some(name) = name {
                words.extend(["--name", name]);
            }
            flag(&mut words, "--inputs", inputs);
            flag(&mut words, "--outputs", outputs);
            flag(&mut words, "--attrs", attrs);
            command(&words, out)
        }
        PolygraphySurgeon::Prune { model, output } => {
            command(&["surgeon", "sparsify", text(model)?, "-o", text(output)?], out)
        }
    }
}

pub(super) fn check(args: &PolygraphyCheck, out: &mut dyn Write) -> Result<Answer> {
    let PolygraphyCheck::Lint { model } = args;
    command(&["check", text(model)?], out)
}

pub(super) fn debug(args: &PolygraphyDebug, out: &mut dyn Write) -> Result<Answer> {
    let PolygraphyDebug::Reduce { model, output, model_input_shapes, mode, show_output, check } = args;
    if mode.is_some() {
        say_note("--mode has no effect here: parts are chosen by halves, then node by node");
    }
    let shapes = model_input_shapes.iter().map(|text| inputs::shape(text)).collect::<Result<Vec<_>>>()?;
    let shapes = shapes.join(",");
    let asked = shell_words(check);
    let mut words = vec!["debug", "reduce", text(model)?, "-o", text(output)?, "--check", &asked];
    if !shapes.is_empty() {
        words.extend(["--shapes", &shapes]);
    }
    if *show_output {
        words.push("--show");
    }
    command(&words, out)
}

/// `y:float32` and `y:auto` without the type.
fn without_type(text: &str) -> String {
    let types = ["auto", "float", "double", "int", "uint", "bool", "bfloat", "string"];
    match text.rsplit_once(':') {
        Some((name, ty)) if !name.is_empty() && types.iter().any(|known| ty.starts_with(known)) => {
            name.to_string()
        }
        _ => text.to_string(),
    }
}

/// `x:[1,3,H]` as `planish surgeon reshape` takes it.
fn dimensions(text: &str) -> Result<String> {
    let Some((name, sizes)) = text.rsplit_once(':') else {
        bail!("`{text}` gives no shape; give NAME:[1,3,224,224]");
    };
    let plain: String = sizes.chars().filter(|c| !"[]()'\" ".contains(*c)).collect();
    Ok(format!("{name}:{plain}"))
}

/// The command as a shell takes it, with our word for the file that it looks at.
fn shell_words(words: &[String]) -> String {
    let one = |(place, word): (usize, &String)| match word.as_str() {
        DEBUGGED => "{}".to_string(),
        // Whoever types this command has ours, and not always theirs.
        "polygraphy" if place == 0 => "planish polygraphy".to_string(),
        // One word is a command line of its own.
        _ if words.len() == 1 => word.replace(DEBUGGED, "{}"),
        _ if word.chars().all(|c| c.is_alphanumeric() || "-_./:=,@%+".contains(c)) => word.clone(),
        _ => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.iter().enumerate().map(one).collect::<Vec<_>>().join(" ")
}
