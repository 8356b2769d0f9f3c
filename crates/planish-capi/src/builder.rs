//! `PlanishBuilder`: from a model to a plan. Options are the words of the command line.

use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use planish::record::kernel_of;
use planish::shapes::{List, apart, sizes_text};
use planish::{Builder, Built, Calibration, Device, Error, ErrorKind, Model, Precision};

use crate::calibration::PlanishCalibration;
use crate::engine::device_named;
use crate::given::{c_text, end, exclusive, give, shared, sizes, text, wrong};
use crate::model::PlanishModel;
use crate::plan::PlanishPlan;
use crate::status::{PlanishStatus, guarded};

/// How grave a message is.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanishSeverity {
    InternalError = 0,
    Error = 1,
    Warning = 2,
    Info = 3,
    Verbose = 4,
}

/// Is told what a build decides: notes as information, every step with its kernel as verbose. Must not throw.
pub type PlanishLog =
    Option<unsafe extern "C" fn(user: *mut c_void, severity: PlanishSeverity, message: *const c_char)>;

/// Is told how far a build is: a stage, how much of it is done, and of how much. Comes from threads of the build, one call at
/// a time. Gives 0 to go on; anything else stops the build, which then ends in `PLANISH_STATUS_CANCELLED`. Must not throw.
pub type PlanishProgress =
    Option<unsafe extern "C" fn(user: *mut c_void, stage: *const c_char, done: u64, of: u64) -> i32>;

/// A function of the caller's and what it is called with, which the caller keeps valid.
#[derive(Clone, Copy, Debug)]
struct Callback<F> {
    function: F,
    user: *mut c_void,
}

// SAFETY: the header says that progress is told from threads of the build.
unsafe impl<F> Send for Callback<F> {}
// SAFETY: as above; calls come one at a time, behind a lock.
unsafe impl<F> Sync for Callback<F> {}

/// The smallest, the usual and the largest sizes of one input.
#[derive(Clone, Debug)]
struct Range {
    input: String,
    shapes: [Vec<usize>; 3],
}

/// A build to be: a model and options. For one thread at a time.
#[derive(Debug)]
pub struct PlanishBuilder {
    model: Model,
    device: Device,
    precision: Precision,
    threads: Option<usize>,
    tune_level: Option<u32>,
    timing_cache: Option<PathBuf>,
    build_time: Option<Duration>,
    workspace: Option<usize>,
    tactic_sources: Option<String>,
    strict: bool,
    verify: bool,
    fp32_layers: Vec<String>,
    int8_layers: Vec<String>,
    profiles: Vec<Vec<Range>>,
    calibration: Option<Calibration>,
    log: Option<Callback<unsafe extern "C" fn(*mut c_void, PlanishSeverity, *const c_char)>>,
    progress: Option<Callback<unsafe extern "C" fn(*mut c_void, *const c_char, u64, u64) -> i32>>,
}

/// Every option, for the message about one that is none.
const OPTIONS: &str = "device, precision, threads, tune-level, timing-cache, build-time, workspace, \
                       tactic-sources, strict, verify, fp32-layers and int8-layers";

fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, Error> {
    value.parse().or_else(|_| wrong(format!("`{value}` is not a number that `{key}` takes")))
}

fn flag(key: &str, value: &str) -> Result<bool, Error> {
    match value {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => wrong(format!("`{key}` is 1 or 0, not `{value}`")),
    }
}

