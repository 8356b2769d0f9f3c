//! `planish zoo`: models of known kinds with seeded weights, written as ONNX.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use planish_zoo::ENTRIES;
use serde_json::json;

use crate::args::{Json, Zoo};
use crate::ending::Answer;
use crate::{files, print};

pub(crate) fn command(args: &Zoo, out: &mut dyn Write) -> Result<Answer> {
    let Some(name) = &args.name else {
        list(&args.json, out)?;
        return Ok(Answer::Yes);
    };
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.onnx")));
    if ENTRIES.iter().any(|entry| entry.name == name.as_str()) {
        files::check_target(&path, files::Kind::Onnx, &[])?;
    }
    let bytes = planish_zoo::onnx(name, args.seed)?;
    files::write(&path, |file| file.write_all(&bytes))?;
    if !args.json.replaces_tables() {
        writeln!(out, "{}: {} (seed {})", path.display(), print::bytes(bytes.len() as u64), args.seed)?;
    }
    let report = json!({"name": name, "file": path, "bytes": bytes.len(), "seed": args.seed});
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}

fn list(target: &Json, out: &mut dyn Write) -> Result<()> {
    if !target.replaces_tables() {
        let mut rows = vec![["model", "parameters", "what it is"].map(String::from).to_vec()];
        rows.extend(ENTRIES.iter().map(|entry| {
            vec![entry.name.into(), print::count(entry.n_parameters as u64), entry.about.into()]
        }));
        print::table(out, &rows, &[1])?;
        writeln!(
            out,
            "\nplanish zoo NAME -o FILE.onnx writes one; the weights are random, --seed chooses them."
        )?;
    }
    let models: Vec<_> = ENTRIES
        .iter()
        .map(|entry| json!({"name": entry.name, "parameters": entry.n_parameters, "about": entry.about}))
        .collect();
    print::json(out, target, &json!({"models": models}))
}
