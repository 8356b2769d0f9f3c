//! `planish build` by the words of scripts that export to TensorRT.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use planish::{Model, shapes};

use crate::args::{Bench, Build};
use crate::ending::Answer;
use crate::{bench, build, load};

pub(crate) fn command(mut args: Build, out: &mut dyn Write) -> Result<Answer> {
    take_over(&mut args)?;
    let answer = build::command(&args, out)?;
    if !args.exporter.benchmark || answer != Answer::Yes {
        return Ok(answer);
    }
    let plan = args.output.clone().unwrap_or_else(|| args.model.with_extension("plan"));
    let mut settings = Bench::usual(&plan)?;
    settings.building.device = args.building.device;
    settings.building.threads = args.building.threads;
    if let Some(n) = args.exporter.benchmark_iterations {
        settings.iterations = n;
        settings.duration = Duration::ZERO;
    }
    bench::command(&settings, out)
}

/// Brings them to the words of our own.
fn take_over(args: &mut Build) -> Result<()> {
    let exporter = &args.exporter;
    if let Some(path) = &exporter.calibration_data {
        args.building.calibrating.calib = Some(path.clone());
    }
    if let Some(n) = exporter.num_calibration_samples {
        args.building.calibrating.calib_samples = n;
    }
    if let Some(text) = &exporter.workspace_size {
        args.building.workspace = Some(workspace(text)?);
    }
    if exporter.input_shape.is_empty() && !exporter.dynamic_shapes {
        return Ok(());
    }
    let building = &args.building;
    ensure!(
        building.profiles.is_empty() && building.max_shapes.is_empty(),
        "--input-shape and --dynamic-shapes say the shapes; leave profiles out"
    );
    let model = Model::open(&args.model)?;
    let inputs = shapes::tensor_inputs(model.graph());
    let Some((first, _)) = inputs.first() else { bail!("the model has no input that could have a shape") };
    let given: Vec<String> = match exporter.input_shape.is_empty() {
        true => Vec::new(),
        false => vec![format!("{}:{}", first.name, shapes::sizes_text(&exporter.input_shape))],
    };
    if !exporter.dynamic_shapes {
        args.building.shapes = given;
        return Ok(());
    }
    let (sizes, _) = shapes::bind_all(model.graph(), "--input-shape", &given)?;
    let sizes = shapes::default_sizes(model.graph(), &sizes)?;
    let min = exporter.min_batch.unwrap_or(1);
    let opt = exporter.opt_batch.or(exporter.input_shape.first().copied()).unwrap_or(min).max(min);
    let max = exporter.max_batch.unwrap_or(opt);
    ensure!(
        min <= opt && opt <= max,
        "--min-batch {min}, --opt-batch {opt} and --max-batch {max} are not in this order"
    );
    let shapes_at = |batch: usize| -> Result<String> {
        let mut parts = Vec::new();
        for (input, ty) in &inputs {
            let mut shape = shapes::shape_at(&input.name, ty, &sizes)?;
            let axis =
                shape.first_mut().with_context(|| format!("the input `{}` has no batch", input.name))?;
            let is_open = ty
                .shape
                .as_ref()
                .and_then(|own| own.iter().next())
                .is_some_and(|dim| dim.as_const().is_none());
            ensure!(
                is_open,
                "--dynamic-shapes: the first axis of `{}` is {axis} in the model; export it with a dynamic batch",
                input.name
            );
            *axis = batch;
            parts.push(format!("{}:{}", input.name, shapes::sizes_text(&shape)));
        }
        Ok(parts.join(","))
    };
    let profile = format!("min={} opt={} max={}", shapes_at(min)?, shapes_at(opt)?, shapes_at(max)?);
    args.building.shapes.clear();
    args.building.profiles = vec![profile];
    Ok(())
}

/// GiB, MiB or bytes, by what is plausible: exporters count in all three.
fn workspace(text: &str) -> Result<usize> {
    let unit = match text.parse::<f64>() {
        Ok(number) if number < 1024.0 => "G",
        Ok(number) if number < 1e6 => "M",
        _ => "",
    };
    load::bytes(&format!("{text}{unit}")).map_err(|why| anyhow::anyhow!("--workspace-size: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_are_plausible() {
        assert_eq!(workspace("4").unwrap(), 4 << 30);
        assert_eq!(workspace("4096").unwrap(), 4 << 30);
        assert_eq!(workspace("1073741824").unwrap(), 1 << 30);
        assert_eq!(workspace("512M").unwrap(), 512 << 20);
        assert!(workspace("much").is_err());
    }
}
