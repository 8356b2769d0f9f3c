//! The policy of the tuner: how much is searched and measured at which tune level, what is cut off, and why.

use std::time::Duration;

use planish_kernel::Budget;

/// What families of kernels may offer at a tune level. The highest one takes all the time that it needs; below it a
/// build measures what the cost models put close to the best.
pub(crate) fn budget(tune_level: u32) -> Budget {
    if tune_level >= 5 { Budget::WIDE } else { Budget::USUAL }
}

/// Samples of each candidate by tune level; odd, so that a device's median is one of them. Level 0 goes by the cost model.
const ROUNDS: [usize; 6] = [0, 3, 5, 7, 11, 21];

/// Samples of each candidate at a tune level.
pub(crate) fn rounds(tune_level: u32) -> usize {
    ROUNDS[(tune_level as usize).min(ROUNDS.len() - 1)]
}

/// Candidates that the cost model puts this far behind the best are not measured: a model that misses by more is to be
/// mended, not searched around.
pub(crate) const MAX_PREDICTED_RATIO: f64 = 4.0;

/// A device compiles what it times, and that is most of a build's time: up to [`FEW_COMPILED_UP_TO`] only candidates within
/// this factor of the cost model's best are looked at, and of each source so many, since prices of different sources do not
/// compare well. (ResNet-18 at batches 1 and 64 and YOLO11n at 640 pixels on an H200: half of all candidates, and the
/// fastest of every step is among them.)
pub(crate) const MAX_COMPILED_RATIO: f64 = 2.0;
pub(crate) const MAX_COMPILED: usize = 14;

/// The highest tune level at which a device looks at few candidates.
pub(crate) const FEW_COMPILED_UP_TO: u32 = 3;

/// After the first round, candidates this far behind the fastest are dropped; closer, one slow sample might be to blame.
pub(crate) const DROP_RATIO: f64 = 1.6;

/// What was not measured beside others that were is dearer than all of these by this factor: it must not win a draw.
pub(crate) const UNMEASURED: f64 = 1.01;

/// A tactic that the cost model expects to take longer than this is not timed: a step has some thirty samples.
pub(crate) const MAX_TRIAL_NS: f64 = 2e9;

/// A sample runs at least this long, so that the clock does not count.
pub(crate) const SAMPLE_NS: u64 = 100_000;

/// The host's weights are read from copies of as many bytes as the model has, at most this many, which is beyond the caches
/// of most machines: a run passes over all other weights before it meets one again. With one copy of 17 MB, weights of
/// F(2x2, 3x3) at 512 channels came from the last-level cache in trials and from memory in runs.
pub(crate) const MAX_HOST_ROTATION_BYTES: usize = 72 << 20;

/// Copies of a weight on the host, at most: of small ones a few are enough to leave the nearest cache.
pub(crate) const MAX_COPIES: usize = 12;

/// A device's weights are read from copies of as many bytes as the model has, as a run passes over all of them
/// before it meets one again; more than this is beyond every cache.
pub(crate) const MAX_DEVICE_ROTATION_BYTES: usize = 192 << 20;

/// Made-up contents of an activation repeat after so many bytes: a kernel takes as long over them, and the host makes them
/// in milliseconds whatever the batch is. A multiple of every type's size.
pub(crate) const MADE_UP_BYTES: usize = 4 << 20;

/// Cores that are left to whoever times tactics while the others compile; on fewer than twice as many all is compiled
/// before anything is timed.
pub(crate) const TIMING_CORES: usize = 2;

/// Launches in one captured graph: enough that its own start, some microseconds, counts little.
pub(crate) const CAPTURED_LAUNCHES: usize = 16;

/// Replays in one sample last at least this long on the device, at most so many.
pub(crate) const DEVICE_SAMPLE_NS: f64 = 150_000.0;
pub(crate) const MAX_REPLAYS: usize = 16;

/// While times are measured, the cache's file is written this often: whoever stops a build loses no more.
pub(crate) const SAVE_EVERY: Duration = Duration::from_secs(1);

/// Sweeps over all steps while layouts are chosen; more have never changed anything.
pub(crate) const MAX_SWEEPS: usize = 8;

/// Rounds over single units while places are chosen; in practice two are enough.
pub(crate) const MAX_PLACING_SWEEPS: usize = 8;

/// A step of a device goes to the host only if all that it touches is within this even at the plan's largest sizes:
/// a plan that was tuned at small ones must not leave its work to the host.
pub(crate) const MAX_HOST_BYTES: usize = 256 << 10;

/// At other sizes another tactic must be faster by this share of the time: less is noise.
pub(crate) const MIN_GAIN: f64 = 0.05;

/// Sizes that are looked at between the ends of a profile, and with them.
pub(crate) const MAX_POINTS: usize = 8;

/// The distance of two of them: which tactic wins changes with the magnitude of a size.
pub(crate) const POINT_RATIO: f64 = 2.0;

/// A device compiles what it measures: between the ends only so many tactics of each source are looked at beside those
/// that won elsewhere. Of each, since prices of different sources do not compare well.
pub(crate) const MAX_BETWEEN: usize = 6;

/// A region that the cost model puts below this share of the next best way to cover its nodes is taken without measuring
/// that way: else most kernels would be measured with each epilogue and without.
pub(crate) const CLEAR_RATIO: f64 = 0.8;
