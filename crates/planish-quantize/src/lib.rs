//! Calibration: which values the activations of a model take on real data, and from which magnitude on they are clipped
//! when they become integers.
//!
//! A [`Collector`] is shown the values of every observed tensor, sample by sample. How the model runs is not its
//! business: whoever runs it ([`observable`] says which values are worth looking at) hands over names and slices. Of
//! each tensor an [`Observer`] keeps the smallest and the largest value and a [`Histogram`] of magnitudes that grows
//! with them; a [`Calibrator`] makes a threshold of it. The result is a [`Calibration`], a text file that people can
//! read and edit; TensorRT's calibration caches are read and written, too. Of what layers read, [`Channels`] are told
//! apart, and [`SecondMoments`] where weights are to be rounded with regard to them ([`FewBits`]).
//!
//! ```
//! use planish_quantize::{Calibrator, Collector};
//!
//! let mut collector = Collector::new(Calibrator::MinMax);
//! for sample in [[0.5f32, -1.0], [2.0, 0.25]] {
//!     collector.observe("x", &sample)?;
//!     collector.end_run(1);
//! }
//! let collected = collector.finish("model", None)?;
//! assert_eq!(collected.calibration.get("x").unwrap().threshold, 2.0);
//! # Ok::<(), planish_quantize::CalibrationError>(())
//! ```

mod best;
mod calibration;
mod calibrator;
mod channels;
mod collector;
mod entropy;
mod error;
mod few_bits;
mod histogram;
mod moments;
mod observable;
mod observer;
mod tensorrt;

pub use calibration::{Calibration, Range};
pub use calibrator::{Calibrator, DEFAULT_PERCENTILE};
pub use channels::{ChannelAxis, ChannelObserver, Channels, layer_inputs};
pub use collector::{Collected, Collector, LeftOut};
pub use error::{CalibrationError, CalibrationErrorKind};
pub use few_bits::{FewBits, Grouping};
pub use histogram::Histogram;
pub use moments::SecondMoments;
pub use observable::observable;
pub use observer::{NotFinite, Observer};

/// The largest magnitude of symmetric INT8: -128 is left out, so that both signs reach equally far.
pub const MAX_INT8: f32 = 127.0;
