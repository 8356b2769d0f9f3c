//! TensorRT's calibration cache: a first line such as `TRT-8600-EntropyCalibration2`, then a line per tensor with its
//! name and its scale, the bits of an f32 in hexadecimal. The scale is the threshold over 127. There is no hash of the
//! model, and TensorRT takes a cache only if the calibrator on its first line is the one in use.

use std::collections::HashSet;

use planish_files::text::bad_line;

use crate::MAX_INT8;
use crate::calibration::{Calibration, Range};
use crate::calibrator::Calibrator;
use crate::error::{CalibrationError, CalibrationErrorKind};

/// How such a file begins.
pub(crate) const PREFIX: &str = "TRT-";
/// The version that is written: the last whose calibrators were not deprecated.
const VERSION: &str = "8600";
/// The name of TensorRT's calibrator, and the one of ours that it stands for.
const ENTROPY: (&str, Calibrator) = ("EntropyCalibration2", Calibrator::Entropy);
const MIN_MAX: (&str, Calibrator) = ("MinMaxCalibration", Calibrator::MinMax);

impl Calibration {
    /// TensorRT's cache. Whatever found the thresholds, the file says entropy, but for min-max: TensorRT has no others.
    pub fn to_tensorrt(&self) -> Result<String, CalibrationError> {
        let is_min_max = self.calibrator == MIN_MAX.1.to_string();
        let name = if is_min_max { MIN_MAX.0 } else { ENTROPY.0 };
        let mut text = format!("{PREFIX}{VERSION}-{name}\n");
        for (tensor, range) in &self.ranges {
            if tensor.contains(['\n', '\r']) {
                let message =
                    format!("{tensor:?} has a line end in its name, which TensorRT's format cannot hold");
                return Err(CalibrationError::new(CalibrationErrorKind::BadFile, message));
            }
            text.push_str(&format!("{tensor}: {:08x}\n", range.scale().to_bits()));
        }
        Ok(text)
    }

    /// Reads TensorRT's cache. What it does not say stays open: smallest and largest value are taken to be those of the
    /// threshold.
    pub fn from_tensorrt(text: &str) -> Result<Calibration, CalibrationError> {
        let mut lines = text.lines().enumerate().map(|(idx, line)| (idx + 1, line));
        let first = lines.next().map_or("", |(_, line)| line);
        let Some(calibrator) = calibrator_of(first) else {
            let what = format!(
                "line 1 is not as in `{PREFIX}{VERSION}-{}`; this is another kind of file",
                ENTROPY.0
            );
            return Err(CalibrationError::new(CalibrationErrorKind::BadFile, what));
        };
        let known = [ENTROPY, MIN_MAX].into_iter().find(|(name, _)| *name == calibrator);
        let calibrator = known.map_or(calibrator.to_string(), |(_, own)| own.to_string());
        let mut ranges = Vec::new();
        let mut names = HashSet::new();
        for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let bad = |what: &str| CalibrationError::from(bad_line(number, what));
            // Names may have colons in them.
            let (name, bits) = line.rsplit_once(": ").ok_or_else(|| bad("NAME: SCALE belongs here"))?;
            let bits = bits.trim_end();
            let is_hex = bits.len() == 8 && bits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let bits = u32::from_str_radix(bits, 16).ok().filter(|_| is_hex);
            let bits = bits.ok_or_else(|| bad("a scale is eight hexadecimal digits"))?;
            let threshold = threshold_of(f32::from_bits(bits));
            let threshold = threshold.ok_or_else(|| bad("the scale is no number, negative or infinite"))?;
            if !names.insert(name) {
                return Err(bad("the tensor stands in the file twice"));
            }
            ranges.push((name.to_string(), Range { min: -threshold, max: threshold, threshold }));
        }
        Ok(Calibration { calibrator, ranges, ..Calibration::default() })
    }
}

