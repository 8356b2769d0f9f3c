//! What a sweep comes to: from which batch on nothing is gained, which size suits the machine best, what a precision gives.

use super::row::Row;

/// A batch is enough where it gives this part of the most that any batch gives.
const SATURATED: f64 = 0.95;

/// Rows that differ in nothing but what `varies` takes out of the rest.
fn groups<'r>(rows: &[&'r Row], rest: impl Fn(&Row) -> String) -> Vec<(String, Vec<&'r Row>)> {
    let mut groups: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in rows.iter().filter(|row| row.failed.is_none()) {
        let key = rest(row);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(row),
            None => groups.push((key, vec![row])),
        }
    }
    groups
}

/// The smallest batch from which on more gives next to nothing, with its rate; `None` where no larger one was tried.
pub(super) fn saturation<'r>(rows: &[&'r Row]) -> Option<&'r Row> {
    let rate = |row: &Row| row.number("samples_per_second").unwrap_or(0.0);
    let most = rows.iter().map(|row| rate(row)).fold(0.0, f64::max);
    let largest = rows.iter().map(|row| row.batch).max()?;
    let enough = rows.iter().filter(|row| rate(row) >= SATURATED * most).min_by_key(|row| row.batch)?;
    (rows.len() > 1 && enough.batch < largest).then_some(*enough)
}

/// Sentences, the most useful first.
pub(super) fn of(rows: &[&Row]) -> Vec<String> {
    let mut found = Vec::new();
    let rate = |row: &Row| row.number("samples_per_second").unwrap_or(0.0);
    for (_, group) in groups(rows, |row| row.family.clone()) {
        let Some(best) = group.iter().max_by(|a, b| rate(a).total_cmp(&rate(b))) else { continue };
        found.push(format!(
            "{}: at most {:.1} samples a second, at size {}, batch {}, {}",
            best.family,
            rate(best),
            best.size,
            best.batch,
            best.how()
        ));
    }
    for (_, group) in groups(rows, |row| format!("{} {} {}", row.family, row.size, row.how())) {
        let first = group[0];
        let place = format!("{} at {}, {}", first.family, first.size, first.how());
        match saturation(&group) {
            Some(row) => found.push(format!(
                "{place}: saturated at batch {} ({:.1} samples a second; larger ones give less than {:.0} % more)",
                row.batch,
                rate(row),
                100.0 * (1.0 / SATURATED - 1.0)
            )),
            None if group.len() > 1 => found.push(format!("{place}: not saturated, the largest batch is still faster")),
            None => {}
        }
    }
    let tflops = |row: &Row| row.number("tflop_per_second").unwrap_or(0.0);
    for (_, group) in groups(rows, |row| format!("{} {}", row.family, row.how())) {
        let mut sizes: Vec<usize> = group.iter().map(|row| row.size).collect();
        sizes.dedup();
        if sizes.len() < 2 {
            continue;
        }
        let Some(best) = group.iter().max_by(|a, b| tflops(a).total_cmp(&tflops(b))) else { continue };
        let share = best.number("compute_peak_share");
        let share = share.map_or_else(String::new, |share| format!(", {:.0} % of the peak", 100.0 * share));
        found.push(format!(
            "{}, {}: size {} uses the machine best ({:.3} TFLOP/s{share}, at batch {})",
            best.family,
            best.how(),
            best.size,
            tflops(best),
            best.batch
        ));
    }
    found.extend(gains(rows));
    let n_restless = rows.iter().filter(|row| row.number("restless") == Some(1.0)).count();
    if n_restless > 0 {
        found.push(format!(
            "the machine was restless during {n_restless} of {} measurements: their times are upper bounds",
            rows.len()
        ));
    }
    found
}

/// What each precision gives against FP32 at the same setting, in the geometric mean.
fn gains(rows: &[&Row]) -> Vec<String> {
    let mut gains = Vec::new();
    for (_, group) in
        groups(rows, |row| format!("{} {} {} {}", row.family, row.precision, row.device, row.threads))
    {
        let ratios: Vec<f64> = group.iter().filter_map(|row| speed_up(row, rows)).collect();
        let first = group[0];
        if ratios.is_empty() || first.precision == "fp32" {
            continue;
        }
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        let error = group.iter().filter_map(|row| row.number("relative_l2")).fold(0.0, f64::max);
        gains.push(format!(
            "{}, {}: {mean:.2} times fp32 in the geometric mean of {}, relative L2 error up to {error:.1e}",
            first.family,
            first.how(),
            ratios.len()
        ));
    }
    gains
}

/// How many times faster a row is than FP32 at the same setting.
pub(super) fn speed_up(row: &Row, rows: &[&Row]) -> Option<f64> {
    let is_base = |other: &&&Row| {
        let same = (&other.family, other.size, other.batch, &other.device, other.threads)
            == (&row.family, row.size, row.batch, &row.device, row.threads);
        same && other.precision == "fp32"
    };
    let base = rows.iter().find(is_base)?;
    Some(base.number("median_ms")? / row.number("median_ms").filter(|ms| *ms > 0.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(size: usize, batch: usize, precision: &str, samples: f64) -> Row {
        let numbers = [
            ("samples_per_second", samples),
            ("median_ms", 1e3 * batch as f64 / samples),
            ("tflop_per_second", samples * (size * size) as f64 / 1e7),
            ("relative_l2", 1e-3),
        ];
        Row {
            family: "net".into(),
            device: "cpu".into(),
            precision: precision.into(),
            size,
            batch,
            threads: 2,
            numbers: numbers.map(|(name, value)| (name.to_string(), value)).into(),
            ..Row::default()
        }
    }

    #[test]
    fn what_a_sweep_comes_to_is_said() {
        let rows = [
            row(224, 1, "fp32", 50.0),
            row(224, 8, "fp32", 97.0),
            row(224, 16, "fp32", 100.0),
            row(256, 1, "fp32", 45.0),
            row(224, 1, "fp16", 99.9),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        let found = of(&rows).join("\n");
        for text in [
            "at most 100.0 samples a second, at size 224, batch 16, fp32",
            "saturated at batch 8 (97.0 samples a second",
            "size 224 uses the machine best",
            "2.00 times fp32 in the geometric mean of 1, relative L2 error up to 1.0e-3",
        ] {
            assert!(found.contains(text), "{text} is not in\n{found}");
        }
        assert_eq!(saturation(&rows[..2]).map(|row| row.batch), None);
    }
}
