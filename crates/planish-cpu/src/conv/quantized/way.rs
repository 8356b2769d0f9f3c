//! The ways of a quantized product, by name: implicit GEMM on some tile, or Winograd.
//!
//! Names: `qconv_igemm_u8_<tile>_<instructions>`, `qgemm_u8_<tile>_<instructions>`, and
//! `qconv_winograd2_i16_<tile>_<isa>_{fused,phased}<tiles>`.

use planish_kernel::KernelError;

use super::super::cost;
use super::super::igemm::{Igemm, TileKernel};
use super::QUAD;
use super::aligned::Aligned;
use super::finish::Finish;
use super::pack::{self, Places};
use super::region::{Form, Number, Placed, Quantized, WeightZeros};
use super::table::QuantizedTile;
use super::tile::{QuantizedCall, Zeros};
#[cfg(target_arch = "x86_64")]
use super::winograd::{self, Bytes, BytesCall};
#[cfg(target_arch = "x86_64")]
use super::words;
#[cfg(target_arch = "x86_64")]
use crate::conv::winograd::{Cut, Winograd};
use crate::family::Work;
use crate::formats::Format;
#[cfg(target_arch = "x86_64")]
use crate::gemm::table::Panels;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::team::Team;

/// One way to multiply.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    Conv(QuantizedTile),
    Matrix(QuantizedTile),
    #[cfg(target_arch = "x86_64")]
    Winograd(Panels, Cut),
}

impl Way {
    /// Every way of such a product where `isa` is the widest instruction set.
    pub(super) fn all(isa: Isa, quantized: &Quantized) -> Vec<Way> {
        let tiles = QuantizedTile::all(isa, quantized.padding());
        match &quantized.form {
            Form::Matrix { .. } => tiles.map(Way::Matrix).collect(),
            Form::Conv(_) => {
                let plain = tiles.map(Way::Conv);
                #[cfg(target_arch = "x86_64")]
                let plain = {
                    let cuts = winograd::panels(isa).into_iter().flat_map(|panels| {
                        winograd::CUTS.into_iter().map(move |cut| Way::Winograd(panels, cut))
                    });
                    plain.chain(cuts)
                };
                plain.collect()
            }
        }
    }

    /// What stands in plans.
    pub(super) fn name(self) -> String {
        match self {
            Way::Conv(tile) => format!("qconv_igemm_{}", tile.name()),
            Way::Matrix(tile) => format!("qgemm_{}", tile.name()),
            #[cfg(target_arch = "x86_64")]
            Way::Winograd(_, cut) => format!("qconv_winograd{}", winograd::name(cut)),
        }
    }

    /// Names the arrangement of the weight.
    pub(super) fn format(self, quantized: &Quantized) -> String {
        let format = match self {
            Way::Conv(tile) | Way::Matrix(tile) => {
                Format::Quantized { panels: tile.panels(), arrangement: quantized.arrangement() }
            }
            #[cfg(target_arch = "x86_64")]
            Way::Winograd(panels, _) => Format::QuantizedWinograd { panels },
        };
        format.name()
    }

    /// The packed form of a weight of these sizes.
    pub(super) fn pack(self, quantized: &Quantized, dims: &[usize], weight: &[i8]) -> Option<Vec<u8>> {
        match self {
            Way::Conv(tile) | Way::Matrix(tile) => {
                pack::pack(quantized.arrangement(), tile.panels(), dims, weight)
            }
            #[cfg(target_arch = "x86_64")]
            Way::Winograd(panels, _) => words::pack(panels, dims, weight),
        }
    }

    /// Expected nanoseconds; `None` where it does not compute this.
    pub(super) fn cost(
        self,
        isa: Isa,
        quantized: &Quantized,
        placed: &Placed,
        threads: usize,
    ) -> Option<f64> {
        let Placed { geometry, aligned } = placed;
        match self {
            Way::Conv(tile) | Way::Matrix(tile) => {
                let n_tasks = Igemm::new(geometry.clone(), tile).n_tasks();
                let tile = (tile.mr(), tile.panels(), tile.speed());
                let copy = aligned.as_ref().map_or(0.0, |aligned| aligned.cost(threads));
                Some(copy + cost::quantized(geometry, isa, tile, n_tasks, threads))
            }
            #[cfg(target_arch = "x86_64")]
            Way::Winograd(_, cut) => {
                let plan = aligned.is_none().then(|| winograd::plan(isa, quantized, geometry, cut))??;
                Some(winograd::cost(&plan, cut, threads))
            }
        }
    }

