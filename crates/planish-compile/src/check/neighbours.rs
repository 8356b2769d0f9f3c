//! A row's bits must not change with what the other rows of its batch hold. Where two runs of two rows cost too much, one
//! does, and its row is compared with the run of that row alone.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

use planish_ir::{Graph, ValueId};
use planish_op::Value;
use planish_plan::{Check, Outcome, Plan};
use planish_runtime::{Context, Engine, Observed, RunError, tactic_at};
use planish_tensor::{Bytes, Tensor};

use super::inputs::Numbers;
use super::rows::{Rows, follow};
use super::whole::{MadeUp, distance, failed, passed};
use super::{Guilty, itself, skipped};

/// Larger batches are tried with fewer rows.
const MAX_FLOPS: u64 = itself::COSTLY_FLOPS;

/// What was made at the tuned sizes, of one row alone if that is what they are.
pub(super) struct Alone<'a> {
    pub(super) inputs: &'a [Value],
    pub(super) outputs: &'a [Value],
    /// How far a row may be from it in relative L2 norm; `None` where rounding may decide.
    pub(super) tolerance: Option<f64>,
    /// The plan's.
    pub(super) threads: usize,
    /// The other context that was run with other values, for whoever wants one that has seen such.
    pub(super) used: Option<Context>,
}

/// Which rows there are at some sizes.
struct Batch {
    sizes: Vec<(String, i64)>,
    n_rows: usize,
    /// The symbol of the first axis, where it has one.
    symbol: Option<String>,
}

/// Runs the plan twice with rows changed around one that is kept, at each of these sizes. `graphs` are the model as
/// it was given and as it was optimized: rows count as apart if one of them shows it.
pub(super) fn check(
    engine: &Engine,
    graphs: [&Graph; 2],
    all_sizes: &[Vec<(String, i64)>],
    made_up: MadeUp,
    alone: &mut Alone<'_>,
    checks: &mut Vec<Check>,
) -> Option<Guilty> {
    let plan = engine.plan();
    let mut done: Vec<Vec<(String, i64)>> = Vec::new();
    for sizes in all_sizes {
        let Some(batch) = batch(plan, graphs[0], sizes) else { continue };
        if done.contains(&batch.sizes) {
            continue;
        }
        done.push(batch.sizes.clone());
        let mut subject = "changed neighbour rows".to_string();
        if let Some(symbol) = &batch.symbol {
            subject.push_str(&format!(" at {symbol}={}", batch.n_rows));
        }
        let followed = graphs.map(|graph| followed(graph, &batch));
        let Some((graph, rows)) =
            graphs.iter().zip(&followed).find_map(|(graph, rows)| Some((graph, rows.as_ref().ok()?)))
        else {
            let why = followed.into_iter().find_map(Result::err).unwrap_or_default();
            checks.push(skipped(&subject, why));
            return None;
        };
        if super::flops_at(graphs[0], &batch.sizes) > MAX_FLOPS && batch.sizes != plan.header.tuned_at {
            checks.push(among_two(engine, graph, rows, &batch, made_up, alone));
            continue;
        }
        let (check, guilty) = compare(engine, graph, rows, &batch, made_up, alone, &subject);
        checks.push(check);
        if guilty.is_some() {
            return guilty;
        }
    }
    if done.is_empty() {
        checks.push(skipped("changed neighbour rows", "the plan takes one row at a time".to_string()));
    }
    None
}

/// The rows at these sizes, made at least two where the profiles allow it, and not more than can be paid.
fn batch(plan: &Plan, graph: &Graph, sizes: &[(String, i64)]) -> Option<Batch> {
    let first = plan.program.inputs.first()?;
    let shape = plan.program.values[*first as usize].ty.as_tensor()?.shape.clone()?;
    let dim = shape.dims().first()?;
    let flops = |sizes: &[(String, i64)]| super::flops_at(graph, sizes);
    let Some(symbol) = dim.as_symbol() else {
        let n_rows = dim.as_usize().filter(|&n| n >= 2)?;
        return Some(Batch { sizes: sizes.to_vec(), n_rows, symbol: None });
    };
    let range =
        plan.header.profiles.iter().flat_map(|profile| &profile.ranges).find(|range| range.symbol == symbol);
    let (least, most) = range.map_or((1, i64::MAX), |range| (range.min, range.max));
    let mut sizes = sizes.to_vec();
    let at = sizes.iter().position(|(known, _)| known == symbol)?;
    sizes[at].1 = sizes[at].1.max(2);
    let work = flops(&sizes);
    if work > MAX_FLOPS {
        let fewer = (sizes[at].1 as u64).saturating_mul(MAX_FLOPS) / work;
        sizes[at].1 = (fewer as i64).max(2);
    }
    let n_rows = sizes[at].1;
    let fits = n_rows >= least.max(2) && n_rows <= most;
    fits.then(|| Batch { n_rows: n_rows as usize, symbol: Some(symbol.to_string()), sizes })
}

