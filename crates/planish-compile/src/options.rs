//! What a build is asked for.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use planish_kernel::{Arithmetic, Backend, Candidate, Problem, REFERENCE_SOURCE, Tactic};
use planish_passes::{ActivationRange, Channels, DynamicRange, SecondMoments, WeightRange, WeightStorage};
use planish_plan::{MAX_PLAN_THREADS, Profile};
use planish_tensor::DType;

use crate::choose::tactic_lock::TacticLock;
use crate::error::{BuildError, BuildErrorKind};
use crate::sparsity::Sparsity;

/// Told about the stages of a build (`optimize`, `tune`, `check`): what is done, and how many of how many steps; 0 of 0
/// where nobody can say. It is called from the thread that builds, often, and should return at once.
pub type Progress = Arc<dyn Fn(&str, usize, usize) + Send + Sync>;

/// Asked for every problem: whether a candidate may be used. The last one left may be refused too; the build
/// then fails.
pub type TacticSelector = Arc<dyn Fn(&Problem, &Candidate) -> bool + Send + Sync>;

/// What the model is computed in, where operators allow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Precision {
    #[default]
    Fp32,
    /// Values in f32, products of factors rounded to tf32.
    Tf32,
    /// Values in f16, sums in f32.
    Fp16,
    /// Values in bf16, sums in f32.
    Bf16,
    /// Layers of 8-bit integers, by the ranges of a calibration; sums in i32, everything else in f32.
    Int8,
    /// Layers of 8-bit floats (E4M3), by the ranges of a calibration; sums in f32, everything else in f16 on a GPU and in f32
    /// on a CPU, which multiplies in f32 what was rounded to 8 bits.
    Fp8,
}

impl Precision {
    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Precision::Fp32 => "fp32",
            Precision::Tf32 => "tf32",
            Precision::Fp16 => "fp16",
            Precision::Bf16 => "bf16",
            Precision::Int8 => "int8",
            Precision::Fp8 => "fp8",
        }
    }

    pub fn named(name: &str) -> Option<Precision> {
        let all = [
            Precision::Fp32,
            Precision::Tf32,
            Precision::Fp16,
            Precision::Bf16,
            Precision::Int8,
            Precision::Fp8,
        ];
        all.into_iter().find(|precision| precision.name() == name)
    }

    /// What its products are taken in.
    pub fn arithmetic(self) -> Arithmetic {
        match self {
            Precision::Fp32 => Arithmetic::F32,
            Precision::Tf32 => Arithmetic::Tf32,
            Precision::Fp16 => Arithmetic::F16,
            Precision::Bf16 => Arithmetic::Bf16,
            Precision::Int8 => Arithmetic::I8,
            Precision::Fp8 => Arithmetic::F8,
        }
    }

    /// Whether layers are quantized to 8 bits by the ranges of a calibration.
    pub fn quantizes(self) -> bool {
        matches!(self, Precision::Int8 | Precision::Fp8)
    }

    /// What all of its values are stored in, where that is not f32.
    pub(crate) fn storage(self) -> Option<DType> {
        match self {
            Precision::Fp32 | Precision::Tf32 | Precision::Int8 | Precision::Fp8 => None,
            Precision::Fp16 => Some(DType::F16),
            Precision::Bf16 => Some(DType::BF16),
        }
    }
}

