//! NamedOutputs beside each other, by Polygraphy's statistics and tolerances.

use std::io::Write;

use anyhow::{Context, Result, bail};
use planish::Tensor;

use crate::args::PolygraphyRun;
use crate::compare::NamedOutputs;
use crate::print;

/// What Polygraphy allows where nothing is said.
const USUAL: f64 = 1e-5;

/// Which of the errors must be within the tolerances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Statistic {
    Elementwise,
    Max,
    Mean,
    Median,
    Quantile,
}

/// Tolerances of all outputs, and of single ones.
pub(super) struct Tolerances {
    atol: Vec<(String, f64)>,
    rtol: Vec<(String, f64)>,
    statistic: Statistic,
}

impl Tolerances {
    pub(super) fn new(args: &PolygraphyRun) -> Result<Tolerances> {
        let statistic = match args.check_error_stat.as_str() {
            "elemwise" => Statistic::Elementwise,
            "max" => Statistic::Max,
            "mean" => Statistic::Mean,
            "median" => Statistic::Median,
            "quantile" => Statistic::Quantile,
            other => bail!("--check-error-stat {other}: give elemwise, max, mean, median or quantile"),
        };
        Ok(Tolerances {
            atol: numbers("--atol", &args.atol)?,
            rtol: numbers("--rtol", &args.rtol)?,
            statistic,
        })
    }

    fn of(list: &[(String, f64)], name: &str) -> f64 {
        let own = list.iter().rev().find(|(known, _)| known == name);
        own.or_else(|| list.iter().rev().find(|(known, _)| known.is_empty()))
            .map_or(USUAL, |(_, value)| *value)
    }
}

/// `1e-4`, or `NAME:1e-4`.
fn numbers(flag: &str, texts: &[String]) -> Result<Vec<(String, f64)>> {
    let one = |text: &String| {
        let (name, number) = text.rsplit_once(':').unwrap_or(("", text));
        let number = number.parse::<f64>().ok().filter(|x| *x >= 0.0);
        Ok((name.to_string(), number.with_context(|| format!("{flag} {text}: give 1e-4 or NAME:1e-4"))?))
    };
    texts.iter().map(one).collect()
}

/// Whether no output has NaN or infinities.
pub(super) fn validate(runner: &str, iterations: &[NamedOutputs], out: &mut dyn Write) -> Result<bool> {
    let mut is_valid = true;
    for (name, tensor) in iterations.iter().flatten() {
        let values = tensor.to_f64s();
        let n_nan = values.iter().filter(|value| value.is_nan()).count();
        let n_inf = values.iter().filter(|value| value.is_infinite()).count();
        if n_nan + n_inf > 0 {
            is_valid = false;
            writeln!(out, "[E] FAILED | {runner} | Output: '{name}' has {n_nan} NaN and {n_inf} infinities")?;
        }
    }
    if is_valid {
        writeln!(out, "[I] PASSED | {runner} | Output Validation: no NaN, no infinities")?;
    }
    Ok(is_valid)
}

/// The errors of one output.
struct Errors {
    absolute: Vec<f64>,
    relative: Vec<f64>,
    /// Elements beyond `atol + rtol * |expected|`.
    n_beyond: usize,
    /// The element with the largest absolute error.
    worst: usize,
}

