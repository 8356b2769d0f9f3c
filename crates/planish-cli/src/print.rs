//! Tables, numbers and JSON, the same way in every command.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::args::Json;
use crate::files;

/// Rows under a heading; columns named in `right` are aligned there.
pub(crate) fn table(out: &mut dyn Write, rows: &[Vec<String>], right: &[usize]) -> io::Result<()> {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..n_columns).map(width).collect();
    for row in rows {
        let mut line = String::from(" ");
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
            line.push(' ');
            if right.contains(&column) {
                line.push_str(&pad);
                line.push_str(cell);
            } else {
                line.push_str(cell);
                line.push_str(&pad);
            }
            line.push(' ');
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Refuses a report's file before any work is done. Pipes and devices (`/dev/stdout`) take one as they are.
pub(crate) fn check_json(path: &Path, given: &[&Path]) -> Result<()> {
    if path.exists() && !path.is_file() && !path.is_dir() {
        return Ok(());
    }
    files::check_target(path, files::Kind::Json, given)
}

/// A report's JSON where it was asked for.
pub(crate) fn json(out: &mut dyn Write, json: &Json, value: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    if json.replaces_tables() {
        writeln!(out, "{text}")?;
    }
    if let Some(path) = json.file() {
        files::write(path, |file| writeln!(file, "{text}"))?;
    }
    Ok(())
}

/// `25557032` as `25,557,032`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (idx, digit) in digits.chars().enumerate() {
        if idx != 0 && (digits.len() - idx).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in decimal units, as storage is sold.
pub(crate) fn bytes(number: u64) -> String {
    let units = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    match units.iter().find(|(size, _)| number >= *size) {
        Some((size, unit)) => format!("{} {unit}", three_digits(number as f64 / *size as f64)),
        None => format!("{number} B"),
    }
}

/// Operations in the unit that suits them.
pub(crate) fn flops(number: u64) -> String {
    let units =
        [(1_000_000_000_000, "TFLOP"), (1_000_000_000, "GFLOP"), (1_000_000, "MFLOP"), (1_000, "kFLOP")];
    match units.iter().find(|(size, _)| number >= *size) {
        Some((size, unit)) => format!("{} {unit}", three_digits(number as f64 / *size as f64)),
        None => format!("{number} FLOP"),
    }
}

fn three_digits(number: f64) -> String {
    let decimals = match number {
        number if number >= 100.0 => 0,
        number if number >= 10.0 => 1,
        _ => 2,
    };
    format!("{number:.decimals$}")
}

/// Four digits of a number that may be anything.
pub(crate) fn number(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_string(),
        1e-3..1e6 => {
            let text = format!("{number:.4}");
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
        size if size.is_finite() => format!("{number:.3e}"),
        _ => number.to_string().to_lowercase(),
    }
}

/// Text as a field of CSV.
pub(crate) fn csv_field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

/// A duration in the unit that suits it.
pub(crate) fn seconds(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.3} ms", seconds * 1e3) } else { format!("{seconds:.3} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [count(0), count(999), count(1000), count(25_557_032)],
            ["0", "999", "1,000", "25,557,032"]
        );
        assert_eq!(
            [bytes(0), bytes(999), bytes(1000), bytes(102_400_000)],
            ["0 B", "999 B", "1.00 kB", "102 MB"]
        );
        assert_eq!(flops(8_178_000_000), "8.18 GFLOP");
        assert_eq!(
            [number(0.0), number(-0.25), number(1e-9), number(f64::NAN)],
            ["0", "-0.25", "1.000e-9", "nan"]
        );
        assert_eq!([csv_field("a b"), csv_field("a,\"b\"")], ["a b", "\"a,\"\"b\"\"\""]);
        assert_eq!([seconds(0.0015), seconds(2.5)], ["1.500 ms", "2.500 s"]);
    }

    #[test]
    fn columns_line_up() {
        let mut out = Vec::new();
        let rows = [vec!["a".into(), "1".into()], vec!["long".into(), "234".into()]];
        table(&mut out, &rows, &[1]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "  a       1\n  long  234\n");
    }
}
