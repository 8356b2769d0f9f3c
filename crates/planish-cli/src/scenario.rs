//! `planish demo --scenario`: what people come for, start to end, as a table and plots of the machine at hand
//! (docs/scenarios).

mod bench;
mod classifier;
mod generation;
mod microscopy;
mod report;
mod resnet18;

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::args::{Demo, Scenario};
use crate::{load, print};
use bench::Bench;
use report::Report;

pub(crate) fn command(args: &Demo, scenario: Scenario, out: &mut dyn Write) -> Result<()> {
    let folder = match &args.folder {
        Some(folder) => folder.as_path(),
        None => Path::new("results"),
    };
    if folder.is_file() {
        bail!("cannot write into {}: it is a file, not a folder", folder.display());
    }
    if args.model.is_some() && scenario != Scenario::Classifier {
        bail!("--model is for the scenario `classifier`; the others bring their own");
    }
    load::check_device(args.device)?;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let start = Instant::now();
    let title = match scenario {
        Scenario::Generation => "Image generation: three engines in a tight loop",
        Scenario::Microscopy => "Microscopy: three networks in three precisions",
        Scenario::Resnet18 => "ResNet-18 over sizes, batches and approaches",
        Scenario::Classifier => "A trained classifier from ONNX to plans",
    };
    let mut bench = Bench::new(args.device, args.short);
    let mut report = Report::new(title, out)?;
    report.text(&match bench.on_gpu() {
        true => format!("On {}.", args.device.describe()?),
        false => "On the CPU: no GPU is used.".to_string(),
    })?;
    if args.short {
        report.text("A small form: few sizes and runs, kernels by the cost model, plans not checked.")?;
    }
    match scenario {
        Scenario::Generation => generation::run(&mut bench, &mut report)?,
        Scenario::Microscopy => microscopy::run(&mut bench, &mut report)?,
        Scenario::Resnet18 => resnet18::run(&mut bench, &args.python, folder, &mut report)?,
        Scenario::Classifier => classifier::run(&mut bench, args, folder, &mut report)?,
    }
    report.text(&format!("All of it took {}.", print::seconds(start.elapsed().as_secs_f64())))?;
    report.write(folder)
}
