//! ResNet-18 over image sizes, batches and approaches: 100 runs each, a tenth of them trimmed at both ends.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use planish::io::{Random, npy};
use planish::{DType, Tensor};

use super::bench::{Asked, Bench, stats};
use super::report::Report;
use crate::page::chart::{Chart, Point, Series, Spread};
use crate::stats::Stats;
use crate::{files, onnxruntime, say_note};

const SIZES: [usize; 4] = [224, 256, 384, 512];
const BATCHES: [usize; 3] = [1, 4, 8];
const RUNS: usize = 100;
/// A cell of the matrix that would take longer gets fewer runs, and the table says how many.
const MOST: Duration = Duration::from_secs(8);
const CALIBRATION: u64 = 4;

/// A measured cell.
struct Cell {
    approach: String,
    size: usize,
    batch: usize,
    runs: usize,
    stats: Stats,
    memory: Option<usize>,
    flops: f64,
}

impl Cell {
    fn fps(&self) -> f64 {
        1e3 * self.batch as f64 / self.stats.trimmed_mean
    }
}

pub(super) fn run(bench: &mut Bench, python: &Path, folder: &Path, report: &mut Report<'_>) -> Result<()> {
    let (sizes, batches, runs): (&[usize], &[usize], usize) = match bench.is_short {
        true => (&SIZES[..1], &[1, 2], 3),
        false => (&SIZES, &BATCHES, RUNS),
    };
    report.text(&format!(
        "Random weights; {runs} runs a cell (fewer where {} s are not enough), the fastest and the slowest 10 % left \
         out; inputs and outputs on the host. FPS are images per second; speed-up is over ONNX Runtime in FP32 on the CPU where \
         it is installed, else over FP32.",
        MOST.as_secs()
    ))?;
    let runtime = onnxruntime::version(python);
    report.text(&match &runtime {
        Ok(version) => format!("ONNX Runtime {version}."),
        Err(_) => "ONNX Runtime is not there, and not compared with; --python names a Python that has it."
            .to_string(),
    })?;
    let mut cells = Vec::new();
    for &size in sizes {
        let model = bench.model(&format!("resnet18_{size}"), 1)?;
        let input = |batch: usize, seed: u64| -> Result<Tensor> {
            Ok(Random::new(seed).tensor(DType::F32, &[batch, 3, size, size])?)
        };
        let flops = 2.0 * multiply_adds(size);
        if runtime.is_ok() {
            let path = folder.join(format!("resnet18_{size}.onnx"));
            let bytes = planish_zoo::onnx(&format!("resnet18_{size}"), 1)?;
            files::write(&path, |file| file.write_all(&bytes))?;
            for &batch in batches {
                let inputs = folder.join("input.npz");
                npy::save_archive(&inputs, &[("x".to_string(), input(batch, 2)?)])?;
                match onnxruntime::times(python, &path, &inputs, runs, MOST) {
                    Ok(times) => cells.push(Cell {
                        approach: "ONNX Runtime FP32".to_string(),
                        size,
                        batch,
                        runs: times.len(),
                        stats: stats(&times),
                        memory: None,
                        flops,
                    }),
                    Err(error) => say_note(&format!("{error:#}")),
                }
                let _ = std::fs::remove_file(&inputs);
            }
            let _ = std::fs::remove_file(&path);
        }
        let samples = (0..CALIBRATION).map(|seed| input(1, 100 + seed)).collect::<Result<Vec<_>>>()?;
        let calibration = bench.calibrate(&model, samples)?;
        for precision in bench.precisions() {
            let most = batches.last().copied().unwrap_or(1) as i64;
            let asked = Asked {
                precision,
                batches: [1, most, most],
                calibration: precision.quantizes().then_some(&calibration),
            };
            let (plan, _) = bench.build(&model, asked)?;
            let engine = bench.engine(plan)?;
            for &batch in batches {
                let mut context = engine.context()?;
                let times = bench.time(&mut context, &input(batch, 2)?, runs, MOST)?;
                cells.push(Cell {
                    approach: precision.name().to_uppercase(),
                    size,
                    batch,
                    runs: times.len(),
                    stats: stats(&times),
                    memory: Some(
                        engine.weight_bytes() + context.arena_bytes() + context.memory().device_arena,
                    ),
                    flops,
                });
            }
        }
    }
    show(&cells, report)
}

