//! The window attributes of the operators that have them, as inference, the reference and kernels read them.

use super::WindowAttributes;
use crate::{
    AveragePool, Col2Im, Conv, ConvInteger, ConvTranspose, DeformConv, LpPool, MaxPool, MaxUnpool,
    QLinearConv,
};

macro_rules! convolutions {
    ($($op:ident)*) => {$(
        impl $op {
            /// Where the windows lie; without `kernel_shape`, the weight has the kernel's sizes.
            pub fn window(&self) -> WindowAttributes<'_> {
                let plain = WindowAttributes::new(self.kernel_shape.as_deref(), &self.strides, &self.dilations, &self.pads);
                WindowAttributes { auto_pad: self.auto_pad, ..plain }
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
                let plain = WindowAttributes::new(Some(&self.kernel_shape), &self.strides, &self.dilations, &self.pads);
                WindowAttributes { auto_pad: self.auto_pad, ceil_mode: self.ceil_mode, ..plain }
            }
        }
    )*};
}

pools! { AveragePool MaxPool LpPool }

impl DeformConv {
    /// Where the windows lie before they are deformed; without `kernel_shape`, the weight has the kernel's
    /// sizes.
    pub fn window(&self) -> WindowAttributes<'_> {
        WindowAttributes::new(self.kernel_shape.as_deref(), &self.strides, &self.dilations, &self.pads)
    }
}

impl Col2Im {
    /// Where the blocks lie in the image; their sizes are an input.
    pub fn window(&self) -> WindowAttributes<'_> {
        WindowAttributes::new(None, &self.strides, &self.dilations, &self.pads)
    }
}

impl MaxUnpool {
    /// Where the windows of the pool lay that is undone.
    pub fn window(&self) -> WindowAttributes<'_> {
        WindowAttributes::new(Some(&self.kernel_shape), &self.strides, &[], &self.pads)
    }
}
