//! How widely backends search: what a family of kernels may offer for one problem.

/// Bounds on what one family offers for one problem. Each offer costs a build a measurement, and on a device a
/// compilation; what is cut off is what the family's own prices like least.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Budget {
    /// Tiles of a device's family that takes products of any shape.
    pub tiles: usize,
    /// Kernels of a family that is made for some shapes.
    pub special: usize,
    /// Kernels of each layout, or of each way to share the work, in a family that has several.
    pub per_group: usize,
    /// Kernels of a form whose prices tell them apart well.
    pub few: usize,
    /// Kernels that differ in tiles and sizes of blocks alone.
    pub alike: usize,
    /// Algorithms that a library is asked for.
    pub library: usize,
    /// A host's kernels that are expected to take this many times as long as the family's best are not offered.
    pub host_ratio: f64,
    /// The same of a device's kernels.
    pub device_ratio: f64,
}

impl Budget {
    /// What builds go by.
    pub const USUAL: Budget = Budget {
        // Each costs a compilation when a plan is tuned.
        tiles: 12,
        // The price finds one of the best among six.
        special: 8,
        // The layout that costs nothing is for the planner to find, so each of them has its own.
        per_group: 6,
        few: 4,
        // Neighbouring tiles differ little; their places go to other kinds of kernels.
        alike: 2,
        // An engine finds an algorithm again in the library's own list, which it asks for at this length.
        library: 8,
        // Room for what prices do not see. A device's kernels cost a compilation each, so its cut is closer.
        host_ratio: 2.5,
        device_ratio: 2.0,
    };

    /// For builds that may take long: all that a measurement would not refuse at once.
    pub const WIDE: Budget = Budget {
        tiles: 32,
        special: 24,
        per_group: 16,
        few: 12,
        alike: 6,
        host_ratio: 4.0,
        device_ratio: 4.0,
        ..Budget::USUAL
    };

    /// Everything that a family has, to see how good its prices are.
    pub const EVERYTHING: Budget = Budget {
        tiles: usize::MAX,
        special: usize::MAX,
        per_group: usize::MAX,
        few: usize::MAX,
        alike: usize::MAX,
        library: Budget::USUAL.library,
        host_ratio: f64::INFINITY,
        device_ratio: f64::INFINITY,
    };
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::USUAL
    }
}