/// What a build is asked for.
#[derive(Clone)]
pub struct BuildOptions {
    /// Hash of the source model, kept in the plan.
    pub source: [u8; 32],
    /// Pairs of the user's own, which the plan keeps and shows; they change nothing else.
    pub metadata: BTreeMap<String, String>,
    /// Shapes that the plan may run at; empty for any that the model accepts.
    pub profiles: Vec<Profile>,
    /// Sizes to tune at, for symbols that no profile names.
    pub tune_at: Vec<(String, i64)>,
    /// What was put around the model (`io=`, `pre=`, `post=`, `labels=`), nodes of its graph by now, and its states (`state=`).
    pub border: Vec<String>,
    /// What the model is computed in.
    pub precision: Precision,
    /// Patterns of names (`*` for any letters, `?` for one) of nodes that stay in f32.
    pub fp32_layers: Vec<String>,
    /// The same of layers that [`Precision::Int8`] or [`Precision::Fp8`] quantizes though they are first or last ones.
    pub int8_layers: Vec<String>,
    /// Layers that [`Precision::Int8`] leaves wide, since integers were measured to make them no faster; names, not
    /// patterns. A build finds them itself.
    pub wide_layers: Vec<String>,
    /// Nodes that [`Precision::Int8`] or [`Precision::Fp8`] has read floats, since a calibration measured that 8 bits cost too
    /// much there; names, not patterns.
    pub imprecise_nodes: Vec<String>,
    /// Layers keep the precision that was asked for, even where a wider one is measured to be faster.
    pub obey_precision: bool,
    /// What a calibration found of the optimized model's values, by their names: [`Precision::Int8`] and
    /// [`Precision::Fp8`] need it, and [`Precision::Fp16`] leaves what reaches too far in f32 by it.
    pub ranges: HashMap<String, ActivationRange>,
    /// The same of what layers read, channel by channel.
    pub channels: HashMap<String, Channels>,
    /// How the channels go together of what matrix products read: with it [`BuildOptions::weights`] are rounded with regard
    /// to that.
    pub moments: Arc<HashMap<String, SecondMoments>>,
    /// With [`Precision::Int8`] and channels: evens out what layers read where that is less noise.
    pub equalize: bool,
    /// With [`Precision::Int8`] and channels: biases make up for what rounding weights does to means.
    pub correct_biases: bool,
    /// With [`Precision::Int8`]: matrix products alone are of integers, and the ranges of activations are found in each
    /// run, so that no calibration is needed.
    pub dynamic: Option<DynamicRange>,
    /// Weights of large matrix products are stored as integers, and everything is computed as it would be without.
    pub weights: Option<WeightStorage>,
    /// What is made of weights that are 2:4 sparse.
    pub sparsity: Sparsity,
    /// Types are as the model says: nothing is lowered, and other options that choose types are refused.
    pub strongly_typed: bool,
    /// How far integer weights reach; `None` as this machine multiplies them fastest.
    pub weight_range: Option<WeightRange>,
    /// Threads that the plan is tuned for.
    pub threads: usize,
    /// 0 goes by the cost model, up to 5 measures more and more.
    pub tune_level: u32,
    /// Passes that are left out.
    pub disabled_passes: Vec<String>,
    /// Stop the pipeline after this many passes.
    pub stop_after: Option<usize>,
    /// Say why rules refused.
    pub explain: bool,
    /// Tactics whose names contain one of these are left out.
    pub banned_tactics: Vec<String>,
    /// Refuse slow kernels, and steps on the host where a device was asked for.
    pub strict: bool,
    /// Whether Winograd convolutions may be used: faster, with a larger rounding error.
    pub winograd: bool,
    /// Whether a device's steps go to the host where that saves more in transfers than it costs; without it a device
    /// computes all that it has kernels for.
    pub price_transfers: bool,
    /// Sources of tactics taken in (true) or left out, from all of them on: see
    /// [`BuildOptions::set_tactic_sources`].
    pub tactic_sources: Vec<(bool, String)>,
    /// How long tactics may be searched for; what is not measured by then goes by the cost model.
    pub build_time: Option<Duration>,
    /// The most workspace bytes that a step may ask for, at the sizes that it is tuned at.
    pub workspace: Option<usize>,
    /// Tactics that the build must take.
    pub tactics: Option<TacticLock>,
    /// Has a say in which tactics may be used.
    pub selector: Option<TacticSelector>,
    /// A file of times, read before the build and written while it measures and at its end, however it ends.
    pub timing_cache: Option<PathBuf>,
    /// Fail where a time is not in the cache, instead of measuring it.
    pub timing_cache_only: bool,
    /// Whether the plan is checked against the reference and itself before it is handed out.
    pub verify: bool,
    pub progress: Option<Progress>,
    /// Set from another thread to stop the build.
    pub cancel: Arc<AtomicBool>,
}

