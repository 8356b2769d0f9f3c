//! The window attributes of the operators that have them, as inference, the reference and kernels read them.

use super::WindowAttributes;
use crate::{
    AutoPad, AveragePool, Col2Im, Conv, ConvInteger, ConvTranspose, DeformConv, LpPool, MaxPool, MaxUnpool,
    QLinearConv,
};

macro_rules! convolutions {
    ($($op:ident)*) => {$(
        impl $op {
            /// Where the windows lie; without `kernel_shape`, the weight has the kernel's sizes.
            pub fn window(&self) -> WindowAttributes<'_> {
                WindowAttributes {
                    kernel_shape: self.kernel_shape.as_deref(),
                    strides: &self.strides,
                    dilations: &self.dilations,
                    pads: &self.pads,
                    auto_pad: self.auto_pad,
                    ceil_mode: false,
                }
            }
        }
    )*};
}

convolutions! { Conv ConvTranspose ConvInteger QLinearConv }

macro_rules! pools {
    ($($op:ident)*) => {$(
        impl $op {
            /// Where the windows lie.
            pub fn window(&self) -> WindowAttributes<'_> {
                WindowAttributes {
                    kernel_shape: Some(&self.kernel_shape),
                    strides: &self.strides,
                    dilations: &self.dilations,
                    pads: &self.pads,
                    auto_pad: self.auto_pad,
                    ceil_mode: self.ceil_mode,
                }
            }
        }
    )*};
}

pools! { AveragePool MaxPool LpPool }

impl DeformConv {
    /// Where the windows lie before they are deformed; without `kernel_shape`, the weight has the kernel's
    /// sizes.
    pub fn window(&self) -> WindowAttributes<'_> {
        WindowAttributes {
            kernel_shape: self.kernel_shape.as_deref(),
            strides: &self.strides,
            dilations: &self.dilations,
            pads: &self.pads,
            auto_pad: AutoPad::NotSet,
            ceil_mode: false,
        }
    }
}

impl Col2Im {
    /// Where the blocks lie in the image; their sizes are an input.
    pub fn window(&self) -> WindowAttributes<'_> {
        WindowAttributes {
            kernel_shape: None,
            strides: &self.strides,
            dilations: &self.dilations,
            pads: &self.pads,
            auto_pad: AutoPad::NotSet,
            ceil_mode: false,
        }
    }
}

impl MaxUnpool {
    /// Where the windows of the pool lay that is undone.
    pub fn window(&self) -> WindowAttributes<'_> {
        WindowAttributes {
            kernel_shape: Some(&self.kernel_shape),
            strides: &self.strides,
            dilations: &[],
            pads: &self.pads,
            auto_pad: AutoPad::NotSet,
            ceil_mode: false,
        }
    }
}
