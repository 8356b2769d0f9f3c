//! The ways to convolve, by name: algorithm, tile and cut.
//!
//! Names: `conv_igemm_f32_<tile>_<isa>`, `conv_1x1_…` (the same kernel, one tap), `conv_band_…_{plain,last}` by
//! the input's layout, `conv_narrow_f32_<isa>`, `conv_winograd{2,4,row}_f32_<tile>_<isa>_{fused,split,phased,live}<tiles>`, and
//! `conv_igemm_bf16_<tile>_<feature>` and `conv_1x1_bf16_…` for products of bf16.

use planish_kernel::Layout;
use planish_tensor::Bytes;

use super::band::Band;
use super::bf16::{self, Bf16Tile};
use super::geometry::{Geometry, Pixels};
use super::igemm::{Igemm, TileKernel};
use super::narrow::{self, Narrow};
use super::pack::{self, Filter};
use super::quantized::Arrangement;
use super::region::Convolution;
use super::scale::Scaled;
use super::winograd::{self, Cut, Kind, Winograd};
use super::{ConvCall, cost};
use crate::formats::Format;
use crate::gemm::table::Tile;
use crate::isa::Isa;
use crate::team::Team;

/// The most input channels of a band: with more, a tap alone is a segment worth its pointers.
const MOST_BAND_CHANNELS: usize = 8;

/// One way to convolve.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    Igemm(Tile),
    /// Rounds both factors.
    Bf16(Bf16Tile),
    Band(Tile, Layout),
    Narrow,
    Winograd(Tile, Kind, Cut),
}

/// A plan of any way.
#[derive(Debug)]
pub(super) enum Plan {
    Igemm(Igemm),
    Bf16(Igemm<Bf16Tile>),
    Band(Band),
    Narrow(Narrow),
    Winograd(Winograd),
    /// An implicit GEMM whose weights are scaled first.
    Scaled(Scaled),
}

impl Way {
    /// Every way for an instruction set.
    pub(super) fn all(isa: Isa) -> Vec<Way> {
        let mut ways = vec![Way::Narrow];
        ways.extend(Bf16Tile::all(isa).map(Way::Bf16));
        for tile in Tile::of(isa) {
            ways.push(Way::Igemm(tile));
            ways.push(Way::Band(tile, Layout::Plain));
            ways.push(Way::Band(tile, Layout::ChannelsLast));
            // Tiles of few rows read transformed weights more often than there is bandwidth for.
            if tile.lanes() >= 16 && tile.mr() < 8 {
                continue;
            }
            // Blocks of whole tiles, about a dozen rows or more.
            let small = 12usize.div_ceil(tile.mr()) * tile.mr();
            for kind in [Kind::Two, Kind::Four, Kind::Row] {
                let fused = [1, 2, 4].map(|times| Cut::Fused(times * small));
                let others = [Cut::Split(small), Cut::Phased(16 * small), Cut::Live(8 * small)];
                for cut in fused.into_iter().chain(others) {
                    ways.push(Way::Winograd(tile, kind, cut));
                }
            }
        }
        ways
    }

    /// What stands in plans.
    pub(super) fn name(self, isa: Isa, one_tap: bool) -> String {
        let on = |tile: Tile| format!("f32_{}x{}_{isa}", tile.mr(), tile.nr());
        match self {
            Way::Igemm(tile) if one_tap => format!("conv_1x1_{}", on(tile)),
            Way::Igemm(tile) => format!("conv_igemm_{}", on(tile)),
            Way::Bf16(tile) if one_tap => format!("conv_1x1_{}", tile.name()),
            Way::Bf16(tile) => format!("conv_igemm_{}", tile.name()),
            Way::Band(tile, Layout::Plain) => format!("conv_band_{}_plain", on(tile)),
            Way::Band(tile, _) => format!("conv_band_{}_last", on(tile)),
            Way::Narrow => format!("conv_narrow_f32_{isa}"),
            Way::Winograd(tile, kind, cut) => {
                let kind = match kind {
                    Kind::Two => "2",
                    Kind::Four => "4",
                    Kind::Row => "row",
                };
                format!("conv_winograd{kind}_{}_{}", on(tile), cut.name())
            }
        }
    }

    pub(super) fn named(isa: Isa, one_tap: bool, name: &str) -> Option<Way> {
        Way::all(isa).into_iter().find(|way| way.name(isa, one_tap) == name)
    }

