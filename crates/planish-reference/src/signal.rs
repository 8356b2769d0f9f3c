//! Reference: transforms and windows.

mod fourier;
mod transform;
mod window;

pub(crate) use transform::{dft, stft};
pub(crate) use window::{blackman_window, hamming_window, hann_window, mel_weight_matrix};

#[cfg(test)]
mod tests;
