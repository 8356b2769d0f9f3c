//! A trained classifier, from its ONNX file to plans in three precisions: every hop compared, accuracy on all images, speed
//! one by one and in batches, sizes.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use planish::graph::interpret_with;
use planish::io::npy;
use planish::{Accuracy, Context as Lane, Metrics, Model, Plan, Precision, Tensor, Value};

use super::bench::{Asked, Bench, input_name, output, stats};
use super::report::Report;
use crate::args::Demo;
use crate::demo::trained;
use crate::page::chart::{Chart, Point, Series, Spread};
use crate::{files, onnxruntime, print};

/// Images that the slow reference is asked for.
const ON_REFERENCE: usize = 4;
/// Images that run at once.
const BATCH: usize = 50;
const RUNS: usize = 200;
const MOST: Duration = Duration::from_secs(3);

/// Images as the model takes them, and their classes.
struct Data {
    images: Tensor,
    labels: Vec<usize>,
    calibration: Tensor,
}

impl Data {
    /// Some images in a row.
    fn take(&self, from: usize, n: usize) -> Result<Tensor> {
        rows(&self.images, from, n)
    }
}

fn rows(tensor: &Tensor, from: usize, n: usize) -> Result<Tensor> {
    let one: usize = tensor.shape()[1..].iter().product();
    let elements = tensor.elements::<f32>()?;
    let mut dims = tensor.shape().to_vec();
    dims[0] = n;
    Ok(Tensor::new(&dims, elements[from * one..(from + n) * one].to_vec())?)
}

fn open(args: &Demo, folder: &Path) -> Result<(Model, std::path::PathBuf, Data)> {
    let (Some(path), Some(data)) = (&args.model, &args.data) else {
        let path = folder.join("fashion_mnist.onnx");
        files::write(&path, |file| file.write_all(trained::MODEL))?;
        let (pixels, labels) = trained::images(trained::TEST)?;
        let (calibration, _) = trained::images(trained::CALIBRATION)?;
        let tensor =
            |pixels: Vec<f32>| Ok::<_, anyhow::Error>(Tensor::new(&[pixels.len() / 784, 1, 28, 28], pixels)?);
        let labels = labels.into_iter().map(usize::from).collect();
        return Ok((
            Model::open(&path)?,
            path,
            Data { images: tensor(pixels)?, labels, calibration: tensor(calibration)? },
        ));
    };
    let model = Model::open(path)?;
    let arrays = npy::read_archive(data, &npy::accept_all)?;
    let array = |name: &str| arrays.iter().find(|(own, _)| own == name).map(|(_, tensor)| tensor);
    let lacks = |name: &str| format!("{} has no array `{name}`", data.display());
    let floats = |name: &str| -> Result<Tensor> {
        let tensor = array(name).with_context(|| lacks(name))?;
        ensure!(tensor.shape().len() > 1, "`{name}` of {} is no list of images", data.display());
        Ok(Tensor::new(tensor.shape(), tensor.to_f64s().into_iter().map(|x| x as f32).collect::<Vec<f32>>())?)
    };
    let images = floats("images")?;
    let labels: Vec<usize> = array("labels")
        .with_context(|| lacks("labels"))?
        .to_f64s()
        .into_iter()
        .map(|class| class as usize)
        .collect();
    if labels.len() != images.shape()[0] || labels.is_empty() {
        bail!("{} has {} images and {} labels", data.display(), images.shape()[0], labels.len());
    }
    let calibration = floats("calibration")?;
    Ok((model, path.clone(), Data { images, labels, calibration }))
}

