//! What was measured of one case, as a line of the folder's file and as a row of the table.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::print;

/// One measurement. Numbers are kept by name, so that older files stay readable.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Row {
    pub(super) key: String,
    pub(super) family: String,
    pub(super) device: String,
    pub(super) precision: String,
    pub(super) size: usize,
    pub(super) batch: usize,
    pub(super) threads: usize,
    /// Why there are no numbers.
    pub(super) failed: Option<String>,
    pub(super) numbers: BTreeMap<String, f64>,
}

/// The numbers of a row, in the order of the table.
pub(super) const NUMBERS: [&str; 20] = [
    "median_ms",
    "median_low_ms",
    "median_high_ms",
    "mean_ms",
    "std_ms",
    "p90_ms",
    "p95_ms",
    "p99_ms",
    "ms_per_sample",
    "samples_per_second",
    "gflop",
    "tflop_per_second",
    "compute_peak_share",
    "memory_peak_share",
    "weight_bytes",
    "arena_bytes",
    "plan_bytes",
    "build_ms",
    "relative_l2",
    "restless",
];

impl Row {
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.numbers.get(name).copied()
    }

    /// What lines of charts are told apart by, besides size and batch.
    pub(super) fn how(&self) -> String {
        let s = if self.threads == 1 { "" } else { "s" };
        format!("{} on {}, {} thread{s}", self.precision, self.device, self.threads)
    }

    fn json(&self) -> Value {
        json!({
            "key": self.key, "model": self.family, "device": self.device, "precision": self.precision, "size": self.size,
            "batch": self.batch, "threads": self.threads, "failed": self.failed, "numbers": self.numbers,
        })
    }

    fn from_json(value: &Value) -> Option<Row> {
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_string);
        let count = |name: &str| value.get(name).and_then(Value::as_u64).map(|n| n as usize);
        let numbers = value.get("numbers").and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
        Some(Row {
            key: text("key")?,
            family: text("model")?,
            device: text("device")?,
            precision: text("precision")?,
            size: count("size")?,
            batch: count("batch")?,
            threads: count("threads")?,
            failed: text("failed"),
            numbers: numbers.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect(),
        })
    }
}

/// All rows of a folder, and where new ones go.
pub(super) struct Store {
    path: PathBuf,
    pub(super) rows: Vec<Row>,
}

impl Store {
    /// What is there already. A line that an interruption cut short is left out, and measured again.
    pub(super) fn open(folder: &Path, again: bool) -> Result<Store> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let path = folder.join("sweep.jsonl");
        let mut kept: Vec<(Row, String)> = Vec::new();
        let mut is_whole = true;
        if path.exists() {
            // Some other file of this name is left alone.
            crate::files::check_target(&path, crate::files::Kind::Json, &[])?;
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            is_whole = !again && (text.is_empty() || text.ends_with('\n'));
            for line in text.lines().filter(|_| !again) {
                let value: Option<Value> = serde_json::from_str(line).ok();
                match value.and_then(|value| Row::from_json(&value)) {
                    Some(row) => {
                        kept.retain(|(old, _)| old.key != row.key);
                        kept.push((row, line.to_string()));
                    }
                    None => is_whole = false,
                }
            }
        }
        if !is_whole {
            // Only whole lines, so that the next one begins where a line does.
            let text: String = kept.iter().map(|(_, line)| format!("{line}\n")).collect();
            crate::files::write(&path, |file| file.write_all(text.as_bytes()))?;
        }
        Ok(Store { path, rows: kept.into_iter().map(|(row, _)| row).collect() })
    }

    pub(super) fn find(&self, key: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.key == key)
    }

    /// Keeps a row, at once.
    pub(super) fn add(&mut self, row: Row) -> Result<()> {
        let write = || -> std::io::Result<()> {
            let mut file = OpenOptions::new().append(true).create(true).open(&self.path)?;
            file.write_all(format!("{}\n", row.json()).as_bytes())?;
            file.sync_data()
        };
        write().with_context(|| format!("cannot write {}", self.path.display()))?;
        self.rows.push(row);
        Ok(())
    }
}

/// Rows as CSV.
pub(super) fn csv(rows: &[&Row]) -> String {
    let mut text = format!("model,size,batch,precision,device,threads,{},failed\n", NUMBERS.join(","));
    for row in rows {
        let mut fields = vec![
            print::csv_field(&row.family),
            row.size.to_string(),
            row.batch.to_string(),
            row.precision.clone(),
            print::csv_field(&row.device),
            row.threads.to_string(),
        ];
        fields.extend(
            NUMBERS.iter().map(|name| row.number(name).map_or_else(String::new, |number| number.to_string())),
        );
        fields.push(print::csv_field(row.failed.as_deref().unwrap_or_default()));
        text.push_str(&fields.join(","));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_and_half_lines_do_not() {
        let folder = std::env::temp_dir().join(format!("planish-sweep-store-{}", std::process::id()));
        let row = |key: &str, ms: f64| Row {
            key: key.to_string(),
            family: "a, \"b\"".to_string(),
            numbers: [("median_ms".to_string(), ms)].into(),
            ..Row::default()
        };
        let mut store = Store::open(&folder, false).unwrap();
        store.add(row("one", 1.0)).unwrap();
        store.add(row("two", 2.0)).unwrap();
        let path = folder.join("sweep.jsonl");
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"key\": \"thr");
        std::fs::write(&path, text).unwrap();
        let mut again = Store::open(&folder, false).unwrap();
        assert_eq!(again.rows, store.rows);
        again.add(row("one", 3.0)).unwrap();
        let last = Store::open(&folder, false).unwrap();
        assert_eq!(last.find("one").unwrap().number("median_ms"), Some(3.0));
        assert_eq!(last.rows.len(), 2);
        assert!(Store::open(&folder, true).unwrap().rows.is_empty());
        let csv = csv(&[&row("one", 1.5)]);
        assert!(csv.starts_with("model,size,") && csv.contains("\"a, \"\"b\"\"\",0,0,,,0,1.5,"), "{csv}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
