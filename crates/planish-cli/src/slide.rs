//! `planish slide`: a model over an image that is larger than its input, window by window.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use planish::io::{npy, stack, volume};
use planish::{
    ContextOptions, Engine, Model, NamedTensors, Session, SlidingWindow, Tensor, TensorType, shapes,
};
use serde_json::json;

use crate::args::{AskedPrecision, Building, Slide};
use crate::ending::Answer;
use crate::files::{self, Kind};
use crate::{load, print, progress, say_note};

/// The model's inputs with their types, in its order.
type Ports = Vec<(String, TensorType)>;

/// Images by the names of the inputs, and what their pixels are multiplied by.
struct Images {
    by_name: Vec<(String, Tensor)>,
    scale: f64,
    /// Whether results are to have an axis for several images.
    has_many: bool,
}

pub(crate) fn command(args: &Slide, out: &mut dyn Write) -> Result<Answer> {
    let kind = target_kind(&args.output)?;
    files::check_target(&args.output, kind, &[&args.model, &args.image])?;
    load::check_opening(&args.model, args.with.device, &args.with.opening)?;
    let (engine, images) = if load::is_plan(&args.model) {
        let made = load::plan(&args.model, &building(args), &args.with.opening, args.with.no_cache)?;
        let engine = load::engine(&args.model, made.plan, args.with.device, &args.with.opening)?;
        let ports = engine.inputs().into_iter().map(|port| Some((port.name, port.ty.as_tensor()?.clone())));
        let ports = ports.collect::<Option<Ports>>().context("the plan has inputs that are no tensors")?;
        let images = images(args, &ports)?;
        (engine, images)
    } else {
        load::check_device(args.with.device)?;
        let model = Model::open(&args.model)?;
        let inputs = shapes::tensor_inputs(model.graph());
        ensure!(inputs.len() == model.graph().inputs().len(), "the model has inputs that are no tensors");
        let ports: Ports = inputs.iter().map(|(value, ty)| (value.name.to_string(), (*ty).clone())).collect();
        let outputs = model.graph().outputs().iter().map(|&id| model.graph().value(id).name.to_string());
        check_outputs(kind, &outputs.collect::<Vec<_>>())?;
        let images = images(args, &ports)?;
        let mut building = building(args);
        set_shapes(&mut building, args, &ports, &images)?;
        let made = load::build_in_memory(&args.model, model, &building, args.with.no_cache)?;
        (load::engine(&args.model, made.plan, args.with.device, &args.with.opening)?, images)
    };
    check_outputs(kind, &engine.outputs().into_iter().map(|port| port.name).collect::<Vec<_>>())?;
    run(args, kind, &engine, &images, out)
}

fn run(args: &Slide, kind: Kind, engine: &Engine, images: &Images, out: &mut dyn Write) -> Result<Answer> {
    let threads = args.with.threads.unwrap_or(engine.record().header.threads as usize).max(1);
    let mut session = Session::with_options(engine, ContextOptions::new(threads))?;
    let options = SlidingWindow {
        roi: args.roi.clone(),
        batch: args.batch.unwrap_or(0),
        overlap: args.overlap.clone(),
        mode: args.mode.into(),
        sigma_scale: args.sigma.clone(),
        padding_mode: args.padding.into(),
        cval: args.cval,
        argmax: args.argmax,
        scale: images.scale,
        mean: args.mean.clone(),
        std: args.std.clone(),
    };
    let (bar, mut n_windows) = (progress::bar(), 0);
    let start = Instant::now();
    let mut tell = |done: usize, of: usize| {
        n_windows = of;
        if let Some(bar) = &bar {
            bar("windows", done, of);
        }
    };
    let done = session.sliding_window_with(&images.by_name, &options, &mut tell);
    progress::clear();
    let done = done.map_err(load::say_how_to_go_on)?;
    let time = start.elapsed();
    let results = results(done, images.has_many)?;
    save(&args.output, kind, &results)?;
    if !args.with.json.replaces_tables() {
        for (name, tensor) in &results {
            let dims = shapes::sizes_text(tensor.shape());
            writeln!(out, "output  {name}: {} of {dims}", tensor.dtype())?;
        }
        let rate = n_windows as f64 / time.as_secs_f64();
        let time = print::seconds(time.as_secs_f64());
        writeln!(
            out,
            "time    {time}, {} windows, {} a second",
            print::count(n_windows as u64),
            print::number(rate)
        )?;
        writeln!(out, "saved   {}", args.output.display())?;
    }
    let outputs: Vec<_> = results
        .iter()
        .map(|(name, tensor)| json!({"name": name, "dtype": tensor.dtype().name(), "shape": tensor.shape()}))
        .collect();
    let report = json!({
        "model": args.model,
        "image": args.image,
        "output": args.output,
        "windows": n_windows,
        "time_ms": time.as_secs_f64() * 1e3,
        "outputs": outputs,
    });
    print::json(out, &args.with.json, &report)?;
    Ok(Answer::Yes)
}

fn building(args: &Slide) -> Building {
    Building {
        threads: args.with.threads,
        tune_level: args.tune_level,
        device: args.with.device,
        precision: AskedPrecision::Named(args.with.precision),
        ..Building::default()
    }
}