impl Default for BuildOptions {
    fn default() -> BuildOptions {
        BuildOptions {
            source: [0; 32],
            metadata: BTreeMap::new(),
            profiles: Vec::new(),
            tune_at: Vec::new(),
            border: Vec::new(),
            precision: Precision::default(),
            fp32_layers: Vec::new(),
            int8_layers: Vec::new(),
            wide_layers: Vec::new(),
            imprecise_nodes: Vec::new(),
            obey_precision: false,
            ranges: HashMap::new(),
            dynamic: None,
            channels: HashMap::new(),
            moments: Arc::default(),
            equalize: false,
            correct_biases: true,
            weights: None,
            sparsity: Sparsity::default(),
            strongly_typed: false,
            weight_range: None,
            threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            tune_level: 3,
            disabled_passes: Vec::new(),
            stop_after: None,
            explain: false,
            banned_tactics: Vec::new(),
            strict: false,
            winograd: true,
            price_transfers: true,
            verify: true,
            tactic_sources: Vec::new(),
            build_time: None,
            workspace: None,
            tactics: None,
            selector: None,
            timing_cache: None,
            timing_cache_only: false,
            progress: None,
            cancel: Arc::new(AtomicBool::new(false)),
        }
    }
}

impl fmt::Debug for BuildOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl BuildOptions {
    /// The options that decide what the plan is, one a line.
    pub(crate) fn text(&self) -> String {
        let mut lines = vec![
            format!("precision={}", self.precision.name()),
            format!("threads={}", self.threads),
            format!("tune_level={}", self.tune_level),
            format!("strict={}", self.strict),
            format!("winograd={}", self.winograd),
        ];
        lines.extend(self.border.iter().cloned());
        lines.extend((!self.price_transfers).then(|| "price_transfers=false".to_string()));
        lines.extend(self.fp32_layers.iter().map(|name| format!("fp32_layer={name}")));
        lines.extend(self.int8_layers.iter().map(|name| format!("int8_layer={name}")));
        lines.extend(self.wide_layers.iter().map(|name| format!("wide_layer={name}")));
        lines.extend(self.imprecise_nodes.iter().map(|name| format!("imprecise_node={name}")));
        lines.extend(self.obey_precision.then(|| "obey_precision=true".to_string()));
        lines.extend(self.dynamic.map(|range| format!("dynamic={range}")));
        lines.extend(self.equalize.then(|| "equalize=true".to_string()));
        lines.extend((!self.correct_biases).then(|| "correct_biases=false".to_string()));
        lines.extend(self.moments_digest().map(|digest| format!("moments={digest:016x}")));
        lines.extend(self.weights.map(|weights| format!("weights={weights}")));
        let is_usual = self.sparsity == Sparsity::default();
        lines.extend((!is_usual).then(|| format!("sparsity={}", self.sparsity)));
        lines.extend(self.strongly_typed.then(|| "strongly_typed=true".to_string()));
        let range = self.weight_range.filter(|range| *range != WeightRange::Full);
        lines.extend(range.map(|range| format!("weight_range={}", range.name())));
        lines.extend(self.ranges_digest().map(|digest| format!("ranges={digest:016x}")));
        lines.extend(self.stop_after.map(|n| format!("stop_after={n}")));
        lines.extend(self.disabled_passes.iter().map(|name| format!("disabled_pass={name}")));
        lines.extend(self.banned_tactics.iter().map(|name| format!("banned_tactic={name}")));
        if !self.tactic_sources.is_empty() {
            let one = |(taken, name): &(bool, String)| format!("{}{name}", if *taken { '+' } else { '-' });
            let list: Vec<String> = self.tactic_sources.iter().map(one).collect();
            lines.push(format!("tactic_sources={}", list.join(",")));
        }
        lines.extend(self.build_time.map(|time| format!("build_time_ms={}", time.as_millis())));
        lines.extend(self.workspace.map(|bytes| format!("workspace={bytes}")));
        lines.sort();
        lines.join("\n")
    }

    /// The options that a plan was built with, from its own text; lines that this version does not understand
    /// are given back.
    pub(crate) fn from_text(text: &str) -> (BuildOptions, Vec<String>) {
        let mut options = BuildOptions::default();
        let mut unknown = Vec::new();
        for line in text.lines() {
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            if options.take(name, value).is_none() {
                unknown.push(line.to_string());
            }
        }
        (options, unknown)
    }

