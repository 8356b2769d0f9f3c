//! A calibration and its file: what is known of each tensor, in lines that people can read and change.
//!
//! ```text
//! planish calibration 1
//! # tensor NAME, smallest value, largest value, threshold: values are clipped at plus and minus the threshold
//! model       resnet18
//! hash        5f1d…
//! calibrator  entropy
//! samples     500
//! tensor      x            -2.117904   2.64       2.61
//! tensor      layer1/relu  0.0         14.217     9.37
//! channels    layer1/relu  0.5 0.25    0.7 0.3    14.217 2.5
//! equalize    yes
//! wide        layer4/conv
//! ```
//!
//! Lines `channels` are of what layers read: the mean of each channel, the root of its mean square, its largest magnitude.
//! `equalize` has builds even channels out, and each line `wide` names a node that 8 bits cost too much.
//! Fields are separated by tabs. The hash is that of the model; without its line the file is taken for any model.

use std::path::Path;

use planish_files::text::{self, Format, TextError, bad_line, escape, unescape};

use crate::MAX_INT8;
use crate::channels::Channels;
use crate::error::{CalibrationError, CalibrationErrorKind};
use crate::tensorrt;

pub(crate) const FORMAT: Format = Format { name: "calibration", version: 1 };
const FIELDS: &str = "tensor NAME, smallest value, largest value, threshold: values are clipped at plus and minus the threshold";

/// The values of one tensor over all samples, and where they are clipped when they become integers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Range {
    pub min: f32,
    pub max: f32,
    /// From this magnitude on values are clipped; 0 for a tensor that is zero throughout.
    pub threshold: f32,
}

impl Range {
    /// What one step of symmetric INT8 stands for.
    pub fn scale(&self) -> f32 {
        self.threshold / MAX_INT8
    }
}

/// The ranges of a model's activations.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Calibration {
    /// The model's name, for people.
    pub model: String,
    /// Tells the model from others; `None` where nobody knows which model it was.
    pub hash: Option<[u8; 32]>,
    /// How thresholds were found, for people.
    pub calibrator: String,
    pub n_samples: u64,
    /// By tensor, in the graph's order.
    pub ranges: Vec<(String, Range)>,
    /// What layers read by channel, in the graph's order; empty where nobody told channels apart.
    pub channels: Vec<(String, Channels)>,
    /// Whether channels are to be evened out in front of layers of integers.
    pub equalize: bool,
    /// Nodes that are to read floats, since 8 bits cost too much there.
    pub wide: Vec<String>,
}

impl Calibration {
    /// The range of a tensor.
    pub fn get(&self, tensor: &str) -> Option<&Range> {
        self.ranges.iter().find(|(name, _)| name == tensor).map(|(_, range)| range)
    }

    /// Refuses the calibration of another model.
    pub fn check_model(&self, hash: &[u8; 32]) -> Result<(), CalibrationError> {
        match &self.hash {
            Some(own) if own != hash => {
                let message = format!(
                    "the calibration is of another model (`{}`, {} against {}); calibrate anew, or remove its line \
                     `hash` if the tensors are the same",
                    self.model,
                    hex(&own[..4]),
                    hex(&hash[..4])
                );
                Err(CalibrationError::new(CalibrationErrorKind::OtherModel, message))
            }
            _ => Ok(()),
        }
    }

    /// Reads a calibration, be it Planish's own or a cache of TensorRT; the first line tells.
    pub fn open(path: impl AsRef<Path>) -> Result<Calibration, CalibrationError> {
        let path = path.as_ref();
        let text = match text::read(path) {
            Ok(Some(text)) => text,
            Ok(None) => {
                return Err(CalibrationError::io("read", path, std::io::ErrorKind::NotFound.into()));
            }
            Err(TextError::Io(error)) => return Err(CalibrationError::io("read", path, error)),
            Err(error) => return Err(CalibrationError::from(error).within(path.display())),
        };
        Calibration::from_text(&text).map_err(|error| error.within(path.display()))
    }