fn followed(graph: &Graph, batch: &Batch) -> Result<Vec<Rows>, String> {
    let lookup = |name: &str| batch.sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
    let dims = |id: ValueId| graph.value(id).ty.as_tensor().and_then(|ty| ty.shape.as_ref()?.eval(&lookup));
    let has_rows = |id: ValueId| {
        let first = graph.value(id).ty.as_tensor().and_then(|ty| ty.shape.as_ref()?.get(0).cloned());
        first.is_some_and(|dim| match &batch.symbol {
            Some(symbol) => dim.as_symbol() == Some(symbol),
            None => dim.as_usize() == Some(batch.n_rows),
        })
    };
    follow(graph, batch.n_rows, &has_rows, &dims)
}

/// Two runs, and what one row of their outputs is.
fn compare(
    engine: &Engine,
    graph: &Graph,
    rows: &[Rows],
    batch: &Batch,
    made_up: MadeUp,
    alone: &mut Alone<'_>,
    subject: &str,
) -> (Check, Option<Guilty>) {
    let plan = engine.plan();
    let refused = |why: &str| (skipped(subject, why.to_string()), None);
    // At the tuned sizes it ran before.
    let is_tuned = batch.sizes == plan.header.tuned_at;
    let first = if is_tuned { Some(alone.inputs.to_vec()) } else { made_up.inputs(engine, &batch.sizes, 0) };
    let Some(first) = first else {
        return refused("inputs are not made up");
    };
    let row = batch.n_rows / 2;
    let of_name = |name: &str| graph.find(name).map_or(Rows::Shared, |id| rows[id.index()]);
    let mut numbers = Numbers::new(7);
    let second: Vec<Value> = plan
        .program
        .inputs
        .iter()
        .zip(&first)
        .map(|(&input, value)| match (value, of_name(&plan.program.values[input as usize].name)) {
            (Value::Tensor(tensor), Rows::Along(0)) => {
                Value::Tensor(around(tensor, row, batch.n_rows, &mut numbers))
            }
            _ => value.clone(),
        })
        .collect();
    let run = |inputs: &[Value]| {
        let mut context = itself::other_context(engine, alone.threads)?;
        Ok::<_, RunError>((context.run_values(inputs)?, context))
    };
    let one = if is_tuned { Ok(alone.outputs.to_vec()) } else { run(&first).map(|(one, _)| one) };
    let (Ok(one), Ok((two, context))) = (one, run(&second)) else {
        return refused("the run on made-up inputs ended");
    };
    if is_tuned {
        alone.used = Some(context);
    }
    let mut n_points = 0;
    let mut same = true;
    for ((one, two), &output) in one.iter().zip(&two).zip(&plan.program.outputs) {
        let (Value::Tensor(one), Value::Tensor(two)) = (one, two) else {
            return refused("an output is not a tensor");
        };
        let along = of_name(&plan.program.values[output as usize].name);
        let (one, two) = (part(one, along, row, batch.n_rows), part(two, along, row, batch.n_rows));
        n_points += one.len() as u64 / 4;
        same &= one == two;
    }
    if same {
        let outcome = Outcome::Passed;
        return (Check { subject: subject.to_string(), n_points, worst: 0.0, outcome }, None);
    }
    let guilty = guilty(engine, &of_name, [&first, &second], row, batch);
    let why = match &guilty {
        Some(guilty) => guilty.what.clone(),
        None => "a row's bits follow the rows around it, the threads or what memory held before".to_string(),
    };
    let outcome = Outcome::Failed(why);
    (Check { subject: subject.to_string(), n_points, worst: f64::INFINITY, outcome }, guilty)
}