    fn take(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "precision" => self.precision = Precision::named(value)?,
            "io" | "pre" | "post" | "labels" | "state" => self.border.push(format!("{name}={value}")),
            "fp32_layer" => self.fp32_layers.push(value.to_string()),
            "int8_layer" => self.int8_layers.push(value.to_string()),
            "wide_layer" => self.wide_layers.push(value.to_string()),
            "imprecise_node" => self.imprecise_nodes.push(value.to_string()),
            "obey_precision" => self.obey_precision = value.parse().ok()?,
            "dynamic" => self.dynamic = Some(value.parse().ok()?),
            "equalize" => self.equalize = value.parse().ok()?,
            "correct_biases" => self.correct_biases = value.parse().ok()?,
            "weights" => self.weights = Some(value.parse().ok()?),
            "sparsity" => self.sparsity = value.parse().ok()?,
            "strongly_typed" => self.strongly_typed = value.parse().ok()?,
            // As versions before this option wrote it.
            "reduced_weights" => {
                self.weight_range = value.parse().ok().filter(|is: &bool| *is).map(|_| WeightRange::Reduced)
            }
            "weight_range" => self.weight_range = Some(WeightRange::named(value)?),
            // The integers that the ranges led to are in the plan's graph.
            "ranges" | "moments" => {}
            "tactic_sources" => {
                // A source that is not known here gives no tactics.
                let known: Vec<&str> =
                    value.split(',').map(|part| part.trim_start_matches(['+', '-'])).collect();
                self.set_tactic_sources(value, &known).ok()?
            }
            "build_time_ms" => self.build_time = Some(Duration::from_millis(value.parse().ok()?)),
            "workspace" => self.workspace = Some(value.parse().ok()?),
            "threads" => self.threads = value.parse().ok().filter(|threads| *threads > 0)?,
            "tune_level" => self.tune_level = value.parse().ok()?,
            "strict" => self.strict = value.parse().ok()?,
            "winograd" => self.winograd = value.parse().ok()?,
            "price_transfers" => self.price_transfers = value.parse().ok()?,
            "stop_after" => self.stop_after = Some(value.parse().ok()?),
            "disabled_pass" => self.disabled_passes.push(value.to_string()),
            "banned_tactic" => self.banned_tactics.push(value.to_string()),
            _ => return None,
        }
        Some(())
    }

    /// Refuses options that contradict each other, or that no plan can be for.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let wrong = |message: &str| Err(BuildError::new(BuildErrorKind::BadOption, message.to_string()));
        if self.threads > MAX_PLAN_THREADS as usize {
            let asked = self.threads;
            return wrong(&format!(
                "a plan for {asked} threads is asked for; at most {MAX_PLAN_THREADS} can be"
            ));
        }
        let lowers = self.precision != Precision::Fp32
            || self.weights.is_some()
            || !(self.fp32_layers.is_empty() && self.int8_layers.is_empty());
        if self.strongly_typed && lowers {
            return wrong(
                "--strongly-typed keeps the types of the model; leave --precision, --layer-precision and --weights out",
            );
        }
        if self.dynamic.is_some() && self.precision != Precision::Int8 {
            return wrong("--dynamic is for layers of integers; build with --precision int8");
        }
        if self.dynamic.is_some() && !self.ranges.is_empty() {
            return wrong("--dynamic finds ranges in each run; leave the calibration out, or --dynamic");
        }
        if self.weights.is_some() && self.precision.quantizes() {
            let name = self.precision.name();
            return wrong(&format!(
                "--weights stores weights alone as integers, --precision {name} quantizes activations too; give one of them"
            ));
        }
        Ok(())
    }

    /// Tells ranges and channels from others; `None` where there are none.
    pub(crate) fn ranges_digest(&self) -> Option<u64> {
        let range = |(name, range): (&String, &ActivationRange)| {
            (name.clone(), vec![range.min, range.max, range.threshold])
        };
        let channels = |(name, channels): (&String, &Channels)| {
            let Channels { means, roots, largest } = channels;
            (format!("{name} by channel"), [&means[..], roots, largest].concat())
        };
        digest(self.ranges.iter().map(range).chain(self.channels.iter().map(channels)))
    }

    /// The same of moments.
    pub(crate) fn moments_digest(&self) -> Option<u64> {
        let one = |(name, moments): (&String, &SecondMoments)| {
            let diagonal = (0..moments.n_channels()).map(|channel| moments.mean(channel, channel) as f32);
            (name.clone(), diagonal.collect())
        };
        digest(self.moments.iter().map(one))
    }

    /// Tells how far a stage is.
    pub(crate) fn tell(&self, stage: &str, done: usize, of: usize) {
        if let Some(progress) = &self.progress {
            progress(stage, done, of);
        }
    }

    /// An error where the caller has asked to stop.
    pub(crate) fn go_on(&self) -> Result<(), BuildError> {
        if self.cancel.load(Ordering::Relaxed) { Err(BuildError::cancelled()) } else { Ok(()) }
    }

    /// Takes sources of tactics in or leaves them out, as in `+own,-cudnn`: all are in from the start, the last word
    /// on each counts. Names alone, as in `own` or `own,cublaslt`, leave all others out but the reference, which
    /// computes what nothing else does. `known` are the sources of all backends ([`planish_kernel::Compiler::sources`]).
    pub fn set_tactic_sources(&mut self, list: &str, known: &[&str]) -> Result<(), BuildError> {
        let wrong = |message: String| Err(BuildError::new(BuildErrorKind::BadOption, message));
        let parts = || list.split(',').map(str::trim).filter(|part| !part.is_empty());
        let is_signed = |part: &str| part.starts_with(['+', '-']);
        let signed = parts().any(is_signed);
        if let (true, Some(part)) = (signed, parts().find(|part| !is_signed(part))) {
            let message = format!(
                "`{part}` begins with neither + nor -, others do; give +NAME and -NAME, or names alone"
            );
            return wrong(message);
        }
        let mut sources = Vec::new();
        if !signed && parts().next().is_some() {
            let others = known.iter().filter(|name| **name != REFERENCE_SOURCE);
            sources.extend(others.map(|name| (false, name.to_string())));
        }
        for part in parts() {
            let name = part.trim_start_matches(['+', '-']);
            if !known.contains(&name) {
                let known = known.join(", ");
                return wrong(format!("no tactics come from `{name}`; they come from {known}"));
            }
            sources.push((!part.starts_with('-'), name.to_string()));
        }
        self.tactic_sources = sources;
        Ok(())
    }

    /// Whether a candidate may be used, as far as its name and source tell.
    pub(crate) fn takes(&self, backend: &dyn Backend, candidate: &Candidate) -> bool {
        self.takes_source(backend.source(&candidate.tactic))
            && (candidate.slow || self.allows(backend, &candidate.tactic))
    }

    /// Whether tactics of this source may be used.
    pub fn takes_source(&self, source: &str) -> bool {
        let last = self.tactic_sources.iter().rev().find(|(_, name)| name == source);
        last.is_none_or(|(taken, _)| *taken)
    }

    /// Whether a tactic may be used.
    fn allows(&self, backend: &dyn Backend, tactic: &Tactic) -> bool {
        let banned = self.banned_tactics.iter().any(|part| tactic.name.contains(part.as_str()));
        !banned && (self.winograd || backend.error_growth(tactic) <= 1.0)
    }
}

