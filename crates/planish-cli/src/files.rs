//! Writing files: in one piece, and never over what a command was given or over another kind of file.

use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// The kinds of files that commands write, each known by how it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Plan,
    Onnx,
    Npy,
    Npz,
    Tiff,
    Json,
    Tactics,
    Timings,
    Stage,
    Calibration,
    TensorRtCache,
    Pins,
    Csv,
    Results,
    Svg,
    Png,
    Html,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Plan => "a plan",
            Kind::Onnx => "an ONNX model",
            Kind::Npy => "an .npy array",
            Kind::Npz => "an .npz archive",
            Kind::Tiff => "a TIFF file",
            Kind::Json => "JSON",
            Kind::Tactics => "a tactic lock",
            Kind::Timings => "a timing cache",
            Kind::Stage => "a stage of a build",
            Kind::Calibration => "a calibration",
            Kind::TensorRtCache => "a calibration cache of TensorRT",
            Kind::Pins => "a file of pins",
            Kind::Csv => "a table of candidates",
            Kind::Results => "a table of results",
            Kind::Svg => "an SVG picture",
            Kind::Png => "a PNG picture",
            Kind::Html => "an HTML page",
        }
    }

    fn begins(self, first: &[u8]) -> bool {
        match self {
            Kind::Plan => planish::record::is_plan(first),
            // Every exporter writes the version of the format first, which is field 1 as a number.
            Kind::Onnx => first.starts_with(b"\x08") && !planish::record::is_plan(first),
            Kind::Npy => first.starts_with(b"\x93NUMPY"),
            Kind::Npz => first.starts_with(b"PK"),
            // Both orders of bytes, with offsets of 32 and of 64 bits.
            Kind::Tiff => {
                [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"].iter().any(|magic| first.starts_with(*magic))
            }
            Kind::Json => first.trim_ascii_start().starts_with(b"{"),
            Kind::Tactics => first.starts_with(b"planish tactics "),
            Kind::Timings => first.starts_with(b"planish timings "),
            Kind::Calibration => first.starts_with(b"planish calibration "),
            Kind::TensorRtCache => first.starts_with(b"TRT-"),
            Kind::Pins => first.starts_with(b"planish pins "),
            Kind::Csv => first.starts_with(b"candidate,"),
            Kind::Results => first.starts_with(b"model,"),
            Kind::Svg => first.starts_with(b"<svg "),
            Kind::Png => first.starts_with(b"\x89PNG"),
            Kind::Html => first.starts_with(b"<!DOCTYPE html>"),
            Kind::Stage => planish::Stage::ALL
                .iter()
                .any(|stage| first.starts_with(format!("{}: ", stage.name()).as_bytes())),
        }
    }
}

/// Refuses before any work is done what could not be written, and what should not: a file that the command reads
/// (`given`, under whatever name), and one that is there and of another kind.
pub(crate) fn check_target(path: &Path, kind: Kind, given: &[&Path]) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    if let Some(given) = given.iter().find(|given| planish::files::is_same_file(given, path)) {
        let name = if **given == *path { String::new() } else { format!(", {}", given.display()) };
        bail!("{}: it is a file that this command reads{name}; give another name", cannot());
    }
    planish::files::check_target(path).with_context(cannot)?;
    if path.exists() {
        let mut first = [0; 64];
        let n = planish::files::open(path).and_then(|mut file| file.read(&mut first)).with_context(cannot)?;
        let (what, name) = (kind.name(), path.display());
        ensure!(
            n == 0 || kind.begins(&first[..n]),
            "cannot write {name}: the file that is there is not {what}; give another name, or remove it first"
        );
    }
    Ok(())
}

/// Whether a file is there and begins as this kind does.
pub(crate) fn is(path: &Path, kind: Kind) -> bool {
    let mut first = [0; 64];
    let read = planish::files::open(path).and_then(|mut file| file.read(&mut first));
    path.is_file() && read.is_ok_and(|n| kind.begins(&first[..n]))
}

/// Writes the file with `fill` and puts it in its place when it is complete.
pub(crate) fn write(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    planish::files::write(path, fill).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_how_they_begin() {
        let beginnings: [(Kind, &[u8]); 10] = [
            (Kind::Onnx, b"\x08\x0a\x12\x04test"),
            (Kind::Npy, b"\x93NUMPY\x01\0"),
            (Kind::Npz, b"PK\x03\x04"),
            (Kind::Tiff, b"II*\0\x08"),
            (Kind::Json, b"\n {\"a\": 1}"),
            (Kind::Tactics, b"planish tactics 1\n"),
            (Kind::Timings, b"planish timings 1\n"),
            (Kind::Calibration, b"planish calibration 1\n"),
            (Kind::TensorRtCache, b"TRT-8600-EntropyCalibration2\n"),
            (Kind::Stage, b"priced: 3 of 4 steps on offer\n"),
        ];
        for (kind, _) in beginnings {
            for (other, first) in beginnings {
                assert_eq!(kind.begins(first), kind == other, "{kind:?} of {other:?}");
            }
        }
    }
}