impl PlanishBuilder {
    fn new(model: Model) -> PlanishBuilder {
        PlanishBuilder {
            model,
            device: Device::Auto,
            precision: Precision::Fp32,
            threads: None,
            tune_level: None,
            timing_cache: None,
            build_time: None,
            workspace: None,
            tactic_sources: None,
            strict: false,
            verify: true,
            fp32_layers: Vec::new(),
            int8_layers: Vec::new(),
            profiles: Vec::new(),
            calibration: None,
            log: None,
            progress: None,
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
        match key {
            "device" => self.device = device_named(Some(value))?,
            "precision" => {
                let known = Precision::named(value);
                let known = known.ok_or_else(|| {
                    let message =
                        format!("`{value}` is not a precision; give fp32, tf32, fp16, bf16, int8 or fp8");
                    Error::new(ErrorKind::BadOption, message)
                });
                self.precision = known?;
            }
            "threads" => {
                let threads: usize = number(key, value)?;
                if threads == 0 {
                    return wrong("`threads` must be at least 1");
                }
                self.threads = Some(threads);
            }
            "tune-level" => self.tune_level = Some(number(key, value)?),
            "timing-cache" => self.timing_cache = Some(PathBuf::from(value)),
            "build-time" => {
                let seconds = Duration::try_from_secs_f64(number(key, value)?);
                let message = format!("`{value}` is no number of seconds");
                self.build_time = Some(seconds.map_err(|_| Error::new(ErrorKind::BadOption, message))?);
            }
            "workspace" => self.workspace = Some(number(key, value)?),
            "tactic-sources" => self.tactic_sources = Some(value.to_string()),
            "strict" => self.strict = flag(key, value)?,
            "verify" => self.verify = flag(key, value)?,
            "fp32-layers" => self.fp32_layers.push(value.to_string()),
            "int8-layers" => self.int8_layers.push(value.to_string()),
            _ => return wrong(format!("there is no option `{key}`; there are {OPTIONS}")),
        }
        Ok(())
    }

    /// The profiles as lists of texts, as the command line has them.
    fn lists(&self) -> Vec<[List; 3]> {
        let list = |origin, ranges: &[Range], idx: usize| -> List {
            let texts =
                ranges.iter().map(|range| format!("{}:{}", range.input, sizes_text(&range.shapes[idx])));
            (origin, texts.collect())
        };
        let profile = |ranges: &Vec<Range>| {
            [
                list("the profile's least", ranges, 0),
                list("the profile's usual", ranges, 1),
                list("the profile's largest", ranges, 2),
            ]
        };
        self.profiles.iter().filter(|ranges| !ranges.is_empty()).map(profile).collect()
    }

    fn log(&self, severity: PlanishSeverity, message: &str) {
        if let Some(Callback { function, user }) = self.log {
            let message = c_text(message);
            // SAFETY: the caller gave the function for this, and keeps `user` valid.
            unsafe { function(user, severity, message.as_ptr()) };
        }
    }

    fn build(&self) -> Result<PlanishPlan, Error> {
        let result = self.try_build();
        match &result {
            Ok(built) => {
                built.notes.iter().for_each(|note| self.log(PlanishSeverity::Info, note));
                for step in &built.plan.program.steps {
                    let (operators, kernel) = (step.region.ops(), kernel_of(step));
                    let name = if step.name.is_empty() { &operators } else { &step.name };
                    self.log(PlanishSeverity::Verbose, &format!("{name}: {operators} by {kernel}"));
                }
            }
            Err(error) => self.log(PlanishSeverity::Error, &error.to_string()),
        }
        Ok(PlanishPlan { plan: result?.plan.into() })
    }

    fn try_build(&self) -> Result<Built, Error> {
        if self.calibration.is_some() && !self.precision.quantizes() {
            return wrong("a calibration is for layers of 8 bits; set `precision` to int8 or fp8");
        }
        let (model, profiles) = apart(self.model.clone(), &self.lists())?;
        let mut builder =
            Builder::from_model(model).device(self.device).precision(self.precision).strict(self.strict);
        if let Some(sources) = &self.tactic_sources {
            builder = builder.tactic_sources(sources)?;
        }
        if let Some(calibration) = &self.calibration {
            // Its hash was looked at when it was given; symbols that were set apart change that.
            builder = builder.ranges(calibration);
        }
        let options = builder.options_mut();
        options.profiles = profiles;
        options.verify = self.verify;
        options.timing_cache.clone_from(&self.timing_cache);
        options.build_time = self.build_time;
        options.workspace = self.workspace;
        options.fp32_layers.clone_from(&self.fp32_layers);
        options.int8_layers.clone_from(&self.int8_layers);
        options.threads = self.threads.unwrap_or(options.threads);
        options.tune_level = self.tune_level.unwrap_or(options.tune_level);
        if let Some(callback) = self.progress {
            let cancel = Arc::new(AtomicBool::new(false));
            options.cancel = cancel.clone();
            let one_at_a_time = std::sync::Mutex::new(callback);
            options.progress = Some(Arc::new(move |stage: &str, done: usize, of: usize| {
                let Ok(callback) = one_at_a_time.lock() else { return };
                let stage = c_text(stage);
                // SAFETY: the caller gave the function for this, and keeps `user` valid.
                let stops =
                    unsafe { (callback.function)(callback.user, stage.as_ptr(), done as u64, of as u64) };
                if stops != 0 {
                    cancel.store(true, Ordering::Relaxed);
                }
            }));
        }
        Ok(builder.build_with_report()?.0)
    }
}

/// A build of a model, with the options that `planish build` has by default.
///
/// # Safety
/// `model` is one; `*builder` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_builder_new(
    model: *const PlanishModel,
    builder: *mut *mut PlanishBuilder,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let model = shared("the model", model);
        give(builder, || Ok(PlanishBuilder::new(model?.model.clone())))
    })
}

