//! What goes into runs and comes out of them: numpy's files, images, TIFF stacks, random numbers, and all of these as the inputs of
//! a model, each checked against its type; samples for calibration from folders and files.

mod first_error;
#[cfg(feature = "build")]
mod inputs;
pub mod npy;
pub mod picture;
mod random;
#[cfg(feature = "build")]
mod samples;
pub mod stack;
mod volume;

#[cfg(feature = "build")]
pub use inputs::{Inputs, Sources};
pub use random::Random;
#[cfg(feature = "build")]
pub use samples::{ChannelOrder, PixelLayout, Preprocess, Samples};
pub use volume::{Volume, volume};
