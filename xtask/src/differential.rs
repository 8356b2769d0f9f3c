//! `cargo xtask differential`: seeded random cases of each operator against ONNX Runtime.

use std::collections::BTreeMap;
use std::fs;
use std::panic::AssertUnwindSafe;
use std::process::Command;

use anyhow::{Context, Result, bail};
use planish_op::Value;
use planish_tensor::{Bytes, DType, Tensor};

use crate::compare::{Tolerance, tensor_difference};
use crate::python::{run as run_command, venv};
use crate::{root, scratch};

/// Single precision: ONNX Runtime computes and accumulates in f32 with approximations of exp, tanh and erf of
/// a few ulp (6e-8 each); cancellation in sums of terms of size 10 leaves some 1e-5 absolute.
const SINGLE: Tolerance = Tolerance { relative: 1e-4, absolute: 2e-5 };
/// Double precision, likewise; some of ONNX Runtime's double kernels go through f32 tables.
const DOUBLE: Tolerance = Tolerance { relative: 1e-6, absolute: 1e-8 };
/// Half precision has 11 bits (5e-4); ONNX Runtime rounds in between where we round once.
const HALF: Tolerance = Tolerance { relative: 4e-3, absolute: 2e-3 };
/// bfloat16 has 8 bits (4e-3).
const BFLOAT: Tolerance = Tolerance { relative: 2e-2, absolute: 1e-2 };
/// Quantized results may fall on either side of the edge between two steps.
const QUANTIZED: Tolerance = Tolerance { relative: 0.0, absolute: 1.0 };
const EXACT: Tolerance = Tolerance { relative: 0.0, absolute: 0.0 };

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these operators (`ms.NAME` for com.microsoft).
    ops: Vec<String>,
    /// Where the random numbers start.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Cases per operator.
    #[arg(long, default_value_t = 80)]
    cases: usize,
    /// Print every disagreement instead of the first few of each operator.
    #[arg(long, short)]
    verbose: bool,
}

/// One case: a single-node model, its inputs, and what ONNX Runtime gave (`None` where not compared).
struct Case {
    description: String,
    model: Vec<u8>,
    inputs: Vec<Tensor>,
    outputs: Vec<Option<Tensor>>,
}

#[derive(Default)]
struct Count {
    same: usize,
    excepted: usize,
    different: Vec<String>,
}

/// Disagreements of one operator that are shown without `--verbose`.
const SHOWN: usize = 3;

pub(crate) fn run(options: &Options) -> Result<bool> {
    let folder = scratch().join("differential").join(format!("{}-{}", options.seed, std::process::id()));
    let python = venv()?;
    let mut command = Command::new(&python);
    command.args(["-m", "differential"]).arg(&folder);
    command.args([options.seed.to_string(), options.cases.to_string()]).args(&options.ops);
    run_command(command.current_dir(root().join("xtask/python"))).context("drawing cases")?;
    let exceptions = exceptions()?;
    let mut used = vec![false; exceptions.len()];
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        let op = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let count = counts.entry(op.clone()).or_default();
        for case in read_cases(&fs::read(&path)?).with_context(|| path.display().to_string())? {
            let Some(why) = disagreement(&case) else {
                count.same += 1;
                continue;
            };
            let line = format!("{}: {why}", case.description);
            match exceptions.iter().position(|(name, part, _)| *name == op && line.contains(part.as_str())) {
                Some(idx) => {
                    used[idx] = true;
                    count.excepted += 1;
                }
                None => count.different.push(line),
            }
        }
    }
    fs::remove_dir_all(&folder)?;
    if counts.is_empty() {
        bail!("no operator matches; see xtask/python/differential");
    }
    Ok(report(&counts, &exceptions, &used, options))
}

