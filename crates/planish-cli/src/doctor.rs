//! `planish doctor`: what this machine offers and what is missing: read from the file system, and asked of
//! NVIDIA's driver and libraries where they are.

use std::io::Write;

use anyhow::Result;
use planish::Device;
use planish::cuda::{CudaErrorKind, Gpu, LibraryReport, Report, Toolkit};
use planish::machine::{Machine, Peak, Peaks};
use serde_json::json;

use crate::args::Doctor;
use crate::ending::Answer;
use crate::{print, progress, say_note};

pub(crate) fn command(args: &Doctor, out: &mut dyn Write) -> Result<Answer> {
    let machine = Machine::look();
    let cuda = Report::look();
    if !args.json.replaces_tables() {
        print_machine(&machine, out)?;
        print_cuda(&cuda, out)?;
    }
    let mut report = machine_json(&machine);
    let libraries = cuda.libraries.iter().map(|library| {
        let about = match &library.found {
            Ok(found) => json!({
                "path": found.path.display().to_string(),
                "version": found.version,
                "cuda": found.toolkit.map(|cuda| cuda as i32),
            }),
            Err(missing) => json!({
                "missing": missing.to_string(),
                "costs": library.which.cost(),
                "install": library.which.install(),
            }),
        };
        (library.file().to_string(), about)
    });
    report["libraries"] = libraries.collect::<serde_json::Map<_, _>>().into();
    report["cuda"] = match &cuda.gpus {
        Ok(gpus) => gpus.iter().map(|(gpu, free)| gpu_json(gpu, *free)).collect(),
        Err(why) => json!({ "missing": why.to_string() }),
    };
    report["backends"] = backends(&cuda).into();
    let peaks = if args.measure { Some(measure(&cuda)) } else { Peaks::kept() };
    if let Some(peaks) = &peaks {
        if !args.json.replaces_tables() {
            print_peaks(peaks, out)?;
        }
        report["peaks"] = peaks.list.iter().map(peak_json).collect();
    }
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}

/// Measures what the CPU and every GPU can do at most, and keeps it in the user's cache folder.
fn measure(cuda: &Report) -> Peaks {
    let bar = progress::bar();
    let tell = |stage: &str, done: usize, of: usize| {
        if let Some(bar) = &bar {
            bar(stage, done, of);
        }
    };
    let mut peaks = Peaks::measure_cpu(&tell);
    let mut missing = Vec::new();
    for index in 0..cuda.gpus.as_ref().map_or(0, Vec::len) {
        let (measured, not_measured) = Peaks::measure_gpu(Device::Cuda(index), &tell);
        peaks.merge(&measured);
        missing.extend(not_measured.into_iter().map(|what| format!("cuda:{index}, {what}")));
    }
    progress::clear();
    missing.iter().for_each(|what| say_note(&format!("not measured: {what}")));
    match peaks.keep() {
        Ok(path) => say_note(&format!("the peaks are kept in {}", path.display())),
        Err(error) => say_note(&format!("the peaks are not kept: {error}")),
    }
    peaks
}

fn print_peaks(peaks: &Peaks, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "peaks       measured")?;
    let row = |peak: &Peak| {
        let rate = format!("{:.1} G{}/s", peak.per_second / 1e9, peak.unit.name());
        vec![peak.name.clone(), rate, peak.device.clone()]
    };
    print::table(out, &peaks.list.iter().map(row).collect::<Vec<_>>(), &[1])?;
    Ok(())
}

fn peak_json(peak: &Peak) -> serde_json::Value {
    json!({
        "device": peak.device, "name": peak.name, "per_second": peak.per_second, "unit": peak.unit.name(),
    })
}

/// The backends that work here.
fn backends(cuda: &Report) -> Vec<&'static str> {
    let has_gpu = cuda.gpus.as_ref().is_ok_and(|gpus| !gpus.is_empty());
    if has_gpu { vec!["cpu", "cuda"] } else { vec!["cpu"] }
}