/// What the result is written as.
fn target_kind(path: &Path) -> Result<Kind> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("").to_lowercase();
    match extension.as_str() {
        "npy" => Ok(Kind::Npy),
        "npz" => Ok(Kind::Npz),
        "tif" | "tiff" => Ok(Kind::Tiff),
        _ => bail!("cannot write {}: give a name that ends in .npy, .tif or .npz", path.display()),
    }
}

/// Refuses several outputs where one file is to hold one.
fn check_outputs(kind: Kind, names: &[String]) -> Result<()> {
    let (n, list) = (names.len(), names.join(", "));
    ensure!(
        kind == Kind::Npz || n == 1,
        "the model has {n} outputs ({list}); give -o OUT.npz, which takes all"
    );
    Ok(())
}

/// The axes of pixels of the model, and its channels where they are fixed.
fn pixel_axes(ports: &Ports) -> Result<(usize, Option<usize>)> {
    let Some((name, ty)) = ports.first() else { bail!("the model has no input to give windows to") };
    let dims = ty.shape.as_ref().map(planish::Shape::dims);
    match dims {
        Some([_, channels, pixels @ ..]) if (1..=3).contains(&pixels.len()) => {
            Ok((pixels.len(), channels.as_usize()))
        }
        _ => bail!("input `{name}` is {ty}; windows are for inputs of [N,C,W], [N,C,H,W] or [N,C,D,H,W]"),
    }
}

/// The images that the arguments name.
fn images(args: &Slide, ports: &Ports) -> Result<Images> {
    let (n_axes, n_channels) = pixel_axes(ports)?;
    let is_archive = args.image.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npz"));
    let (by_name, scale) = if is_archive {
        (npy::read_archive(&args.image, &npy::accept_all)?, args.scale)
    } else {
        ensure!(
            ports.len() == 1,
            "the model has {} inputs, {} gives one; give an .npz with an array for each",
            ports.len(),
            args.image.display()
        );
        let read = volume(&args.image, n_axes, n_channels)?;
        if let Some(brightest) = read.brightest {
            let to = args.scale;
            say_note(&format!(
                "pixels from 0 to {brightest} become 0 to {to}; --scale, --mean and --std say otherwise"
            ));
        }
        let scale = args.scale / read.brightest.unwrap_or(1.0);
        (vec![(ports[0].0.clone(), read.pixels)], scale)
    };
    let has_many = by_name.iter().any(|(_, pixels)| pixels.rank() == n_axes + 2);
    Ok(Images { by_name, scale, has_many })
}

/// Has the model built for windows of the sizes asked for, in batches of up to as many as are asked for.
fn set_shapes(building: &mut Building, args: &Slide, ports: &Ports, images: &Images) -> Result<()> {
    let (n_axes, _) = pixel_axes(ports)?;
    let (mut least, mut most) = (Vec::new(), Vec::new());
    let mut is_open = false;
    for (name, ty) in ports {
        let dims = ty.shape.as_ref().map_or(&[][..], planish::Shape::dims);
        let image = images.by_name.iter().find(|(known, _)| known == name).map(|(_, image)| image.shape());
        let mut shape = Vec::with_capacity(dims.len());
        for (axis, dim) in dims.iter().enumerate() {
            is_open |= dim.as_usize().is_none();
            shape.push(match (dim.as_usize(), axis) {
                (Some(fixed), _) => fixed,
                (None, 0) => args.batch.unwrap_or(1),
                (None, 1) => image
                    .and_then(|image| image.get(image.len().checked_sub(n_axes + 1)?))
                    .copied()
                    .unwrap_or(1),
                (None, axis) => {
                    let Some(&roi) = args.roi.get(axis - 2).or(args.roi.last()) else {
                        bail!("the model leaves the sizes of windows open; give --roi, as in --roi 256x256");
                    };
                    match roi {
                        0 => image
                            .and_then(|image| image.get(image.len() + axis - dims.len()))
                            .copied()
                            .unwrap_or(1),
                        roi => roi,
                    }
                }
            });
        }
        most.push(format!("{name}:{}", shapes::sizes_text(&shape)));
        if dims.first().is_some_and(|dim| dim.as_usize().is_none()) {
            shape[0] = 1;
        }
        least.push(format!("{name}:{}", shapes::sizes_text(&shape)));
    }
    if is_open {
        (building.min_shapes, building.opt_shapes, building.max_shapes) = (least, most.clone(), most);
    }
    Ok(())
}

/// Results by name, without the axis of images where the file had one image alone.
fn results(done: NamedTensors, has_many: bool) -> Result<Vec<(String, Tensor)>> {
    let names = done.names().to_vec();
    let tensor = |tensor: Tensor| match has_many {
        true => Ok(tensor),
        false => tensor.reshaped(&tensor.shape()[1..]),
    };
    let tensors = done.into_tensors().into_iter().map(tensor).collect::<Result<Vec<_>, _>>()?;
    Ok(names.into_iter().zip(tensors).collect())
}

fn save(path: &Path, kind: Kind, results: &[(String, Tensor)]) -> Result<()> {
    match (kind, results) {
        (Kind::Npy, [(_, tensor)]) => npy::save(path, tensor)?,
        (Kind::Tiff, [(_, tensor)]) => stack::save(path, tensor)?,
        _ => npy::save_archive(path, results)?,
    }
    Ok(())
}