/// Sets an option, by the words of `planish build`:
///
/// - `device`: `auto`, `cpu`, `cuda` or `cuda:1`
/// - `precision`: `fp32`, `tf32`, `fp16`, `bf16`, or `int8` or `fp8` by a calibration
/// - `threads`: the CPU threads to tune for
/// - `tune-level`: `0` goes by the cost model, up to `5` measures more and more
/// - `timing-cache`: a file that keeps measured times from build to build
/// - `build-time`, `workspace`: the most seconds to search for kernels, and the most bytes that one may ask for
/// - `tactic-sources`: where kernels come from, `-cudnn` say
/// - `strict`: `1` refuses what only the slow reference can compute
/// - `verify`: `0` leaves the self-check out
/// - `fp32-layers`, `int8-layers`: names of layers, with `*` and `?`; each call adds to them
///
/// # Safety
/// `builder` is one; `key` and `value` end in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_builder_set(
    builder: *mut PlanishBuilder,
    key: *const c_char,
    value: *const c_char,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        exclusive("the builder", builder)?.set(text("the option", key)?, text("the option's value", value)?)
    })
}

/// Adds the sizes of an input to an optimization profile: the smallest and the largest that the plan takes, and the usual
/// ones that it is tuned for. Profiles are numbered from 0; the number after the last one begins another. Without a profile
/// a plan runs at any sizes.
///
/// # Safety
/// `builder` is one; `input` ends in a NUL; `least`, `usual` and `largest` have `rank` sizes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_builder_add_range(
    builder: *mut PlanishBuilder,
    profile: usize,
    input: *const c_char,
    rank: usize,
    least: *const i64,
    usual: *const i64,
    largest: *const i64,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let builder = exclusive("the builder", builder)?;
        let input = text("the input", input)?.to_string();
        let given = [("the least shape", least), ("the usual shape", usual), ("the largest shape", largest)];
        let [least, usual, largest] = given.map(|(what, first)| sizes(what, first, rank));
        let range = Range { input, shapes: [least?, usual?, largest?] };
        let n = builder.profiles.len();
        if profile > n {
            return wrong(format!("there are {n} profiles; {profile} is not the next one"));
        }
        if profile == n {
            builder.profiles.push(Vec::new());
        }
        builder.profiles[profile].retain(|known| known.input != range.input);
        builder.profiles[profile].push(range);
        Ok(())
    })
}

/// The ranges by which `precision` int8 or fp8 quantizes; refused if they are of another model. The builder copies them.
///
/// # Safety
/// `builder` and `calibration` are such.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_builder_set_calibration(
    builder: *mut PlanishBuilder,
    calibration: *const PlanishCalibration,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let builder = exclusive("the builder", builder)?;
        let calibration = &shared("the calibration", calibration)?.calibration;
        calibration.check_model(&builder.model)?;
        builder.calibration = Some(calibration.clone());
        Ok(())
    })
}

/// Has a function told what builds decide; NULL for none.
///
/// # Safety
/// `builder` is one; `log` may be called with `user` as long as it lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_builder_set_log(
    builder: *mut PlanishBuilder,
    log: PlanishLog,
    user: *mut c_void,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        exclusive("the builder", builder)?.log = log.map(|function| Callback { function, user });
        Ok(())
    })
}

/// Has a function told how far builds are; NULL for none.
///
/// # Safety
/// `builder` is one; `progress` may be called with `user` as long as it lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_builder_set_progress(
    builder: *mut PlanishBuilder,
    progress: PlanishProgress,
    user: *mut c_void,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        exclusive("the builder", builder)?.progress = progress.map(|function| Callback { function, user });
        Ok(())
    })
}

/// Builds the plan: optimized, tuned and checked for this machine. The builder can build again.
///
/// # Safety
/// `builder` is one; `*plan` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_builder_build(
    builder: *mut PlanishBuilder,
    plan: *mut *mut PlanishPlan,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let builder = exclusive("the builder", builder);
        give(plan, || builder?.build())
    })
}

/// Ends a builder. Plans of it live on.
///
/// # Safety
/// `builder` is one that nobody uses any more, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_builder_free(builder: *mut PlanishBuilder) {
    // SAFETY: the caller's promise.
    unsafe { end(builder) }
}