fn print_cuda(cuda: &Report, out: &mut dyn Write) -> Result<()> {
    match &cuda.gpus {
        Ok(gpus) => {
            for (index, (gpu, free)) in gpus.iter().enumerate() {
                writeln!(
                    out,
                    "cuda:{index}      {}, sm_{}, {} multiprocessors, {} ({} free)",
                    gpu.name,
                    gpu.sm,
                    gpu.n_sms,
                    print::bytes(gpu.memory_bytes as u64),
                    print::bytes(*free as u64)
                )?;
            }
        }
        Err(why) => writeln!(out, "cuda        {why}")?,
    }
    writeln!(out, "libraries")?;
    let rows: Vec<Vec<String>> = cuda
        .libraries
        .iter()
        .map(|library| {
            let which = library.which;
            let found = match &library.found {
                Ok(found) => {
                    let made_for =
                        found.toolkit.map_or(String::new(), |cuda| format!(" for CUDA {}", cuda as i32));
                    format!("{}{made_for}, {}", found.version, found.path.display())
                }
                Err(missing) if missing.kind() == CudaErrorKind::WrongVersion => {
                    format!("{missing}; without it {}", which.cost())
                }
                Err(_) => format!("missing, so {}: {}", which.cost(), which.install()),
            };
            vec![which.name().to_string(), found]
        })
        .collect();
    print::table(out, &rows, &[])?;
    if let Some(set) = set_in_use(cuda) {
        writeln!(out, "cuda set    {set}")?;
    }
    writeln!(out, "backends    {}", backends(cuda).join(", "))?;
    Ok(())
}

/// Which CUDA the libraries found here are made for, and what the driver would run besides.
fn set_in_use(cuda: &Report) -> Option<String> {
    let made_for =
        |library: &LibraryReport| Some((library.which.name(), library.found.as_ref().ok()?.toolkit?));
    let found: Vec<(&str, Toolkit)> = cuda.libraries.iter().filter_map(made_for).collect();
    let mut sets = Vec::new();
    for set in [Toolkit::Thirteen, Toolkit::Twelve] {
        let names: Vec<&str> = found.iter().filter(|(_, of)| *of == set).map(|(name, _)| *name).collect();
        if !names.is_empty() {
            sets.push(format!(
                "CUDA {} ({}; driver {} or newer)",
                set as i32,
                names.join(", "),
                set.first_driver()
            ));
        }
    }
    (!sets.is_empty()).then(|| sets.join(" and "))
}

fn gpu_json(gpu: &Gpu, free: usize) -> serde_json::Value {
    json!({
        "name": gpu.name,
        "sm": gpu.sm,
        "multiprocessors": gpu.n_sms,
        "memory_bytes": gpu.memory_bytes,
        "memory_free_bytes": free,
    })
}

fn print_machine(machine: &Machine, out: &mut dyn Write) -> Result<()> {
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "not known".into());
    let size = |value: Option<u64>| value.map_or("not known".into(), print::bytes);
    writeln!(out, "cpu         {}", known(&machine.cpu))?;
    let features =
        if machine.features.is_empty() { "none of those used".into() } else { machine.features.join(" ") };
    writeln!(out, "features    {features}")?;
    let quota = machine.quota.map_or("no quota".into(), |cpus| format!("quota of {cpus} CPUs"));
    writeln!(
        out,
        "threads     {} usable: {} CPUs, allowed {}, {quota}",
        machine.n_threads,
        machine.n_cpus,
        known(&machine.allowed)
    )?;
    let limit =
        machine.memory_limit.map_or("no limit".into(), |limit| format!("limited to {}", print::bytes(limit)));
    writeln!(out, "memory      {}, {} available, {limit}", size(machine.memory), size(machine.available))?;
    match &machine.driver {
        Some(version) => writeln!(out, "driver      NVIDIA {version}")?,
        None => writeln!(out, "driver      no NVIDIA driver is loaded")?,
    }
    if machine.gpus.is_empty() {
        writeln!(out, "gpus        none found")?;
    } else {
        writeln!(out, "gpus        {}", machine.gpus.join(", "))?;
    }
    Ok(())
}

fn machine_json(machine: &Machine) -> serde_json::Value {
    json!({
        "cpu": machine.cpu,
        "features": machine.features,
        "cpus": machine.n_cpus,
        "cpus_allowed": machine.allowed,
        "cpu_quota": machine.quota,
        "threads": machine.n_threads,
        "memory_bytes": machine.memory,
        "memory_available_bytes": machine.available,
        "memory_limit_bytes": machine.memory_limit,
        "nvidia_driver": machine.driver,
        "gpus": machine.gpus,
    })
}