    /// By how much errors exceed those of plain sums. Winograd's transforms add and multiply intermediate values that
    /// are larger than the result: F(4x4) has factors up to 5 in each of three transforms, the others none above 1.
    pub(super) fn error_growth(self) -> f64 {
        match self {
            Way::Winograd(_, Kind::Four, _) => 16.0,
            Way::Winograd(_, Kind::Two | Kind::Row, _) => 4.0,
            Way::Igemm(_) | Way::Bf16(_) | Way::Band(..) | Way::Narrow => 1.0,
        }
    }

    /// Whether it rounds what it multiplies.
    pub(super) fn rounds(self) -> bool {
        matches!(self, Way::Bf16(_))
    }

    pub(super) fn is_winograd(self) -> bool {
        matches!(self, Way::Winograd(..))
    }

    /// Whether both differ in their tile and the size of blocks alone.
    pub(super) fn is_like(self, other: Way) -> bool {
        use std::mem::discriminant;
        match (self, other) {
            (Way::Band(_, a), Way::Band(_, b)) => a == b,
            (Way::Winograd(_, kind, cut), Way::Winograd(_, other_kind, other_cut)) => {
                kind == other_kind && discriminant(&cut) == discriminant(&other_cut)
            }
            _ => discriminant(&self) == discriminant(&other),
        }
    }

    /// The layout that it wants the input in.
    pub(super) fn input_layout(self) -> Layout {
        match self {
            Way::Band(_, layout) => layout,
            _ => Layout::ChannelsLast,
        }
    }

    /// Names the arrangement of weights.
    pub(super) fn format(self, convolution: &Convolution) -> String {
        let groups = convolution.groups;
        let steps = convolution.axes.map(|axis| (axis.stride, axis.dilation));
        let steps = convolution.transposed.then_some(steps);
        let format = match self {
            Way::Igemm(tile) | Way::Band(tile, _) | Way::Winograd(tile, _, Cut::Live(_)) => {
                Format::Conv { panels: tile.into(), groups, steps }
            }
            Way::Bf16(tile) => {
                Format::Pairs { panels: tile.panels(), arrangement: Arrangement::Conv { groups, steps } }
            }
            Way::Narrow => Format::Narrow,
            Way::Winograd(tile, kind, _) => Format::Winograd { panels: tile.into(), kind },
        };
        format.name()
    }

    /// Whether its form of the weight is one of such filters; a tactic from a file may be for others.
    pub(super) fn packs(self, filter: &Filter) -> bool {
        let whole = filter.groups == 1 && !filter.transposed;
        match self {
            Way::Igemm(_) | Way::Band(..) | Way::Winograd(_, _, Cut::Live(_)) => true,
            Way::Bf16(tile) => bf16::packed_words(filter, tile.panels()).is_some(),
            Way::Narrow => whole,
            Way::Winograd(_, kind, _) => whole && kind.takes(filter.kernel),
        }
    }

    /// The packed form of a weight of [`Filter::len`] elements; only of what it [packs](Way::packs).
    pub(super) fn pack(self, filter: &Filter, weight: &[f32]) -> Bytes {
        Bytes::from_vec(match self {
            Way::Igemm(tile) | Way::Band(tile, _) | Way::Winograd(tile, _, Cut::Live(_)) => {
                return pack::pack_bytes(filter, tile, weight);
            }
            Way::Bf16(tile) => bf16::pack(filter, tile.panels(), weight).unwrap_or_default(),
            Way::Narrow => narrow::pack(filter, weight),
            Way::Winograd(tile, kind, _) => winograd::pack::pack(kind, filter, tile, weight),
        })
    }

    pub(super) fn plan(self, isa: Isa, geometry: Geometry) -> Option<Plan> {
        let innermost = |pixels: &Pixels| pixels.channel == 1;
        if ![Some(geometry.output), geometry.residual].iter().flatten().all(innermost) {
            return None;
        }
        match self {
            Way::Igemm(tile) => innermost(&geometry.input).then(|| Plan::Igemm(Igemm::new(geometry, tile))),
            Way::Bf16(tile) => {
                let fits = innermost(&geometry.input) && geometry.c.is_multiple_of(2);
                fits.then(|| Plan::Bf16(Igemm::new(geometry, tile)))
            }
            Way::Band(tile, _) => Band::new(geometry, tile).map(Plan::Band),
            Way::Narrow => Narrow::new(geometry, isa).map(Plan::Narrow),
            Way::Winograd(tile, kind, cut) => {
                Winograd::new(kind, cut, geometry, isa, tile).map(Plan::Winograd)
            }
        }
    }