    /// Writes the file, in one piece.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), CalibrationError> {
        let path = path.as_ref();
        text::write(path, &self.to_text()).map_err(|error| CalibrationError::io("write", path, error))
    }

    /// Writes TensorRT's calibration cache, in one piece.
    pub fn save_tensorrt(&self, path: impl AsRef<Path>) -> Result<(), CalibrationError> {
        let path = path.as_ref();
        let text = self.to_tensorrt().map_err(|error| error.within(path.display()))?;
        text::write(path, &text).map_err(|error| CalibrationError::io("write", path, error))
    }

    /// The text of a file; equal calibrations have equal texts.
    pub fn to_text(&self) -> String {
        let header = [
            Some(("model", escape(&self.model))),
            self.hash.map(|hash| ("hash", hex(&hash))),
            Some(("calibrator", escape(&self.calibrator))),
            Some(("samples", self.n_samples.to_string())),
        ];
        let header = header.into_iter().flatten().map(|(key, value)| format!("{key}\t{value}"));
        // Debug prints the shortest decimal number that reads back the same, with an exponent where that is long.
        let tensor = |(name, range): &(String, Range)| {
            format!("tensor\t{}\t{:?}\t{:?}\t{:?}", escape(name), range.min, range.max, range.threshold)
        };
        let channels = |(name, channels): &(String, Channels)| {
            let list = |numbers: &[f32]| {
                numbers.iter().map(|number| format!("{number:?}")).collect::<Vec<_>>().join(" ")
            };
            let Channels { means, roots, largest } = channels;
            format!("channels\t{}\t{}\t{}\t{}", escape(name), list(means), list(roots), list(largest))
        };
        let tensors = self.ranges.iter().map(tensor);
        let equalize = self.equalize.then(|| "equalize\tyes".to_string());
        let wide = self.wide.iter().map(|name| format!("wide\t{}", escape(name)));
        let lines =
            header.chain(tensors).chain(self.channels.iter().map(channels)).chain(equalize).chain(wide);
        FORMAT.text(FIELDS, lines)
    }

    /// The calibration in a text: Planish's own, or a cache of TensorRT.
    pub fn from_text(text: &str) -> Result<Calibration, CalibrationError> {
        if text.starts_with(tensorrt::PREFIX) {
            return Calibration::from_tensorrt(text);
        }
        let mut calibration = Calibration::default();
        let mut keys = Vec::new();
        let (mut names, mut with_channels) =
            (std::collections::HashSet::new(), std::collections::HashSet::new());
        for (number, line) in FORMAT.lines(text)? {
            let bad = |what: &str| CalibrationError::from(bad_line(number, what));
            let Some((key, value)) = line.split_once('\t') else {
                return Err(bad("a word and what it says, separated by a tab, belong here"));
            };
            if key == "tensor" {
                let (name, range) = read_tensor(value).map_err(bad)?;
                if !names.insert(name.clone()) {
                    return Err(bad("the tensor stands in the file twice"));
                }
                calibration.ranges.push((name, range));
                continue;
            }
            if key == "channels" {
                let (name, channels) = read_channels(value).map_err(bad)?;
                if !with_channels.insert(name.clone()) {
                    return Err(bad("the channels stand in the file twice"));
                }
                calibration.channels.push((name, channels));
                continue;
            }
            let word = || unescape(value).ok_or_else(|| bad("a `\\` stands before a wrong character"));
            if key == "wide" {
                calibration.wide.push(word()?);
                continue;
            }
            if keys.contains(&key) {
                return Err(bad(&format!("`{key}` stands in the file twice")));
            }
            keys.push(key);
            match key {
                "model" => calibration.model = word()?,
                "hash" => {
                    let hash = from_hex(value).ok_or_else(|| bad("a hash is 64 hexadecimal digits"))?;
                    calibration.hash = Some(hash);
                }
                "calibrator" => calibration.calibrator = word()?,
                "equalize" => {
                    calibration.equalize = match value {
                        "yes" => true,
                        "no" => false,
                        _ => return Err(bad("`equalize` is yes or no")),
                    }
                }
                "samples" => {
                    let n_samples = value.parse().map_err(|_| bad("`samples` is a whole number"))?;
                    calibration.n_samples = n_samples;
                }
                _ => {
                    return Err(bad(
                        "a line begins with model, hash, calibrator, samples, tensor, channels, equalize or wide",
                    ));
                }
            }
        }
        Ok(calibration)
    }
}

fn read_tensor(fields: &str) -> Result<(String, Range), &'static str> {
    let fields: Vec<&str> = fields.split('\t').collect();
    let [name, min, max, threshold] = fields[..] else {
        return Err(
            "a tensor has a name, its smallest and largest value and its threshold, separated by tabs",
        );
    };
    let name = unescape(name).ok_or("a `\\` stands before a wrong character")?;
    const NUMBERS: &str = "smallest and largest value and threshold are finite numbers";
    let number = |text: &str| text.parse::<f32>().ok().filter(|number| number.is_finite()).ok_or(NUMBERS);
    let range = Range { min: number(min)?, max: number(max)?, threshold: number(threshold)? };
    if range.min > range.max {
        return Err("the smallest value is above the largest");
    }
    if range.threshold.is_sign_negative() {
        return Err("a threshold is not negative");
    }
    Ok((name, range))
}