impl Errors {
    fn new(own: &[f64], expected: &[f64], atol: f64, rtol: f64, infinities_equal: bool) -> Errors {
        let mut errors = Errors { absolute: Vec::new(), relative: Vec::new(), n_beyond: 0, worst: 0 };
        for (idx, (&own, &expected)) in own.iter().zip(expected).enumerate() {
            let is_same = own == expected && (own.is_finite() || infinities_equal);
            let absolute = if is_same { 0.0 } else { (own - expected).abs() };
            // NaN on both sides, or an infinity: nothing can be said of the distance, so it is not within.
            let absolute = if absolute.is_nan() { f64::INFINITY } else { absolute };
            let relative = if absolute == 0.0 { 0.0 } else { absolute / expected.abs() };
            let is_within = absolute.is_finite() && absolute <= atol + rtol * expected.abs();
            errors.n_beyond += usize::from(!is_within && absolute != 0.0);
            if errors.absolute.get(errors.worst).is_none_or(|worst| absolute > *worst) {
                errors.worst = idx;
            }
            errors.absolute.push(absolute);
            errors.relative.push(if relative.is_nan() { f64::INFINITY } else { relative });
        }
        errors
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share.clamp(0.0, 1.0) * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(0.0)
}

/// Compares the outputs of one iteration, as far as both have them.
pub(super) fn outputs(
    args: &PolygraphyRun,
    tolerances: &Tolerances,
    own: &NamedOutputs,
    expected: &NamedOutputs,
    out: &mut dyn Write,
) -> Result<bool> {
    let mut all_pass = true;
    let mut n_compared = 0;
    for (name, tensor) in own {
        let Some((_, other)) = expected.iter().find(|(known, _)| known == name) else {
            writeln!(out, "[W]     Output: '{name}' is not among the others, and is not compared")?;
            continue;
        };
        n_compared += 1;
        all_pass &= one(args, tolerances, name, tensor, other, out)?;
        if !all_pass && args.fail_fast {
            break;
        }
    }
    if n_compared == 0 {
        bail!("the runners have no output of one name, so nothing can be compared");
    }
    Ok(all_pass)
}

fn one(
    args: &PolygraphyRun,
    tolerances: &Tolerances,
    name: &str,
    own: &Tensor,
    expected: &Tensor,
    out: &mut dyn Write,
) -> Result<bool> {
    let (atol, rtol) = (Tolerances::of(&tolerances.atol, name), Tolerances::of(&tolerances.rtol, name));
    let text = |tensor: &Tensor| format!("dtype={}, shape={:?}", tensor.dtype(), tensor.shape());
    writeln!(out, "[I]     Comparing Output: '{name}' ({}) with '{name}' ({})", text(own), text(expected))?;
    if own.shape() != expected.shape() && !(args.no_shape_check && own.len() == expected.len()) {
        writeln!(out, "[E]         FAILED | Output: '{name}' | Shapes differ")?;
        return Ok(false);
    }
    let (values, others) = (own.to_f64s(), expected.to_f64s());
    let errors = Errors::new(&values, &others, atol, rtol, args.infinities_compare_equal);
    let statistic = |list: &[f64]| match tolerances.statistic {
        Statistic::Elementwise | Statistic::Max => list.iter().copied().fold(0.0, f64::max),
        Statistic::Mean => mean(list),
        Statistic::Median => quantile(list, 0.5),
        Statistic::Quantile => quantile(list, args.error_quantile),
    };
    let (absolute, relative) = (statistic(&errors.absolute), statistic(&errors.relative));
    let passes = match tolerances.statistic {
        Statistic::Elementwise => errors.n_beyond == 0,
        // Either tolerance is enough, as in Polygraphy.
        _ => absolute <= atol || relative <= rtol,
    };
    writeln!(
        out,
        "[I]         Absolute Difference | max={}, mean={}, median={} | Relative Difference | max={}, mean={}, median={}",
        print::number(errors.absolute.iter().copied().fold(0.0, f64::max)),
        print::number(mean(&errors.absolute)),
        print::number(quantile(&errors.absolute, 0.5)),
        print::number(errors.relative.iter().copied().fold(0.0, f64::max)),
        print::number(mean(&errors.relative)),
        print::number(quantile(&errors.relative, 0.5)),
    )?;
    let (letter, word) = if passes { ("I", "PASSED") } else { ("E", "FAILED") };
    let within = if passes { "within" } else { "exceeds" };
    write!(
        out,
        "[{letter}]         {word} | Output: '{name}' | Difference {within} tolerance (rel={rtol}, abs={atol})"
    )?;
    if !passes {
        let at = errors.worst;
        write!(
            out,
            ", {} of {} elements beyond; the worst at {at}: {} and {}",
            errors.n_beyond,
            values.len(),
            values.get(at).copied().unwrap_or(f64::NAN),
            others.get(at).copied().unwrap_or(f64::NAN)
        )?;
    }
    writeln!(out)?;
    Ok(passes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_held_to_both_tolerances() {
        let beyond = |own: &[f64], expected: &[f64]| Errors::new(own, expected, 0.1, 0.01, false).n_beyond;
        assert_eq!(beyond(&[1.0, 100.0], &[1.1, 101.0]), 0);
        assert_eq!(beyond(&[1.0, 100.0], &[1.2, 102.0]), 2);
        assert_eq!(beyond(&[f64::NAN, f64::INFINITY], &[f64::NAN, f64::INFINITY]), 2);
        assert_eq!(Errors::new(&[f64::INFINITY], &[f64::INFINITY], 0.1, 0.0, true).n_beyond, 0);
        assert_eq!(Errors::new(&[1.0, 5.0, 2.0], &[1.0, 1.0, 1.0], 0.1, 0.0, false).worst, 1);
    }

    #[test]
    fn tolerances_may_be_of_one_output() {
        let list = numbers("--atol", &["1e-3".into(), "y:0.5".into()]).unwrap();
        assert_eq!((Tolerances::of(&list, "y"), Tolerances::of(&list, "z")), (0.5, 1e-3));
        assert_eq!(Tolerances::of(&[], "y"), USUAL);
        assert!(numbers("--atol", &["much".into()]).is_err() && numbers("--atol", &["-1".into()]).is_err());
    }
}