    /// Whether it is worth a look: the tile's width suits the channels, a program can follow.
    pub(super) fn suits(self, convolution: &Convolution) -> bool {
        let k = convolution.k;
        let wide = |tile: Tile| {
            // A wide tile needs a panel to fill; one of a single vector is for few channels, or all there is.
            let (nr, lanes) = (tile.nr(), tile.lanes());
            if nr > lanes { k > nr - lanes } else { k <= nr || tile.mr() <= 4 }
        };
        let program = convolution.epilogue.program.is_some();
        if convolution.bytes.is_some() && !matches!(self, Way::Igemm(_) | Way::Band(..)) {
            return false;
        }
        if convolution.scale.is_some() && !matches!(self, Way::Igemm(_)) {
            return false;
        }
        match self {
            Way::Igemm(tile) => wide(tile) && !(program && convolution.transposed),
            Way::Bf16(_) => convolution.c.is_multiple_of(2) && !(program && convolution.transposed),
            Way::Band(tile, _) => {
                wide(tile) && convolution.c <= MOST_BAND_CHANNELS && convolution.axes[2].kernel > 1
            }
            Way::Narrow => !program,
            Way::Winograd(tile, ..) => wide(tile),
        }
    }

    /// Expected nanoseconds.
    pub(super) fn cost(self, isa: Isa, geometry: &Geometry, plan: &Plan, threads: usize) -> f64 {
        let n_tasks = plan.n_tasks();
        match self {
            Way::Igemm(tile) => cost::igemm(geometry, isa, tile, n_tasks, threads),
            Way::Bf16(tile) => {
                let shape = (tile.mr(), tile.panels(), tile.speed());
                cost::bf16(geometry, isa, shape, n_tasks, threads)
            }
            Way::Band(tile, _) => cost::band(geometry, isa, tile, n_tasks, threads),
            Way::Narrow => cost::narrow(geometry, isa, n_tasks, threads),
            Way::Winograd(tile, kind, cut) => {
                cost::winograd(geometry, isa, tile, (kind, cut, 1.0), n_tasks, threads)
            }
        }
    }
}

impl Plan {
    /// Whether every sum is made in one go.
    pub(super) fn is_one_pass(&self) -> bool {
        match self {
            Plan::Igemm(plan) => plan.is_one_pass(),
            Plan::Band(_) => true,
            Plan::Bf16(_) | Plan::Narrow(_) | Plan::Winograd(_) | Plan::Scaled(_) => false,
        }
    }

    /// The most pixels that are stored at once, of those that make sums in one go.
    pub(super) fn tile_rows(&self) -> usize {
        match self {
            Plan::Igemm(plan) => plan.tile_rows(),
            Plan::Band(plan) => plan.tile_rows(),
            Plan::Bf16(_) | Plan::Narrow(_) | Plan::Winograd(_) | Plan::Scaled(_) => 0,
        }
    }

    pub(super) fn n_tasks(&self) -> usize {
        match self {
            Plan::Igemm(plan) => plan.n_tasks(),
            Plan::Bf16(plan) => plan.n_tasks(),
            Plan::Band(plan) => plan.n_tasks(),
            Plan::Narrow(plan) => plan.n_tasks(),
            Plan::Winograd(plan) => plan.n_tasks(),
            Plan::Scaled(plan) => plan.n_tasks(),
        }
    }

    pub(super) fn workspace_bytes(&self, n_slots: usize) -> usize {
        match self {
            Plan::Igemm(plan) => plan.workspace_bytes(n_slots),
            Plan::Bf16(plan) => plan.workspace_bytes(n_slots),
            Plan::Band(plan) => plan.workspace_bytes(n_slots),
            Plan::Narrow(plan) => plan.workspace_bytes(n_slots),
            Plan::Winograd(plan) => plan.workspace_bytes(n_slots),
            Plan::Scaled(plan) => plan.workspace_bytes(n_slots),
        }
    }

    /// # Safety
    /// The call's addresses must be readable, the output and the workspace writable, for what the geometry and
    /// the plan say; so must `scale`, where the plan has one.
    pub(super) unsafe fn run(&self, call: &ConvCall<'_>, scale: *const f32, team: &Team) {
        // SAFETY: granted by the caller.
        unsafe {
            match self {
                Plan::Igemm(plan) => plan.run(call, team),
                Plan::Bf16(plan) => plan.run(call, team),
                Plan::Band(plan) => plan.run(call, team),
                Plan::Narrow(plan) => plan.run(call, team),
                Plan::Winograd(plan) => plan.run(call, team),
                Plan::Scaled(plan) => plan.run(call, scale, team),
            }
        }
    }
}