fn report(
    counts: &BTreeMap<String, Count>,
    exceptions: &[(String, String, String)],
    used: &[bool],
    options: &Options,
) -> bool {
    println!("{:<36} {:>6} {:>9} {:>10}", "operator", "same", "explained", "different");
    for (op, count) in counts {
        println!("{op:<36} {:>6} {:>9} {:>10}", count.same, count.excepted, count.different.len());
        let shown = if options.verbose { usize::MAX } else { SHOWN };
        for line in count.different.iter().take(shown) {
            println!("    {line}");
        }
    }
    for ((op, part, reason), _) in exceptions.iter().zip(used).filter(|(_, used)| **used) {
        println!("explained: {op} `{part}`: {reason}");
    }
    let n_ops =
        counts.values().filter(|count| count.same + count.excepted + count.different.len() > 0).count();
    let total = |of: fn(&Count) -> usize| counts.values().map(of).sum::<usize>();
    let (same, excepted) = (total(|count| count.same), total(|count| count.excepted));
    let different = total(|count| count.different.len());
    println!(
        "\n{n_ops} operators, {} cases with seed {}: {same} same, {excepted} explained, {different} different",
        same + excepted + different,
        options.seed
    );
    different == 0
}

/// `operator | part of the description or the difference | reason, citing ONNX` lines.
fn exceptions() -> Result<Vec<(String, String, String)>> {
    let path = root().join("xtask/suites/differential_exceptions.txt");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| match line.split('|').map(str::trim).collect::<Vec<_>>()[..] {
            [op, part, reason] => Ok((op.to_string(), part.to_string(), reason.to_string())),
            _ => bail!("{}: expected `operator | part | reason`: {line}", path.display()),
        })
        .collect()
}

fn read_cases(mut bytes: &[u8]) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    while !bytes.is_empty() {
        let n_blobs = take_u32(&mut bytes)? as usize;
        let blobs: Vec<&[u8]> = (0..n_blobs)
            .map(|_| {
                let len = take_u32(&mut bytes)? as usize;
                let (blob, rest) = bytes.split_at_checked(len).context("a record is cut off")?;
                bytes = rest;
                Ok(blob)
            })
            .collect::<Result<_>>()?;
        let [description, model, [n_inputs], tensors @ ..] = &blobs[..] else {
            bail!("a record is incomplete")
        };
        let tensor = |blob: &&[u8]| -> Result<Tensor> {
            Ok(planish_import::tensor(&planish_onnx::read_tensor(blob)?)?)
        };
        let (inputs, outputs) =
            tensors.split_at_checked(usize::from(*n_inputs)).context("a record has too few tensors")?;
        cases.push(Case {
            description: String::from_utf8_lossy(description).into_owned(),
            model: model.to_vec(),
            inputs: inputs.iter().map(tensor).collect::<Result<_>>()?,
            outputs: outputs
                .iter()
                .map(|blob| if blob.is_empty() { Ok(None) } else { tensor(blob).map(Some) })
                .collect::<Result<_>>()?,
        });
    }
    Ok(cases)
}

fn take_u32(bytes: &mut &[u8]) -> Result<u32> {
    let (head, rest) = bytes.split_first_chunk::<4>().context("a record is cut off")?;
    *bytes = rest;
    Ok(u32::from_le_bytes(*head))
}

/// How our result differs from ONNX Runtime's, if it does.
fn disagreement(case: &Case) -> Option<String> {
    let imported = match planish_import::import_bytes(&Bytes::from_vec(case.model.clone()), None) {
        Ok(imported) => imported,
        Err(error) => return Some(format!("import: {error}")),
    };
    let inputs = case.inputs.iter().cloned().map(Value::Tensor).collect();
    let outcome =
        std::panic::catch_unwind(AssertUnwindSafe(|| planish_ir::interpret(&imported.graph, inputs)));
    let outputs = match outcome {
        Ok(Ok(outputs)) => outputs,
        Ok(Err(error)) => return Some(format!("run: {error}")),
        Err(_) => return Some("panicked".to_string()),
    };
    outputs.iter().zip(&case.outputs).enumerate().find_map(|(idx, (actual, expected))| {
        let (Some(actual), Some(expected)) = (actual.as_tensor(), expected) else { return None };
        let tolerance = tolerance(&case.description, expected.dtype());
        tensor_difference(actual, expected, tolerance).map(|why| format!("output {idx} {why}"))
    })
}

fn tolerance(description: &str, dtype: DType) -> Tolerance {
    match dtype {
        DType::F32 => SINGLE,
        DType::F64 => DOUBLE,
        DType::F16 => HALF,
        DType::BF16 => BFLOAT,
        DType::U8 | DType::I8 | DType::U16 | DType::I16 => {
            let is_quantized = description.starts_with("Q") || description.starts_with("DynamicQuantize");
            if is_quantized { QUANTIZED } else { EXACT }
        }
        _ => EXACT,
    }
}