fn read_channels(fields: &str) -> Result<(String, Channels), &'static str> {
    let fields: Vec<&str> = fields.split('\t').collect();
    let [name, means, roots, largest] = fields[..] else {
        return Err(
            "channels have a name, means, roots of mean squares and largest magnitudes, separated by tabs",
        );
    };
    let name = unescape(name).ok_or("a `\\` stands before a wrong character")?;
    let list = |text: &str| -> Result<Vec<f32>, &'static str> {
        let number = |text: &str| text.parse::<f32>().ok().filter(|number| number.is_finite());
        let numbers: Option<Vec<f32>> = text.split(' ').map(number).collect();
        numbers.ok_or("channels are finite numbers, separated by spaces")
    };
    let channels = Channels { means: list(means)?, roots: list(roots)?, largest: list(largest)? };
    if channels.means.len() != channels.roots.len() || channels.means.len() != channels.largest.len() {
        return Err("channels have as many means as roots and magnitudes");
    }
    Ok((name, channels))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (idx, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * idx..2 * idx + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example() -> Calibration {
        let range = |min, max, threshold| Range { min, max, threshold };
        Calibration {
            model: "net".to_string(),
            hash: Some([0xab; 32]),
            calibrator: "entropy".to_string(),
            n_samples: 500,
            ranges: vec![
                ("x".to_string(), range(-2.5, 1.0, 2.25)),
                ("/layer one/Conv_output:0".to_string(), range(0.0, 1e-30, 1e-30)),
                ("zero".to_string(), range(0.0, 0.0, 0.0)),
            ],
            channels: vec![(
                "x".to_string(),
                Channels { means: vec![-0.5, 0.0], roots: vec![1.0, 0.25], largest: vec![2.5, 1e-30] },
            )],
            equalize: true,
            wide: vec!["block\tone/fc".to_string(), "last".to_string()],
        }
    }

    #[test]
    fn the_file_is_as_the_manual_says() {
        let hash = "ab".repeat(32);
        let text = format!(
            "planish calibration 1\n# {FIELDS}\nmodel\tnet\nhash\t{hash}\ncalibrator\tentropy\nsamples\t500\n\
             tensor\tx\t-2.5\t1.0\t2.25\ntensor\t/layer one/Conv_output:0\t0.0\t1e-30\t1e-30\n\
             tensor\tzero\t0.0\t0.0\t0.0\nchannels\tx\t-0.5 0.0\t1.0 0.25\t2.5 1e-30\n\
             equalize\tyes\nwide\tblock\\tone/fc\nwide\tlast\n"
        );
        assert_eq!(example().to_text(), text);
        assert_eq!(Calibration::from_text(&text).unwrap(), example());
        // As somebody may have edited it.
        let edited = "planish calibration 1\n\n# mine\ntensor\tx\t-1\t+1e0\t1\n";
        let read = Calibration::from_text(edited).unwrap();
        assert_eq!(read.get("x"), Some(&Range { min: -1.0, max: 1.0, threshold: 1.0 }));
        assert_eq!((read.hash, read.get("y")), (None, None));
    }

    #[test]
    fn wrong_lines_are_named() {
        let hash = "ab".repeat(32);
        for (lines, what) in [
            ("tensor\tx\t0\t1", "a tensor has a name, its smallest and largest value and its threshold"),
            ("tensor\tx\t0\t1\t1\t1", "a tensor has a name"),
            ("tensor\tx\t0\tNaN\t1", "smallest and largest value and threshold are finite numbers"),
            ("tensor\tx\t0\tinf\t1", "smallest and largest value and threshold are finite numbers"),
            ("tensor\tx\t0\t1e99\t1", "smallest and largest value and threshold are finite numbers"),
            ("tensor\tx\t0\t1,5\t1", "smallest and largest value and threshold are finite numbers"),
            ("tensor\tx\t2\t1\t1", "the smallest value is above the largest"),
            ("tensor\tx\t0\t1\t-1", "a threshold is not negative"),
            ("tensor\t\\x\t0\t1\t1", "a `\\` stands before a wrong character"),
            ("tensor\tx\t0\t1\t1\ntensor\tx\t0\t1\t1", "the tensor stands in the file twice"),
            ("samples\t-1", "`samples` is a whole number"),
            ("samples\t1\nsamples\t1", "`samples` stands in the file twice"),
            ("hash\tabc", "a hash is 64 hexadecimal digits"),
            (&format!("hash\t{}é", &hash[2..]), "a hash is 64 hexadecimal digits"),
            (
                "shape\t1",
                "a line begins with model, hash, calibrator, samples, tensor, channels, equalize or wide",
            ),
            ("equalize\tmaybe", "`equalize` is yes or no"),
            ("equalize\tyes\nequalize\tno", "`equalize` stands in the file twice"),
            ("wide\t\\x", "a `\\` stands before a wrong character"),
            (
                "channels\tx\t1 2\t1 2",
                "channels have a name, means, roots of mean squares and largest magnitudes",
            ),
            ("channels\tx\t1 2\t1 2\t1", "channels have as many means as roots and magnitudes"),
            ("channels\tx\t1 a\t1 2\t1 2", "channels are finite numbers, separated by spaces"),
            ("channels\tx\t1\t1\t1\nchannels\tx\t1\t1\t1", "the channels stand in the file twice"),
            ("tensor x 0 1 1", "a word and what it says, separated by a tab, belong here"),
        ] {
            let text = format!("planish calibration 1\n{lines}\n");
            let error = Calibration::from_text(&text).unwrap_err().to_string();
            let line = 1 + lines.lines().count();
            assert!(error.starts_with(&format!("line {line}: {what}")), "{lines}: {error}");
        }
        let newer = Calibration::from_text("planish calibration 2\n").unwrap_err().to_string();
        assert!(newer.starts_with("the file has format 2 of calibration"), "{newer}");
        assert!(Calibration::from_text("").is_err());
        assert!(Calibration::from_text("planish timings 1\n").is_err());
    }

    #[test]
    fn cut_files_are_read_by_whole_lines_or_refused() {
        let text = example().to_text();
        for end in 0..text.len() {
            let Ok(read) = Calibration::from_text(&text[..end]) else { continue };
            // A number that lost its last digits is a number; nothing else is taken for whole.
            assert!(read.ranges.len() <= 3 && read.n_samples <= 500, "cut at {end}");
        }
    }

    #[test]
    fn calibrations_of_other_models_are_refused() {
        assert!(example().check_model(&[0xab; 32]).is_ok());
        let error = example().check_model(&[1; 32]).unwrap_err();
        assert!(matches!(error.kind(), CalibrationErrorKind::OtherModel));
        assert!(error.to_string().contains("(`net`, abababab against 01010101)"), "{error}");
        assert!(Calibration { hash: None, ..example() }.check_model(&[1; 32]).is_ok());
    }

    #[test]
    fn files_come_back() {
        let path = std::env::temp_dir().join(format!("planish-calibration-{}", std::process::id()));
        example().save(&path).unwrap();
        assert_eq!(Calibration::open(&path).unwrap(), example());
        std::fs::write(&path, b"planish calibration 1\nx\n").unwrap();
        let error = Calibration::open(&path).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: line 2: ", path.display())), "{error}");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(Calibration::open(&path).unwrap_err().to_string().contains("is not text"));
        std::fs::remove_file(&path).unwrap();
        let error = Calibration::open(&path).unwrap_err();
        assert!(matches!(error.kind(), CalibrationErrorKind::Io { doing: "read", .. }));
        assert!(error.to_string().starts_with("cannot read "), "{error}");
    }

    proptest! {
        /// Any names and numbers come back, bit for bit.
        #[test]
        fn texts_come_back(
            names in proptest::collection::hash_set(".{0,12}", 0..8),
            numbers in proptest::collection::vec((any::<f32>(), any::<f32>(), any::<f32>()), 8),
            model in ".{0,8}",
            calibrator in ".{0,8}",
            wide in proptest::collection::vec(".{0,8}", 0..3),
            equalize in any::<bool>(),
        ) {
            let finite = |number: f32| if number.is_finite() { number } else { 0.5 };
            let range = |&(a, b, c): &(f32, f32, f32)| {
                let (a, b) = (finite(a), finite(b));
                Range { min: a.min(b), max: a.max(b), threshold: finite(c).abs() }
            };
            let ranges = names.into_iter().zip(numbers.iter().map(range)).collect();
            let calibration =
                Calibration { model, hash: Some([9; 32]), calibrator, n_samples: 1, ranges, channels: Vec::new(), equalize, wide };
            prop_assert_eq!(&Calibration::from_text(&calibration.to_text()).unwrap(), &calibration);
        }
    }
}