pub(super) fn run(bench: &mut Bench, args: &Demo, folder: &Path, report: &mut Report<'_>) -> Result<()> {
    let (model, path, data) = open(args, folder)?;
    let n = if bench.is_short { data.labels.len().min(2 * BATCH) } else { data.labels.len() };
    report.text(&match &args.model {
        Some(path) => format!("{}, {n} labelled images.", path.display()),
        None => format!(
            "A small classifier of clothes (Fashion-MNIST) that comes with Planish, on {n} images that it was not trained on; \
             --model and --data take another."
        ),
    })?;
    let calibration = {
        let n = data.calibration.shape()[0].min(if bench.is_short { 20 } else { 200 });
        let samples = (0..n).map(|at| rows(&data.calibration, at, 1)).collect::<Result<Vec<_>>>()?;
        bench.calibrate(&model, samples)?
    };
    let precisions = [Precision::Fp32, Precision::Fp16, Precision::Int8];
    let headings = [
        "in",
        "plan kB",
        "build s",
        "right",
        "accuracy %",
        "as FP32 %",
        "single, ms",
        "single, images/s",
        &format!("batch {BATCH}, images/s"),
    ];
    let mut table = vec![headings.map(String::from).to_vec()];
    let mut hops_table =
        vec![["in", "hop", "largest error", "relative L2", "top-1 as before %"].map(String::from).to_vec()];
    let mut exact: Vec<usize> = Vec::new();
    let mut points = Vec::new();
    for precision in precisions {
        let calibration = precision.quantizes().then_some(&calibration);
        let asked = Asked { precision, batches: [1, BATCH as i64, BATCH as i64], calibration };
        let (plan, built) = bench.build(&model, asked)?;
        let file = folder.join(format!("classifier.{}.plan", precision.name()));
        files::check_target(&file, files::Kind::Plan, &[&path])?;
        let n_bytes = plan.save(&file)?;
        hops_table.extend(hops(bench, &model, &plan, &file, &data, args)?.into_iter().map(|mut row| {
            row.insert(0, precision.name().to_uppercase());
            row
        }));
        let engine = bench.engine(plan)?;
        let mut context = engine.context()?;
        let classes = classify(&mut context, &data, n)?;
        if precision == Precision::Fp32 {
            exact.clone_from(&classes);
        }
        let right = classes.iter().zip(&data.labels).filter(|(a, b)| a == b).count();
        let same = classes.iter().zip(&exact).filter(|(a, b)| a == b).count();
        let runs = if bench.is_short { 10 } else { RUNS };
        let single = stats(&bench.time(&mut context, &data.take(0, 1)?, runs, MOST)?).median;
        let many = stats(&bench.time(&mut context, &data.take(0, BATCH.min(n))?, runs, MOST)?).median;
        let rate = 1e3 * BATCH.min(n) as f64 / many;
        let percent = |part: usize| format!("{:.2}", 100.0 * part as f64 / n as f64);
        table.push(vec![
            precision.name().to_uppercase(),
            format!("{:.0}", n_bytes as f64 / 1e3),
            format!("{:.1}", built.as_secs_f64()),
            format!("{right} of {n}"),
            percent(right),
            percent(same),
            format!("{single:.4}"),
            format!("{:.0}", 1e3 / single),
            format!("{rate:.0}"),
        ]);
        points.push(Point {
            x: rate,
            y: 100.0 * right as f64 / n as f64,
            about: format!("{}: {right} of {n} right, {rate:.0} images/s", precision.name().to_uppercase()),
        });
    }
    report.heading("Three plans")?;
    report.table(table, 1)?;
    report.text("Times count what is copied in and out. FP16 on a CPU stores weights in 16 bits and computes in FP32.")?;
    report.heading("Every hop")?;
    report.table(hops_table, 2)?;
    report.text(&format!(
        "The first {ON_REFERENCE} images; the reference computes every operator exactly as written. A plan that was written and \
         read again gives the same bits."
    ))?;
    report.chart(
        "accuracy_over_speed",
        Chart {
            title: "Accuracy over speed".to_string(),
            x_label: "images per second in batches".to_string(),
            y_label: "accuracy, %".to_string(),
            y: Spread::Close,
            series: vec![Series { name: "plans".to_string(), points, is_scattered: true }],
            ..Chart::default()
        },
    );
    report.text(&format!(
        "Plans: {}. A client in C++ is examples/c/classify_csv.cpp (docs/c.md); a plan of an earlier version is built again from the \
         graph that it carries (docs/plan-file.md).",
        folder.display()
    ))
}

/// The classes of the first images.
fn classify(context: &mut Lane, data: &Data, n: usize) -> Result<Vec<usize>> {
    let mut classes = Vec::with_capacity(n);
    for from in (0..n).step_by(BATCH) {
        let images = data.take(from, BATCH.min(n - from))?;
        let scores = output(context, &images)?;
        let scores = scores.elements::<f32>()?;
        let each = scores.len() / images.shape()[0];
        classes.extend(scores.chunks_exact(each).map(trained::class));
    }
    Ok(classes)
}

/// What each hop from the file to the plan that runs changes.
fn hops(
    bench: &Bench,
    model: &Model,
    plan: &Plan,
    file: &Path,
    data: &Data,
    args: &Demo,
) -> Result<Vec<Vec<String>>> {
    let n = if bench.is_short { 1 } else { ON_REFERENCE };
    let name = input_name(model)?;
    let images = (0..n).map(|at| data.take(at, 1)).collect::<Result<Vec<_>>>()?;
    let limits = planish::Limits::default();
    let reference = |graph: &planish::graph::Graph| -> Result<Vec<Tensor>> {
        images
            .iter()
            .map(|image| {
                let values = vec![Value::from(image.clone())];
                let made = interpret_with(graph, values, &limits, &mut |_, _| {})?;
                let first = made.first().and_then(Value::as_tensor).cloned();
                first.context("the model has no output that is a tensor")
            })
            .collect()
    };
    let on_plan = |plan: Plan| -> Result<Vec<Tensor>> {
        let mut context = bench.engine(plan)?.context()?;
        images.iter().map(|image| output(&mut context, image)).collect()
    };
    let mut made = vec![("original on the reference", reference(model.graph())?)];
    made.push(("optimized graph on the reference", reference(&Accuracy::of(plan.clone()).graph()?)?));
    made.push(("plan", on_plan(plan.clone())?));
    made.push(("plan, written and read again", on_plan(Plan::open(file)?)?));
    let mut rows = Vec::new();
    let mut tell = |what: String, got: &[Tensor], want: &[Tensor]| {
        let mut metrics = Metrics::default();
        got.iter().zip(want).for_each(|(got, want)| metrics.add(got, want));
        rows.push(vec![
            what,
            print::number(metrics.max_abs()),
            print::number(metrics.relative_l2()),
            metrics.top1().map_or("–".to_string(), |share| format!("{:.0}", 100.0 * share)),
        ]);
    };
    for pair in made.windows(2) {
        tell(format!("{} → {}", pair[0].0, pair[1].0), &pair[1].1, &pair[0].1);
    }
    tell("from the first to the last".to_string(), &made[3].1, &made[0].1);
    if onnxruntime::version(&args.python).is_ok() {
        let samples: Vec<planish::Sample> =
            images.iter().map(|image| planish::Sample::new(vec![(name.clone(), image.clone())], 1)).collect();
        let path = args.model.clone().unwrap_or_else(|| file.with_file_name("fashion_mnist.onnx"));
        let other = onnxruntime::run(&args.python, &path, &samples)?;
        let other: Vec<Tensor> = other
            .into_iter()
            .filter_map(|outputs| outputs.into_iter().next().map(|(_, tensor)| tensor))
            .collect();
        tell("ONNX Runtime → the last".to_string(), &made[3].1, &other);
    }
    Ok(rows)
}