/// One run of two rows of a costly model: its last row is the one that was run alone.
fn among_two(
    engine: &Engine,
    graph: &Graph,
    rows: &[Rows],
    batch: &Batch,
    made_up: MadeUp,
    alone: &mut Alone<'_>,
) -> Check {
    let plan = engine.plan();
    let subject = "a row alone against the same among two";
    let refused = |why: &str| skipped(subject, why.to_string());
    let n_alone = |(symbol, size): &(String, i64)| Some(symbol) == batch.symbol.as_ref() && *size == 1;
    if batch.n_rows != 2 || !plan.header.tuned_at.iter().any(n_alone) {
        return refused("two rows are too costly, and it was not run with one");
    }
    let Some(tolerance) = alone.tolerance else {
        return refused("rounding may decide otherwise");
    };
    let Some(inputs) = made_up.inputs(engine, &batch.sizes, 1) else {
        return refused("inputs are not made up");
    };
    let of_value = |value: u32| {
        let name = &plan.program.values[value as usize].name;
        graph.find(name).map_or(Rows::Shared, |id| rows[id.index()])
    };
    let mut both = Vec::with_capacity(inputs.len());
    for ((pair, kept), &input) in inputs.into_iter().zip(alone.inputs).zip(&plan.program.inputs) {
        both.push(match (&pair, kept, of_value(input)) {
            (Value::Tensor(pair), Value::Tensor(kept), Rows::Along(0)) => {
                let half = pair.bytes().len() / 2;
                if kept.bytes().len() != half {
                    return refused("a row does not begin with a byte");
                }
                let bytes = [&pair.bytes()[..half], kept.bytes()].concat();
                match Tensor::from_bytes(pair.dtype(), pair.shape(), Bytes::from_vec(bytes)) {
                    Ok(tensor) => Value::Tensor(tensor),
                    Err(error) => return refused(&error.to_string()),
                }
            }
            _ => kept.clone(),
        });
    }
    let context = itself::other_context(engine, alone.threads);
    let run = context.and_then(|mut context| Ok((context.run_values(&both)?, context)));
    let outputs = match run {
        Ok((outputs, context)) => {
            alone.used = Some(context);
            outputs
        }
        Err(error) => return refused(&format!("the run on made-up inputs ended: {error}")),
    };
    let (mut n_points, mut worst) = (0, 0.0f64);
    for ((pair, wanted), &output) in outputs.iter().zip(alone.outputs).zip(&plan.program.outputs) {
        let (Value::Tensor(pair), Value::Tensor(wanted)) = (pair, wanted) else {
            return refused("an output is not a tensor");
        };
        if pair.dtype().is_sub_byte() {
            return refused("an output has elements of less than a byte");
        }
        let bytes = Bytes::from_vec(part(pair, of_value(output), 1, 2));
        let distance = Tensor::from_bytes(wanted.dtype(), wanted.shape(), bytes)
            .map_err(|error| error.to_string())
            .and_then(|row| distance(&Value::Tensor(row), &Value::Tensor(wanted.clone())));
        match distance {
            Ok(distance) if distance <= tolerance => worst = worst.max(distance / tolerance),
            Ok(distance) => {
                let why = format!("relative L2 error {distance:.1e}");
                return failed(subject, distance / tolerance, why);
            }
            Err(why) => return failed(subject, f64::INFINITY, why),
        }
        n_points += wanted.len() as u64;
    }
    Check { n_points, ..passed(subject, worst) }
}

/// The same row among others: new numbers, larger ones, and NaN.
fn around(tensor: &Tensor, row: usize, n_rows: usize, numbers: &mut Numbers) -> Tensor {
    let Some(other) = numbers.tensor(tensor.dtype(), tensor.shape()) else { return tensor.clone() };
    let per_row = tensor.len() / n_rows.max(1);
    let is_float = tensor.dtype().is_float();
    let values: Vec<f64> = tensor
        .to_f64s()
        .into_iter()
        .zip(other.to_f64s())
        .enumerate()
        .map(|(at, (kept, new))| match at % 3 {
            _ if at / per_row.max(1) == row => kept,
            0 if is_float => f64::NAN,
            1 if is_float => new * 64.0,
            _ => new,
        })
        .collect();
    Tensor::from_f64s(tensor.dtype(), tensor.shape(), &values).unwrap_or_else(|_| tensor.clone())
}