    /// The work on a weight of these sizes.
    pub(super) fn work(
        self,
        isa: Isa,
        quantized: Quantized,
        placed: Placed,
        dims: &[usize],
    ) -> Option<Box<dyn Work>> {
        let Placed { geometry, aligned } = placed;
        match self {
            Way::Conv(tile) | Way::Matrix(tile) => {
                let places = pack::places(quantized.arrangement(), tile.panels(), dims)?;
                Some(Box::new(IgemmWork { plan: Igemm::new(geometry, tile), quantized, aligned, places }))
            }
            #[cfg(target_arch = "x86_64")]
            Way::Winograd(panels, cut) => {
                words::packed_len(panels, dims)?;
                let plan = aligned.is_none().then(|| winograd::plan(isa, &quantized, &geometry, cut))??;
                Some(Box::new(WinogradWork { plan, quantized }))
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[derive(Debug)]
struct WinogradWork {
    plan: Winograd<Bytes>,
    quantized: Quantized,
}

#[cfg(target_arch = "x86_64")]
impl Work for WinogradWork {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        self.plan.workspace_bytes(n_slots)
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, workspace } = shared;
        let q = &self.quantized;
        // SAFETY: the caller grants the operands for what they span, and the workspace.
        unsafe {
            let call = BytesCall {
                input: inputs[q.x],
                input_zero: q.x_zero.of(inputs),
                weights: inputs[q.weight],
                finish: Finish::new(q, inputs, outputs),
                workspace,
            };
            self.plan.run(&call, team);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct IgemmWork {
    plan: Igemm<QuantizedTile>,
    quantized: Quantized,
    aligned: Option<Aligned>,
    places: Places,
}

impl IgemmWork {
    /// Bytes of a pixel of padding, where the run alone knows what it holds.
    fn padding_bytes(&self) -> usize {
        match (&self.quantized.form, self.quantized.x_zero) {
            (Form::Conv(_), Number::Input(_)) => (self.plan.channels() * QUAD).next_multiple_of(64),
            _ => 0,
        }
    }

    /// Bytes of the copy of whole quads.
    fn aligned_bytes(&self) -> usize {
        self.aligned.as_ref().map_or(0, Aligned::bytes)
    }
}

impl Work for IgemmWork {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        self.padding_bytes() + self.aligned_bytes() + self.plan.workspace_bytes(n_slots)
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, workspace } = shared;
        let q = &self.quantized;
        let weights = inputs[q.weight];
        let n_padding = self.padding_bytes();
        let weight_zeros = match q.weight_zeros {
            WeightZeros::None => Zeros::None,
            WeightZeros::One(zero) => Zeros::One(zero.into()),
            WeightZeros::Input(idx) => Zeros::Each(inputs[idx].cast()),
        };
        // SAFETY: the caller grants the operands for what they span, and the workspace.
        unsafe {
            let input_zero = q.x_zero.of(inputs);
            workspace.write_bytes(input_zero, n_padding);
            let mut input = inputs[q.x];
            if let Some(aligned) = &self.aligned {
                let copy = workspace.add(n_padding);
                aligned.copy(input, copy, input_zero, team);
                input = copy;
            }
            let call = QuantizedCall {
                input,
                weights: weights.cast(),
                weight_sums: weights.wrapping_add(self.places.sums).cast(),
                panel_flags: weights.wrapping_add(self.places.flags).cast(),
                panel_order: weights.wrapping_add(self.places.order).cast(),
                input_zero: input_zero.into(),
                padding: if n_padding > 0 { workspace } else { std::ptr::null() },
                weight_zeros,
                finish: Finish::new(q, inputs, outputs),
                workspace: workspace.add(n_padding + self.aligned_bytes()),
            };
            self.plan.run(&call, team);
        }
        Ok(())
    }
}