/// Multiplications and additions of one image: the convolutions and the last layer.
fn multiply_adds(size: usize) -> f64 {
    // 3.64 GFLOP at 224, as `planish inspect` counts them; convolutions grow with the area.
    1.819e9 * (size as f64 / 224.0).powi(2)
}

fn show(cells: &[Cell], report: &mut Report<'_>) -> Result<()> {
    let headings = [
        "size",
        "batch",
        "approach",
        "runs",
        "mean ms",
        "std ms",
        "FPS",
        "speed-up",
        "memory MB",
        "TMAC/s",
        "TFLOP/s",
    ];
    let mut rows = vec![headings.map(String::from).to_vec()];
    let base = |cell: &Cell| {
        let at = |approach: &str| {
            cells.iter().find(|other| {
                other.approach == approach && other.size == cell.size && other.batch == cell.batch
            })
        };
        at("ONNX Runtime FP32").or_else(|| at("FP32")).map(Cell::fps)
    };
    let mut sorted: Vec<&Cell> = cells.iter().collect();
    sorted.sort_by_key(|cell| (cell.size, cell.batch));
    for cell in sorted {
        let flop_rate = cell.flops * cell.fps() / 1e12;
        rows.push(vec![
            cell.size.to_string(),
            cell.batch.to_string(),
            cell.approach.clone(),
            cell.runs.to_string(),
            format!("{:.3}", cell.stats.trimmed_mean),
            format!("{:.3}", cell.stats.trimmed_std),
            format!("{:.1}", cell.fps()),
            base(cell).map_or("–".to_string(), |base| format!("{:.2}", cell.fps() / base)),
            cell.memory.map_or("–".to_string(), |bytes| format!("{:.1}", bytes as f64 / 1e6)),
            format!("{:.3}", flop_rate / 2.0),
            format!("{flop_rate:.3}"),
        ]);
    }
    report.heading("The matrix")?;
    report.table(rows, 3)?;
    let mut approaches: Vec<&str> = Vec::new();
    for cell in cells {
        if !approaches.contains(&cell.approach.as_str()) {
            approaches.push(&cell.approach);
        }
    }
    let most = cells.iter().map(|cell| cell.batch).max();
    let chart = |title: &str, x_label: &str, y_label: &str, keep: &dyn Fn(&Cell) -> Option<(f64, f64)>| {
        let line = |approach: &&str| {
            let points = cells.iter().filter(|cell| cell.approach == **approach).filter_map(|cell| {
                let (x, y) = keep(cell)?;
                let about = format!("{approach} at {}, batch {}: {y:.3}", cell.size, cell.batch);
                Some(Point { x, y, about })
            });
            Series { name: approach.to_string(), points: points.collect(), is_scattered: false }
        };
        Chart {
            title: title.to_string(),
            x_label: x_label.to_string(),
            y_label: y_label.to_string(),
            x: Spread::Close,
            series: approaches.iter().map(line).collect(),
            ..Chart::default()
        }
    };
    let smallest = cells.iter().map(|cell| cell.size).min();
    report.chart(
        "fps_over_size",
        chart("Images per second over size, batch 1", "size", "images per second", &|cell| {
            (cell.batch == 1).then(|| (cell.size as f64, cell.fps()))
        }),
    );
    report.chart(
        "fps_over_batch",
        chart("Images per second over batch, smallest size", "batch", "images per second", &|cell| {
            (Some(cell.size) == smallest).then(|| (cell.batch as f64, cell.fps()))
        }),
    );
    report.chart(
        "speed_up_over_size",
        chart("Speed-up over size, largest batch", "size", "times the first approach", &|cell| {
            let base = base(cell)?;
            (Some(cell.batch) == most).then(|| (cell.size as f64, cell.fps() / base))
        }),
    );
    Ok(())
}