/// FNV-1a over names and bits, in the order of the names; `None` where there are none.
fn digest(named: impl Iterator<Item = (String, Vec<f32>)>) -> Option<u64> {
    let mut all: Vec<(String, Vec<f32>)> = named.collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    let one = |(name, numbers): &(String, Vec<f32>)| {
        let bits: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        [name.as_bytes(), &[0], &bits].concat()
    };
    let mix = |digest: u64, byte: u8| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let digest = all.iter().flat_map(one).fold(0xcbf2_9ce4_8422_2325, mix);
    (!all.is_empty()).then_some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_back_from_their_text() {
        let options = BuildOptions {
            precision: Precision::Fp16,
            fp32_layers: vec!["head*".into()],
            int8_layers: vec!["stem".into()],
            wide_layers: vec!["tail".into()],
            imprecise_nodes: vec!["neck".into()],
            obey_precision: true,
            dynamic: Some(DynamicRange::Tensor),
            equalize: true,
            correct_biases: false,
            weights: "int4:64".parse().ok(),
            sparsity: Sparsity::Force,
            strongly_typed: true,
            weight_range: Some(WeightRange::Pairs),
            threads: 3,
            tune_level: 1,
            strict: true,
            winograd: false,
            stop_after: Some(7),
            disabled_passes: vec!["fold_constants".into(), "remove_dead".into()],
            banned_tactics: vec!["conv_band".into()],
            tactic_sources: vec![(true, "own".into()), (false, "cudnn".into())],
            build_time: Some(Duration::from_secs(60)),
            workspace: Some(4 << 30),
            ..BuildOptions::default()
        };
        let text = options.text();
        let (again, unknown) = BuildOptions::from_text(&text);
        assert_eq!((again.text(), unknown.len()), (text, 0));
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let refused = |options: BuildOptions| options.check().is_err();
        let usual = BuildOptions::default;
        let int8 = || BuildOptions { precision: Precision::Int8, ..usual() };
        let weights = || BuildOptions { weights: "int8".parse().ok(), ..usual() };
        assert!(!refused(usual()) && !refused(weights()) && !refused(int8()));
        let for_threads = |threads| BuildOptions { threads, ..usual() };
        assert!(!refused(for_threads(4096)) && refused(for_threads(4097)));
        assert!(
            !refused(BuildOptions { dynamic: Some(DynamicRange::Row), ..int8() })
                && refused(BuildOptions { dynamic: Some(DynamicRange::Row), ..usual() })
        );
        assert!(refused(BuildOptions { precision: Precision::Int8, ..weights() }));
        for other in [int8(), weights(), BuildOptions { fp32_layers: vec!["a".into()], ..usual() }] {
            assert!(refused(BuildOptions { strongly_typed: true, ..other }));
        }
    }

    #[test]
    fn ranges_tell_plans_apart() {
        let with = |ranges: &[(&str, f32)]| {
            let range = |&(name, max): &(&str, f32)| {
                (name.to_string(), ActivationRange { min: 0.0, max, threshold: max })
            };
            BuildOptions { ranges: ranges.iter().map(range).collect(), ..BuildOptions::default() }.text()
        };
        assert_eq!(with(&[("a", 1.0), ("b", 2.0)]), with(&[("b", 2.0), ("a", 1.0)]));
        assert_ne!(with(&[("a", 1.0), ("b", 2.0)]), with(&[("a", 1.0), ("b", 2.5)]));
        assert!(!with(&[]).contains("ranges") && with(&[("a", 1.0)]).contains("\nranges="));
        assert_eq!(BuildOptions::from_text(&with(&[("a", 1.0)])).1.len(), 0);
    }

    #[test]
    fn sources_have_names() {
        const KNOWN: &[&str] = &["own", "reference", "cublaslt", "cudnn"];
        let mut options = BuildOptions::default();
        options.set_tactic_sources("-reference, +own,-cudnn,+cudnn", KNOWN).unwrap();
        assert_eq!(options.tactic_sources.len(), 4);
        let error = options.set_tactic_sources("+own,-tensorrt", KNOWN).unwrap_err();
        assert_eq!(*error.kind(), BuildErrorKind::BadOption);
        let text = error.to_string();
        assert_eq!(text, "no tactics come from `tensorrt`; they come from own, reference, cublaslt, cudnn");
        assert!(
            options
                .set_tactic_sources("+own,cudnn", KNOWN)
                .unwrap_err()
                .to_string()
                .contains("neither + nor -")
        );
        options.set_tactic_sources("own", KNOWN).unwrap();
        let again = BuildOptions::from_text(&options.text()).0;
        for options in [options, again] {
            let last = |source: &str| options.tactic_sources.iter().rev().find(|(_, name)| name == source);
            assert_eq!(last("own").map(|(taken, _)| *taken), Some(true));
            assert_eq!(last("cudnn").map(|(taken, _)| *taken), Some(false));
            assert_eq!(last("reference"), None);
        }
    }

    #[test]
    fn lines_of_other_versions_are_given_back() {
        let (options, unknown) =
            BuildOptions::from_text("threads=0\ncolour=blue\nstrict=maybe\ntune_level=2\nx");
        assert_eq!(options.tune_level, 2);
        assert_eq!(unknown, ["threads=0", "colour=blue", "strict=maybe", "x"]);
    }
}