/// The bytes of a row; all where rows share the value.
fn part(tensor: &Tensor, along: Rows, row: usize, n_rows: usize) -> Vec<u8> {
    let bytes = tensor.bytes();
    let Rows::Along(axis) = along else { return bytes.to_vec() };
    let dims = tensor.shape();
    let (Some(_), Some(element)) = (dims.get(axis), tensor.dtype().bytes_for(1)) else {
        return bytes.to_vec();
    };
    if tensor.dtype().is_sub_byte() {
        // Two or four elements share a byte, and a row may begin within one: each as a number of its own.
        let values: Vec<u8> = tensor.to_f64s().into_iter().flat_map(f64::to_le_bytes).collect();
        return blocks(&values, dims, axis, size_of::<f64>(), row, n_rows);
    }
    blocks(bytes, dims, axis, element, row, n_rows)
}

/// The bytes of a row whose elements have so many each.
fn blocks(bytes: &[u8], dims: &[usize], axis: usize, element: usize, row: usize, n_rows: usize) -> Vec<u8> {
    let size = dims[axis];
    let inner = dims[axis + 1..].iter().product::<usize>() * element;
    let block = size / n_rows.max(1) * inner;
    let n_blocks: usize = dims[..axis].iter().product();
    let begin = |at: usize| at * size * inner + row * block;
    (0..n_blocks).flat_map(|at| bytes[begin(at)..begin(at) + block].iter().copied()).collect()
}

/// The first step whose output's row differs.
fn guilty(
    engine: &Engine,
    of_name: &dyn Fn(&str) -> Rows,
    runs: [&[Value]; 2],
    row: usize,
    batch: &Batch,
) -> Option<Guilty> {
    let plan = engine.plan();
    let n_rows = batch.n_rows;
    let mut before: HashMap<(usize, usize), u64> = HashMap::new();
    let mut found = None;
    for (idx, inputs) in runs.into_iter().enumerate() {
        let mut observe = |observed: Observed| {
            if !observed.path.is_empty() {
                return;
            }
            let step = &plan.program.steps[observed.step];
            for (place, made) in observed.outputs.iter().enumerate() {
                let (Some(made), Some(Some(value))) = (made, step.outputs.get(place)) else { continue };
                let along = of_name(&plan.program.values[*value as usize].name);
                let mut hasher = DefaultHasher::new();
                hasher.write(&part(made, along, row, n_rows));
                let hash = hasher.finish();
                if idx == 0 {
                    before.insert((observed.step, place), hash);
                } else if found.is_none() && before.get(&(observed.step, place)) != Some(&hash) {
                    found = Some(observed.step);
                }
            }
        };
        engine.context().and_then(|mut context| context.observe(inputs, &mut observe)).ok()?;
    }
    let step = &plan.program.steps[found?];
    let tactic = tactic_at(step, &batch.sizes)?.clone();
    let what = format!("`{}` by {} lets a row follow the rows around it", step.name, tactic.name);
    Some(Guilty { tactic, what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_tensor::DType;

    #[test]
    fn a_row_of_elements_of_less_than_a_byte_is_found() {
        let values = |shift: f64| -> Vec<f64> {
            (0..15).map(|at| (at % 5) as f64 + shift * f64::from(at >= 5)).collect()
        };
        for dtype in [DType::I4, DType::U4] {
            let tensor = |shift| Tensor::from_f64s(dtype, &[3, 5], &values(shift)).unwrap();
            let row = |shift, row| part(&tensor(shift), Rows::Along(0), row, 3);
            assert_eq!(row(0.0, 0), row(1.0, 0), "the others do not count");
            assert_ne!(row(0.0, 2), row(1.0, 2));
            assert_eq!(part(&tensor(0.0), Rows::Along(1), 4, 5).len(), 3 * size_of::<f64>());
        }
    }
}
