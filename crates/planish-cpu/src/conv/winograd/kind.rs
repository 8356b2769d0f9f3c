//! The transforms that there are, and the ways of cutting their work.

use super::algebra::AxisKind;
use crate::conv::geometry::{AXES, Geometry};

/// Which transform.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// F(2x2, 3x3): 2.25 times fewer multiplications.
    Two,
    /// F(4x4, 3x3): 4 times fewer.
    Four,
    /// F(4, 3) along rows: 2 times fewer.
    Row,
}

impl Kind {
    /// Rows, then columns.
    pub fn axes(self) -> [AxisKind; 2] {
        match self {
            Kind::Two => [AxisKind::Two; 2],
            Kind::Four => [AxisKind::Four; 2],
            Kind::Row => [AxisKind::One, AxisKind::Four],
        }
    }

    pub fn n_points(self) -> usize {
        self.axes().iter().map(|axis| axis.n_in()).product()
    }

    /// Whether the transform takes a kernel of these sizes.
    pub fn takes(self, kernel: [usize; AXES]) -> bool {
        kernel[1..] == self.axes().map(AxisKind::n_taps)
    }

    /// Whether the transform computes this convolution.
    pub fn fits(self, geometry: &Geometry) -> bool {
        let plain = |axis: usize| geometry.axes[axis].stride == 1 && geometry.axes[axis].dilation == 1;
        !geometry.transposed
            && geometry.groups == 1
            && (0..AXES).all(plain)
            && self.takes(geometry.axes.map(|axis| axis.kernel))
            && geometry.input.channel == 1
    }
}

/// How the work is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// Blocks of about this many tiles, each one task from beginning to end.
    Fused(usize),
    /// The same where blocks are too few for several threads: each is several tasks, which share out the output channels
    /// and transform the tiles each for itself.
    Split(usize),
    /// Blocks of about this many tiles; transformed by all, then multiplied by blocks of channels.
    Phased(usize),
    /// Blocks of about this many tiles, weights packed as for implicit GEMM.
    Live(usize),
}

impl Cut {
    /// As it stands in the names of tactics.
    pub fn name(self) -> String {
        match self {
            Cut::Fused(rows) => format!("fused{rows}"),
            Cut::Split(rows) => format!("split{rows}"),
            Cut::Phased(rows) => format!("phased{rows}"),
            Cut::Live(rows) => format!("live{rows}"),
        }
    }

    /// About how many tiles a block has.
    pub fn rows(self) -> usize {
        match self {
            Cut::Fused(rows) | Cut::Split(rows) | Cut::Phased(rows) | Cut::Live(rows) => rows.max(1),
        }
    }
}
