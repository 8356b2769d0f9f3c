//! `Window`: how a convolution or a pooling moves over its input.

use planish_op::AutoPad;

/// How a convolution or a pooling moves over its input: by 1 in every direction, without padding, unless said
/// otherwise. Numbers given once hold for all spatial axes.
///
/// ```
/// use planish::{DType, NetworkBuilder, Tensor, Window};
///
/// let mut net = NetworkBuilder::new("windows");
/// let x = net.input("x", DType::F32, "n,4,16,16")?;
/// let weights = |filters: usize, channels: usize| Tensor::new(&[filters, channels, 3, 3], vec![0f32; filters * channels * 9]);
/// let mut conv = |weights: Tensor, window| -> Result<String, planish::Error> {
///     let y = net.conv(x, weights, None, window)?;
///     Ok(net.type_of(y)?.to_string())
/// };
/// assert_eq!(conv(weights(8, 4)?, Window::new())?, "f32[n,8,14,14]");                  // 1 less on each side
/// assert_eq!(conv(weights(8, 4)?, Window::new().pad(1).stride(2))?, "f32[n,8,8,8]");
/// assert_eq!(conv(weights(8, 4)?, Window::new().same().strides(&[2, 1]))?, "f32[n,8,8,16]");
/// assert_eq!(conv(weights(8, 4)?, Window::new().pads(&[0, 1, 0, 1]))?, "f32[n,8,14,16]");
/// assert_eq!(conv(weights(8, 4)?, Window::new().dilation(2))?, "f32[n,8,12,12]");
/// assert_eq!(conv(weights(8, 4)?, Window::new().dilations(&[1, 2]))?, "f32[n,8,14,12]");
/// assert_eq!(conv(weights(4, 1)?, Window::new().pad(1).groups(4))?, "f32[n,4,16,16]"); // depthwise
/// let y = net.max_pool(x, Window::of(&[2, 2]).stride(2))?;
/// assert_eq!(net.type_of(y)?.to_string(), "f32[n,4,8,8]");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Window {
    kernel: Vec<i64>,
    strides: Sizes,
    dilations: Sizes,
    pads: Option<Vec<i64>>,
    pad: i64,
    same: bool,
    groups: Option<i64>,
}

/// One number for all axes, or one for each.
#[derive(Clone, Debug)]
enum Sizes {
    All(i64),
    Each(Vec<i64>),
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes::All(1)
    }
}

impl Sizes {
    fn over(&self, n_axes: usize) -> Vec<i64> {
        match self {
            Sizes::All(size) => vec![*size; n_axes],
            Sizes::Each(sizes) => sizes.clone(),
        }
    }
}

impl Window {
    /// A window of the size of a convolution's weights.
    pub fn new() -> Window {
        Window::default()
    }

    /// A window of this size: pooling needs one.
    pub fn of(kernel: &[i64]) -> Window {
        Window { kernel: kernel.to_vec(), ..Window::default() }
    }

    /// The same stride along every axis.
    pub fn stride(self, stride: i64) -> Window {
        Window { strides: Sizes::All(stride), ..self }
    }

    /// A stride for each spatial axis.
    pub fn strides(self, strides: &[i64]) -> Window {
        Window { strides: Sizes::Each(strides.to_vec()), ..self }
    }

    /// Zeros before and after every spatial axis.
    pub fn pad(self, pad: i64) -> Window {
        Window { pad, ..self }
    }

    /// Zeros before each spatial axis, then after each.
    pub fn pads(self, pads: &[i64]) -> Window {
        Window { pads: Some(pads.to_vec()), ..self }
    }

    /// As many zeros as keep the size, divided by the stride; an odd one after.
    pub fn same(self) -> Window {
        Window { same: true, ..self }
    }

    /// The same dilation along every axis.
    pub fn dilation(self, dilation: i64) -> Window {
        Window { dilations: Sizes::All(dilation), ..self }
    }

    /// A dilation for each spatial axis.
    pub fn dilations(self, dilations: &[i64]) -> Window {
        Window { dilations: Sizes::Each(dilations.to_vec()), ..self }
    }

    /// Groups of channels that a convolution keeps apart; as many as channels is depthwise.
    pub fn groups(self, groups: i64) -> Window {
        Window { groups: Some(groups), ..self }
    }

    pub(super) fn kernel(&self) -> &[i64] {
        &self.kernel
    }

    /// The size, if it is not left to the weights.
    pub(super) fn known_kernel(&self) -> Option<Vec<i64>> {
        Some(self.kernel.to_vec()).filter(|kernel| !kernel.is_empty())
    }

    pub(super) fn strides_over(&self, n_axes: usize) -> Vec<i64> {
        self.strides.over(n_axes)
    }

    pub(super) fn dilations_over(&self, n_axes: usize) -> Vec<i64> {
        self.dilations.over(n_axes)
    }

    pub(super) fn pads_over(&self, n_axes: usize) -> Vec<i64> {
        if self.same { Vec::new() } else { self.pads.clone().unwrap_or_else(|| vec![self.pad; 2 * n_axes]) }
    }

    pub(super) fn auto_pad(&self) -> AutoPad {
        if self.same { AutoPad::SameUpper } else { AutoPad::NotSet }
    }

    pub(super) fn n_groups(&self) -> i64 {
        self.groups.unwrap_or(1)
    }
}
