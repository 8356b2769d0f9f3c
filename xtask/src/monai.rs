//! `cargo xtask monai`: sliding windows against MONAI's `sliding_window_inference` on random settings.
//!
//! MONAI and PyTorch are large, so they are not fetched: `--python` names an interpreter that has both, and without one
//! the command says so and ends well. `--from` takes cases that were written elsewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use planish::io::npy;
use planish::op::ResizeMode;
use planish::{
    Blend, Builder, DType, Device, Engine, NetworkBuilder, Padding, Session, SlidingWindow, Tensor,
};

use crate::compare::{Tolerance, tensor_difference};
use crate::python::run as run_command;
use crate::{root, scratch};

/// Sums of products in f32 on both sides, in another order.
const TOLERANCE: Tolerance = Tolerance { relative: 1e-5, absolute: 1e-5 };

const PADDINGS: [Padding; 4] = [Padding::Constant, Padding::Reflect, Padding::Replicate, Padding::Circular];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A Python that has torch and monai.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Settings to draw.
    #[arg(long, default_value_t = 100)]
    cases: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A folder of cases that `xtask/python/sliding_window.py` wrote, instead of drawing some.
    #[arg(long)]
    from: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let folder = match &options.from {
        Some(folder) => folder.clone(),
        None => {
            let has_both = Command::new(&options.python).args(["-c", "import torch, monai"]).output();
            if !has_both.is_ok_and(|output| output.status.success()) {
                println!(
                    "skipped: {} has no torch and monai; give --python or --from",
                    options.python.display()
                );
                return Ok(true);
            }
            let folder = scratch().join("monai").join(format!("{}-{}", options.seed, std::process::id()));
            let mut python = Command::new(&options.python);
            python.arg(root().join("xtask/python/sliding_window.py")).arg(&folder);
            python.args([options.cases.to_string(), options.seed.to_string()]);
            run_command(&mut python).context("running MONAI")?;
            folder
        }
    };
    let mut paths: Vec<PathBuf> =
        fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "npz"));
    paths.sort();
    ensure!(!paths.is_empty(), "{} has no cases", folder.display());
    let mut sessions = Vec::new();
    for n_axes in [2, 3] {
        for kind in 0..3 {
            sessions.push(((n_axes, kind), session(n_axes, kind)?));
        }
    }
    let mut n_different = 0;
    for path in &paths {
        if let Some(why) = difference(path, &mut sessions).with_context(|| path.display().to_string())? {
            n_different += 1;
            println!("{}: {why}", path.display());
        }
    }
    println!("{} settings, {n_different} differ from MONAI", paths.len());
    Ok(n_different == 0)
}

/// What `sliding_window.py` has as its predictor, for so many axes of pixels.
fn session(n_axes: usize, kind: i64) -> Result<Session> {
    let mut net = NetworkBuilder::new("net");
    let sizes = if n_axes == 2 { "n,c,h,w" } else { "n,c,d,h,w" };
    let x = net.input("x", DType::F32, sizes)?;
    let w = net.input("w", DType::F32, sizes)?;
    let axes: Vec<i64> = (2..2 + n_axes as i64).collect();
    let mean = net.reduce_mean(w, &axes, true)?;
    let y = net.mul(x, x)?;
    let mut y = net.sub(y, mean)?;
    match kind {
        0 => {}
        1 => y = net.resize(y, &[vec![1.0; 2], vec![2.0; n_axes]].concat(), ResizeMode::Nearest)?,
        _ => {
            for axis in axes {
                y = net.slice_by(y, axis, 0, i64::MAX, 2)?;
            }
        }
    }
    net.output("y", y)?;
    let plan = Builder::from_network(net)?.tune_level(0).device(Device::Cpu).build()?;
    Ok(Session::new(&Engine::new(plan, Device::Cpu)?)?)
}

/// How a case differs from what MONAI gave, if it does.
fn difference(path: &Path, sessions: &mut [((usize, i64), Session)]) -> Result<Option<String>> {
    let arrays = npy::read_archive(path, &npy::accept_all)?;
    let array = |name: &str| -> Result<&Tensor> {
        let found = arrays.iter().find(|(known, _)| known == name).map(|(_, array)| array);
        found.with_context(|| format!("it has no `{name}`"))
    };
    let number = |name: &str| -> Result<i64> { Ok(array(name)?.to_i64s()[0]) };
    let (kind, roi) = (number("kind")?, array("roi")?.to_i64s());
    let options = SlidingWindow {
        roi: roi.iter().map(|&size| size as usize).collect(),
        batch: number("batch")? as usize,
        overlap: array("overlap")?.to_f64s(),
        mode: if number("gaussian")? == 1 { Blend::Gaussian } else { Blend::Constant },
        sigma_scale: array("sigma")?.to_f64s(),
        padding_mode: PADDINGS[number("padding")? as usize],
        cval: array("cval")?.to_f64s()[0],
        ..SlidingWindow::default()
    };
    let session = sessions.iter_mut().find(|(of, _)| *of == (roi.len(), kind)).map(|(_, session)| session);
    let images = [("x", array("x")?.clone()), ("w", array("w")?.clone())];
    let y = session.context("a model of this kind")?.sliding_window(&images, &options)?;
    Ok(tensor_difference(&y.tensors()[0], array("y")?, TOLERANCE).map(|why| format!("{why}; {options:?}")))
}