/// The calibrator that a first line names.
fn calibrator_of(line: &str) -> Option<&str> {
    let (version, name) = line.trim_end().strip_prefix(PREFIX)?.split_once('-')?;
    let is_version = !version.is_empty() && version.bytes().all(|digit| digit.is_ascii_digit());
    (is_version && !name.is_empty()).then_some(name)
}

/// The threshold that gives this scale.
fn threshold_of(scale: f32) -> Option<f32> {
    let threshold = scale * MAX_INT8;
    (!scale.is_sign_negative() && threshold.is_finite()).then_some(threshold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_testing::Random;

    #[test]
    fn a_cache_as_tensorrt_writes_it() {
        // Scales of 1/127 and of 2: 0x3c010204 and 0x40000000.
        let text = "TRT-8600-EntropyCalibration2\ninput: 3c010204\n(Unnamed Layer* 0) [Convolution]_output: 40000000\n\
                    a: b: 00000000\n";
        let read = Calibration::from_text(text).unwrap();
        assert_eq!(read.calibrator, "entropy");
        assert_eq!(read.get("input").unwrap().threshold, 1.0);
        let range = *read.get("(Unnamed Layer* 0) [Convolution]_output").unwrap();
        assert_eq!(range, Range { min: -254.0, max: 254.0, threshold: 254.0 });
        assert_eq!(read.get("a: b").unwrap().threshold, 0.0);
        assert_eq!(read.to_tensorrt().unwrap(), text);
        let min_max = "TRT-100300-MinMaxCalibration\r\nx: 3f800000\r\n";
        let read = Calibration::from_text(min_max).unwrap();
        assert_eq!((read.calibrator.as_str(), read.get("x").unwrap().scale()), ("minmax", 1.0));
        assert_eq!(read.to_tensorrt().unwrap(), "TRT-8600-MinMaxCalibration\nx: 3f800000\n");
    }

    #[test]
    fn every_scale_comes_back() {
        let mut random = Random::new(12);
        for _ in 0..200_000 {
            let scale = f32::from_bits((random.bits() >> 33) as u32);
            // Denormal scales are of tensors that are zero for all that matters.
            if scale.is_normal() && (scale * MAX_INT8).is_finite() {
                let threshold = threshold_of(scale).unwrap();
                let back = threshold / MAX_INT8;
                // Thresholds are about as dense as scales, not denser: some come back as their neighbour.
                assert!((scale.next_down()..=scale.next_up()).contains(&back), "{scale:e} {back:e}");
            }
        }
    }

    #[test]
    fn wrong_lines_are_named() {
        for (line, what) in [
            ("x 3f800000", "NAME: SCALE belongs here"),
            ("x: 3f80000", "a scale is eight hexadecimal digits"),
            ("x: +3f80000", "a scale is eight hexadecimal digits"),
            ("x: 3f8000000", "a scale is eight hexadecimal digits"),
            ("x: 3f80000g", "a scale is eight hexadecimal digits"),
            ("x: 7fc00000", "the scale is no number"),
            ("x: 7f800000", "the scale is no number"),
            ("x: bf800000", "the scale is no number, negative"),
            ("x: 3f800000\nx: 3f800000", "the tensor stands in the file twice"),
        ] {
            let error =
                Calibration::from_text(&format!("TRT-8600-EntropyCalibration2\n{line}\n")).unwrap_err();
            let number = 1 + line.lines().count();
            assert!(error.to_string().starts_with(&format!("line {number}: {what}")), "{line}: {error}");
        }
        for first in ["TRT-", "TRT-8600", "TRT--Entropy", "TRT-x-EntropyCalibration2", "TRT-8600-"] {
            let error = Calibration::from_text(first).unwrap_err().to_string();
            assert!(error.starts_with("line 1 is not as in"), "{first}: {error}");
        }
        let named = |name: &str| (name.to_string(), Range { min: 0.0, max: 1.0, threshold: 1.0 });
        let calibration = Calibration { ranges: vec![named("a\nb")], ..Calibration::default() };
        assert!(calibration.to_tensorrt().unwrap_err().to_string().contains("line end in its name"));
    }
}
