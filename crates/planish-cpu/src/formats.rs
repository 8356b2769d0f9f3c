//! The arrangements that weights are packed in, by name.
//!
//! A name with the weight's sizes says everything: how long the packed form is, so that a plan's bytes can be
//! compared before a kernel reads them, and which element is where, so that a weight comes back on any machine,
//! whichever instruction set it was packed for and whether or not its tactic still exists.

use planish_kernel::{KernelError, PackedForm};
use planish_op::window::PlacedAxis;
use planish_tensor::{Bytes, DType, Tensor};

use crate::conv::bf16;
use crate::conv::geometry::{AXES, TRIVIAL_AXIS};
use crate::conv::narrow;
use crate::conv::pack::{self, Filter};
use crate::conv::quantized::{self, Arrangement};
use crate::conv::winograd::Kind;
use crate::depthwise;
use crate::gemm::bf16::filter as product_filter;
use crate::gemm::codes::{CodesStack, PackedCodes, Width};
use crate::gemm::pack::{PackedB, Strides};
use crate::gemm::table::Panels;

/// An arrangement of a weight's elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// The second matrix of a product, `k x n`, or `n x k` where it is transposed.
    Matrix { panels: Panels, transposed: bool },
    /// Of a recurrent layer: for each direction `n x k`, the rows packed in so many matrices, one after the other.
    Gates { panels: Panels, parts: usize },
    /// The same of signed bytes, each matrix in quads with the sums of each row.
    QuadGates { panels: Panels, parts: usize },
    /// A 1x1 convolution's `n x k`, as a matrix.
    Product { panels: Panels },
    /// A convolution's by tap; stride and dilation of each axis where it is transposed.
    Conv { panels: Panels, groups: usize, steps: Option<[(usize, usize); AXES]> },
    /// Of a convolution to few channels.
    Narrow,
    /// Transformed; nothing leads back to the same bits.
    Winograd { panels: Panels, kind: Kind },
    /// A depthwise convolution's, taps outermost.
    Depthwise,
    /// The same of signed bytes, each as an f32.
    /// With this zero point taken off.
    QuantizedDepthwise { zero: i8 },
    /// Signed bytes in quads of input channels, with the sums of each output channel.
    Quantized { panels: Panels, arrangement: Arrangement },
    /// Signed bytes of a 3x3 convolution, transformed to 16 bits in pairs of input channels.
    QuantizedWinograd { panels: Panels },
    /// bf16 in pairs of input channels.
    Pairs { panels: Panels, arrangement: Arrangement },
    /// The second matrix of a product, or its zero points, as integers of so many bits; `n x k` where it is transposed, and
    /// then perhaps several of them.
    Codes { panels: Panels, width: Width, transposed: bool },
}

const NARROW: &str = "conv_narrow16";
const QUANTIZED_WINOGRAD: &str = "words_winograd_two_";
const QUADS: &str = "quads_";
const QUAD_GATES: &str = "quadgates";
const PAIRS: &str = "pairs_";

/// Stride and dilation of each axis, as in `t1d1x2d1x2d1`.
fn steps_of(text: &str) -> Option<[(usize, usize); AXES]> {
    let mut steps = [(1, 1); AXES];
    let mut given = text.strip_prefix('t')?.split('x');
    for step in &mut steps {
        let (stride, dilation) = given.next()?.split_once('d')?;
        *step = (stride.parse().ok()?, dilation.parse().ok()?);
    }
    Some(steps)
}

const KINDS: [(Kind, &str); 3] = [(Kind::Two, "two"), (Kind::Four, "four"), (Kind::Row, "row")];

impl Format {
    /// As it stands in plans.
    pub(crate) fn name(&self) -> String {
        let wide = |panels: &Panels| format!("panels{}v{}", panels.nr, panels.lanes);
        let transposed = |steps: &[(usize, usize); AXES]| {
            let steps = steps.map(|(stride, dilation)| format!("{stride}d{dilation}"));
            format!("t{}", steps.join("x"))
        };
        match self {
            Format::Matrix { panels, transposed } => {
                format!("panels{}x{}{}", panels.nr, panels.lanes, if *transposed { "t" } else { "" })
            }
            Format::Gates { panels, parts } => format!("gates{parts}_{}", wide(panels)),
            Format::QuadGates { panels, parts } => format!("{QUAD_GATES}{parts}_{}", wide(panels)),
            Format::Product { panels } => format!("matrix_{}", wide(panels)),
            Format::Conv { panels, groups, steps: None } => format!("conv_{}_g{groups}", wide(panels)),
            Format::Conv { panels, groups, steps: Some(steps) } => {
                format!("conv_{}_g{groups}_{}", wide(panels), transposed(steps))
            }
            Format::Narrow => NARROW.to_string(),
            Format::Winograd { panels, kind } => {
                let name = KINDS.iter().find(|(known, _)| known == kind).map_or("", |(_, name)| name);
                format!("conv_winograd_{name}_{}", wide(panels))
            }
            Format::QuantizedWinograd { panels } => format!("{QUANTIZED_WINOGRAD}{}", wide(panels)),
            Format::Depthwise => depthwise::FORMAT.to_string(),
            Format::QuantizedDepthwise { zero } => depthwise::quantized_format(*zero),
            Format::Quantized { panels, arrangement } | Format::Pairs { panels, arrangement } => {
                let of = match arrangement {
                    Arrangement::Conv { groups, steps: None } => format!("g{groups}"),
                    Arrangement::Conv { groups, steps: Some(steps) } => {
                        format!("g{groups}_{}", transposed(steps))
                    }
                    Arrangement::Matrix { transposed: false } => "matrix".to_string(),
                    Arrangement::Matrix { transposed: true } => "matrixt".to_string(),
                };
                let packed = if matches!(self, Format::Pairs { .. }) { PAIRS } else { QUADS };
                format!("{packed}{}_{of}", wide(panels))
            }
            Format::Codes { panels, width, transposed } => {
                format!("codes{}_{}{}", width.bits(), wide(panels), if *transposed { "_t" } else { "" })
            }
        }
    }

    /// The format of this name, which may come from a file that nobody vouches for.
    pub(crate) fn named(name: &str) -> Option<Format> {
        let pair = |text: &str, between: char| {
            let (nr, lanes) = text.split_once(between)?;
            let panels = Panels { nr: nr.parse().ok()?, lanes: lanes.parse().ok()? };
            // Whole vectors, no more than any tile has.
            let fits = (1..=64).contains(&panels.lanes)
                && panels.nr.is_multiple_of(panels.lanes)
                && (1..=1024).contains(&panels.nr);
            fits.then_some(panels)
        };
        let wide = |text: &str| pair(text.strip_prefix("panels")?, 'v');
        let found = if name == NARROW {
            Format::Narrow
        } else if name == depthwise::FORMAT {
            Format::Depthwise
        } else if let Some(rest) = name.strip_prefix(depthwise::QUANTIZED_FORMAT) {
            let zero = match rest.strip_prefix(depthwise::LESS) {
                Some(zero) => zero.parse().ok()?,
                None => 0,
            };
            Format::QuantizedDepthwise { zero }
        } else if let Some(rest) = name.strip_prefix(QUADS).or_else(|| name.strip_prefix(PAIRS)) {
            let (panels, of) = rest.split_once('_')?;
            let arrangement = match of {
                "matrix" => Arrangement::Matrix { transposed: false },
                "matrixt" => Arrangement::Matrix { transposed: true },
                of => {
                    let (groups, steps) = of.split_once('_').map_or((of, None), |(g, t)| (g, Some(t)));
                    let steps = match steps {
                        Some(text) => Some(steps_of(text)?),
                        None => None,
                    };
                    Arrangement::Conv { groups: groups.strip_prefix('g')?.parse().ok()?, steps }
                }
            };
            let panels = wide(panels)?;
            match name.starts_with(PAIRS) {
                true => Format::Pairs { panels, arrangement },
                false => Format::Quantized { panels, arrangement },
            }
        } else if let Some(rest) = name.strip_prefix(QUANTIZED_WINOGRAD) {
            Format::QuantizedWinograd { panels: wide(rest)? }
        } else if let Some(rest) = name.strip_prefix("codes") {
            let (bits, rest) = rest.split_once('_')?;
            let width =
                [Width::Four, Width::Eight].into_iter().find(|width| bits == width.bits().to_string())?;
            let (rest, transposed) = rest.strip_suffix("_t").map_or((rest, false), |rest| (rest, true));
            Format::Codes { panels: wide(rest)?, width, transposed }
        } else if let Some(rest) = name.strip_prefix("gates").or_else(|| name.strip_prefix(QUAD_GATES)) {
            let (parts, rest) = rest.split_once('_')?;
            let parts = parts.parse().ok().filter(|parts| (1..=4).contains(parts))?;
            let panels = wide(rest)?;
            match name.starts_with(QUAD_GATES) {
                true => Format::QuadGates { panels, parts },
                false => Format::Gates { panels, parts },
            }
        } else if let Some(rest) = name.strip_prefix("matrix_") {
            Format::Product { panels: wide(rest)? }
        } else if let Some(rest) = name.strip_prefix("conv_winograd_") {
            let (kind, rest) = rest.split_once('_')?;
            let (kind, _) = KINDS.into_iter().find(|(_, known)| *known == kind)?;
            Format::Winograd { panels: wide(rest)?, kind }
        } else if let Some(rest) = name.strip_prefix("conv_") {
            let mut parts = rest.split('_');
            let panels = wide(parts.next()?)?;
            let groups = parts.next()?.strip_prefix('g')?.parse().ok().filter(|groups| *groups > 0)?;
            let steps = match parts.next() {
                None => None,
                Some(text) => Some(steps_of(text)?),
            };
            Format::Conv { panels, groups, steps }
        } else {
            let rest = name.strip_prefix("panels")?;
            let (rest, transposed) = rest.strip_suffix('t').map_or((rest, false), |rest| (rest, true));
            Format::Matrix { panels: pair(rest, 'x')?, transposed }
        };
        // One spelling each: no leading zeros or signs, nothing after.
        (found.name() == name).then_some(found)
    }

    /// Elements of four bytes of the packed form of a weight of these sizes; `None` where it cannot be packed so.
    pub(crate) fn packed_len(&self, dims: &[usize]) -> Option<usize> {
        // The length of the weight itself must fit, padding may not. An empty one is not packed: its other sizes
        // could be anything.
        planish_tensor::element_count(dims).filter(|count| *count > 0)?;
        let padded = |n: usize, to: usize| n.checked_next_multiple_of(to);
        match self {
            Format::Matrix { panels, .. } => {
                let (k, n) = self.matrix(dims)?;
                k.checked_mul(padded(n, panels.lanes)?)
            }
            Format::Gates { panels, .. } => {
                let (count, k, n) = self.gates(dims)?;
                count.checked_mul(k.checked_mul(padded(n, panels.lanes)?)?)
            }
            Format::QuadGates { panels, .. } => {
                let (count, k, n) = self.gates(dims)?;
                let matrix = Arrangement::Matrix { transposed: true };
                let bytes = quantized::packed_bytes(matrix, *panels, &[n, k]).filter(|_| k % 4 == 0)?;
                count.checked_mul(bytes / size_of::<f32>())
            }
            Format::Product { panels } => {
                let (k, n) = self.matrix(dims)?;
                k.checked_mul(padded(n, panels.lanes)?)
            }
            Format::Conv { panels, .. } => {
                let Sizes { groups, c, k, kernel, .. } = self.sizes(dims)?;
                let depth = groups.checked_mul(kernel.iter().product())?.checked_mul(c)?;
                depth.checked_mul(padded(k, panels.lanes)?)
            }
            Format::Narrow => {
                let Sizes { c, k, kernel, .. } = self.sizes(dims)?;
                let n_taps: usize = kernel.iter().product();
                padded(c, narrow::CHANNEL_BLOCK)?.checked_mul(n_taps.checked_mul(k)?)
            }
            Format::Winograd { panels, kind } => {
                let Sizes { c, k, kernel, .. } = self.sizes(dims).filter(|sizes| kind.takes(sizes.kernel))?;
                let depth = kind.n_points().checked_mul(kernel[0])?.checked_mul(c)?;
                depth.checked_mul(padded(k, panels.lanes)?)
            }
            Format::Depthwise | Format::QuantizedDepthwise { .. } => {
                // One input channel for each output channel, as its kernels have it.
                let [channels, 1, taps @ ..] = dims else { return None };
                let n_taps: usize = taps.iter().product();
                n_taps.checked_mul(padded(*channels, depthwise::CHANNEL_BLOCK)?)
            }
            Format::QuantizedWinograd { panels } => quantized::words_len(*panels, dims),
            Format::Pairs { panels, arrangement } => {
                let (c, rows, columns) = match arrangement {
                    Arrangement::Matrix { .. } => self.matrix(dims).map(|(k, n)| (k, 1, n))?,
                    Arrangement::Conv { .. } => {
                        let Sizes { groups, c, k, kernel, .. } = self.sizes(dims)?;
                        (c, groups.checked_mul(kernel.iter().product())?, k)
                    }
                };
                let pairs = c.is_multiple_of(2).then_some(c / 2)?;
                pairs.checked_mul(rows)?.checked_mul(padded(columns, panels.lanes)?)
            }
            Format::Quantized { panels, arrangement } => {
                quantized::packed_bytes(*arrangement, *panels, dims).map(|bytes| bytes / size_of::<f32>())
            }
            Format::Codes { .. } => self.codes(dims)?.checked_len().map(|bytes| bytes / size_of::<f32>()),
        }
    }

    /// The weight that was packed; `None` for a transform or another length.
    fn unpacked(&self, dims: &[usize], packed: &[f32]) -> Option<Vec<f32>> {
        if self.packed_len(dims) != Some(packed.len()) {
            return None;
        }
        let matrix = |panels: Panels, strides: fn(usize, usize) -> Strides| {
            let (k, n) = self.matrix(dims)?;
            let mut weight = vec![0.0; k * n];
            PackedB::new(panels, k, n).unpack(packed, &mut weight, strides(k, n));
            Some(weight)
        };
        let by_columns = |k, _| Strides { k: 1, n: k };
        match self {
            Format::Matrix { panels, transposed: false } => matrix(*panels, |_, n| Strides { k: n, n: 1 }),
            Format::Matrix { panels, transposed: true } => matrix(*panels, by_columns),
            Format::Gates { panels, .. } => {
                let (_, k, n) = self.gates(dims)?;
                let layout = PackedB::new(*panels, k, n);
                let mut weight = vec![0.0; dims.iter().product()];
                for (to, from) in weight.chunks_exact_mut(n * k).zip(packed.chunks_exact(layout.len())) {
                    layout.unpack(from, to, Strides { k: 1, n: k });
                }
                Some(weight)
            }
            Format::Product { panels } => matrix(*panels, by_columns),
            Format::Conv { panels, .. } => Some(pack::unpack(&self.filter(dims)?, *panels, packed)),
            Format::Narrow => Some(narrow::unpack(&self.filter(dims)?, packed)),
            Format::Depthwise => {
                let [channels, 1, taps @ ..] = dims else { return None };
                Some(depthwise::unpack(packed, *channels, taps.iter().product()))
            }
            Format::Pairs { panels, arrangement: Arrangement::Matrix { transposed } } => {
                let (k, n) = self.matrix(dims)?;
                bf16::unpack(&product_filter(k, n, *transposed), *panels, packed)
            }
            Format::Pairs { panels, .. } => bf16::unpack(&self.filter(dims)?, *panels, packed),
            Format::Winograd { .. }
            | Format::Quantized { .. }
            | Format::QuadGates { .. }
            | Format::QuantizedWinograd { .. }
            | Format::QuantizedDepthwise { .. }
            | Format::Codes { .. } => None,
        }
    }

    /// Matrices of a recurrent layer's weight of these sizes, and rows and columns of each as it is multiplied.
    fn gates(&self, dims: &[usize]) -> Option<(usize, usize, usize)> {
        let (&(Format::Gates { parts, .. } | Format::QuadGates { parts, .. }), &[dirs, rows, k]) =
            (self, dims)
        else {
            return None;
        };
        rows.is_multiple_of(parts).then_some((dirs.checked_mul(parts)?, k, rows / parts))
    }

    /// A recurrent layer's weight packed; `None` for other formats and sizes.
    pub(crate) fn pack_gates(&self, dims: &[usize], weight: &[f32]) -> Option<Vec<f32>> {
        let &Format::Gates { panels, .. } = self else { return None };
        let (_, k, n) = self.gates(dims)?;
        let layout = PackedB::new(panels, k, n);
        let mut packed = vec![0.0; self.packed_len(dims)?];
        for (from, to) in weight.chunks_exact(n * k).zip(packed.chunks_exact_mut(layout.len())) {
            layout.pack(from, Strides { k: 1, n: k }, to);
        }
        Some(packed)
    }

    /// How small integers of these sizes lie packed, and where their elements are in the weight.
    pub(crate) fn codes(&self, dims: &[usize]) -> Option<CodesStack> {
        let &Format::Codes { panels, width, transposed } = self else { return None };
        let (count, k, n) = match *dims {
            [n] => (1, 1, n),
            [k, n] if !transposed => (1, k, n),
            [n, k] => (1, k, n),
            [count, n, k] if transposed => (count, k, n),
            _ => return None,
        };
        let strides =
            if transposed && dims.len() > 1 { Strides { k: 1, n: k } } else { Strides { k: n, n: 1 } };
        Some(CodesStack { count, layout: PackedCodes { panels, width, k, n }, strides })
    }

    /// Packs small integers.
    pub(crate) fn pack_codes(&self, tensor: &Tensor) -> Result<Vec<u8>, KernelError> {
        let refuse =
            |what: &str| KernelError::unsupported(format!("integers of shape {:?}: {what}", tensor.shape()));
        let stack = self.codes(tensor.shape()).ok_or_else(|| refuse("not to be packed so"))?;
        let codes = tensor.codes().map_err(|error| refuse(&error.to_string()))?;
        Ok(stack.pack(tensor.dtype(), &codes))
    }

    /// Rows and columns of the matrix that a weight of these sizes is.
    fn matrix(&self, dims: &[usize]) -> Option<(usize, usize)> {
        let transposed = match self {
            Format::Matrix { transposed, .. }
            | Format::Pairs { arrangement: Arrangement::Matrix { transposed }, .. } => Some(*transposed),
            _ => None,
        };
        match (self, dims) {
            (_, &[k, n]) if transposed == Some(false) => Some((k, n)),
            (_, &[n, k]) if transposed == Some(true) => Some((k, n)),
            (Format::Product { .. }, [n, k, taps @ ..]) if taps.iter().all(|taps| *taps == 1) => {
                Some((*k, *n))
            }
            _ => None,
        }
    }

    /// The filter that a weight of these sizes is. Takes memory for each tap, so it comes after a look at lengths.
    fn filter(&self, dims: &[usize]) -> Option<Filter> {
        let Sizes { groups, c, k, axes, transposed, .. } = self.sizes(dims)?;
        Some(Filter::new(groups, c, k, &axes, transposed))
    }

    /// The sizes of the filter that a weight of these sizes is.
    fn sizes(&self, dims: &[usize]) -> Option<Sizes> {
        let [outer, inner, kernel @ ..] = dims else { return None };
        let (groups, steps) = match self {
            Format::Conv { groups, steps, .. }
            | Format::Pairs { arrangement: Arrangement::Conv { groups, steps }, .. } => (*groups, *steps),
            _ => (1, None),
        };
        if kernel.len() > AXES || !outer.is_multiple_of(groups) {
            return None;
        }
        let mut axes = [TRIVIAL_AXIS; AXES];
        for (axis, size) in axes[AXES - kernel.len()..].iter_mut().zip(kernel) {
            axis.kernel = *size;
        }
        for (axis, (stride, dilation)) in axes.iter_mut().zip(steps.into_iter().flatten()) {
            // A stride beyond the kernel has classes without taps, which a forged one could have millions of.
            let sane = stride > 0 && dilation > 0 && stride <= MAX_STRIDE;
            axis.kernel.checked_mul(dilation).filter(|_| sane)?;
            *axis = PlacedAxis { stride, dilation, ..*axis };
        }
        let (c, k) = if steps.is_some() { (outer / groups, *inner) } else { (*inner, outer / groups) };
        Some(Sizes { groups, c, k, kernel: axes.map(|axis| axis.kernel), axes, transposed: steps.is_some() })
    }
}

/// What a filter is made from.
struct Sizes {
    groups: usize,
    /// Channels of a group, in and out.
    c: usize,
    k: usize,
    kernel: [usize; AXES],
    axes: [PlacedAxis; AXES],
    transposed: bool,
}

/// The largest stride of a transposed convolution whose weight is packed: taps are sorted into so many classes.
pub(crate) const MAX_STRIDE: usize = 64;

/// Bytes that a packed weight has.
pub(crate) fn packed_bytes(form: PackedForm<'_>) -> Option<usize> {
    let fits = |format: &Format| match format {
        Format::Codes { width, .. } => Width::of(form.dtype).is_some_and(|own| own.bits() <= width.bits()),
        Format::Quantized { .. }
        | Format::QuadGates { .. }
        | Format::QuantizedWinograd { .. }
        | Format::QuantizedDepthwise { .. } => form.dtype == DType::I8,
        _ => form.dtype == DType::F32,
    };
    let len = Format::named(form.format).filter(fits)?.packed_len(form.dims)?;
    len.checked_mul(size_of::<f32>())
}

/// The weight behind its packed bytes.
pub(crate) fn unpack(form: PackedForm<'_>, bytes: &[u8]) -> Result<Tensor, KernelError> {
    let PackedForm { format, dtype, dims } = form;
    let refuse = |what: &str| KernelError::unsupported(format!("{form}: {what}"));
    let known = Format::named(format).ok_or_else(|| refuse("the CPU backend does not know this format"))?;
    if packed_bytes(form) != Some(bytes.len()) {
        return Err(refuse(&format!("{} bytes are not its length", bytes.len())));
    }
    if let Some(stack) = known.codes(dims) {
        let codes = stack.unpack(dtype, bytes);
        return Tensor::from_codes(dtype, dims, codes).map_err(|error| refuse(&error.to_string()));
    }
    let words = bytes.chunks_exact(size_of::<f32>());
    let packed: Vec<f32> =
        words.map(|word| f32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect();
    let weight = known.unpacked(dims, &packed).ok_or_else(|| refuse("there is no way back from it"))?;
    Tensor::from_bytes(dtype, dims, Bytes::from_vec(weight)).map_err(|error| refuse(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 20] = [
        "pairs_panels32v16_g2",
        "pairs_panels32v16_g1_t1d1x2d1x2d3",
        "pairs_panels32v16_matrixt",
        "panels32x16",
        "panels8x8t",
        "matrix_panels32v16",
        "gates3_panels32v16",
        "quadgates4_panels64v16",
        "conv_panels48v16_g1",
        "conv_panels16v8_g4_t1d1x2d1x3d2",
        "conv_narrow16",
        "conv_winograd_four_panels32v16",
        "taps_by_channels16",
        "bytes_taps_by_channels16",
        "quads_panels32v16_g2",
        "quads_panels32v16_g1_t1d1x2d1x2d3",
        "quads_panels16v8_matrixt",
        "words_winograd_two_panels16v8",
        "codes4_panels32v16",
        "codes8_panels16v8_t",
    ];

    #[test]
    fn names_come_back() {
        for name in NAMES {
            assert_eq!(Format::named(name).map(|format| format.name()).as_deref(), Some(name));
        }
    }

    #[test]
    fn other_names_are_none() {
        let wrong = [
            "",
            "panels",
            "panels32",
            "panels0x0",
            "panels32x0",
            "panels33x16",
            "panels032x16",
            "panels32x16tt",
            "panels+32x16",
            "conv_",
            "conv_panels32v16",
            "conv_panels32v16_g0",
            "conv_panels32v16_g1_t1d1",
            "conv_panels32v16_g1_t1d1x1d1x1d1_",
            "conv_winograd_five_panels32v16",
            "conv_narrow8",
            "panels18446744073709551615x1",
            "matrix_panels32x16",
            "gates_panels32v16",
            "gates0_panels32v16",
            "gates5_panels32v16",
            "quadgates0_panels32v16",
            "codes5_panels32v16",
            "codes04_panels32v16",
            "codes4_panels32v16_tt",
            "bytes_taps_by_channels16_less0",
            "bytes_taps_by_channels16_less128",
            "bytes_taps_by_channels16_less+5",
            "bytes_taps_by_channels16 ",
        ];
        for name in wrong {
            assert_eq!(Format::named(name), None, "{name}");
        }
    }

    #[test]
    fn sizes_that_cannot_be_packed_have_no_length() {
        let form = |format, dims| PackedForm { format, dtype: DType::F32, dims };
        let bytes = |name, dims| packed_bytes(form(name, dims));
        assert_eq!(bytes("panels32x16", &[5, 17]), Some(5 * 32 * 4));
        assert_eq!(bytes("panels32x16t", &[5, 17]), Some(17 * 16 * 4));
        assert_eq!(bytes("panels32x16", &[5, 17, 1]), None);
        assert_eq!(bytes("panels32x16", &[1 << 42, (1 << 20) + 1]), None);
        assert_eq!(bytes("conv_panels32v16_g3", &[4, 2, 3, 3]), None);
        assert_eq!(bytes("conv_panels32v16_g1", &[4, 2, 3, 3, 3, 3]), None);
        assert_eq!(bytes("conv_panels32v16_g1_t65d1x1d1x1d1", &[4, 2, 3, 3]), None);
        assert_eq!(packed_bytes(PackedForm { dtype: DType::F16, ..form("panels32x16", &[5, 17]) }), None);
        let codes = |format, dtype| packed_bytes(PackedForm { format, dtype, dims: &[9, 17] });
        assert_eq!(codes("codes4_panels32v16", DType::U4), Some(2 * 4 * 32));
        assert_eq!(codes("codes8_panels32v16_t", DType::I4), Some(24 * 16));
        assert_eq!(codes("codes4_panels32v16", DType::I8), None);
        let stacked = |format| packed_bytes(PackedForm { format, dtype: DType::I8, dims: &[2, 9, 17] });
        assert_eq!(stacked("codes8_panels32v16_t"), Some(2 * 24 * 16));
        assert_eq!(stacked("codes8_panels32v16"), None, "several matrices are transposed");
        assert_eq!(bytes("codes4_panels32v16", &[9, 17]), None);
        // Only what their kernels take: three taps along an axis, one input channel.
        assert!(bytes("conv_winograd_two_panels8v8", &[8, 8, 3, 3]).is_some());
        assert_eq!(bytes("conv_winograd_two_panels8v8", &[8, 8, 1024, 1024]), None);
        assert_eq!(bytes("conv_winograd_row_panels8v8", &[8, 8, 3, 3]), None);
        assert_eq!(bytes("taps_by_channels16", &[16, 8, 3, 3]), None);
        // Nothing is asked of memory before the length is known.
        assert_eq!(bytes("conv_panels8v8_g1", &[0, 1, 1 << 50]), None);
        assert_eq!(bytes("conv_panels8v8_g1", &[1, 1, 1 << 50]), Some((1 << 50) * 8 * 4));
        assert!(unpack(form("panels32x16", &[5, 17]), &[0; 4]).is_err());
        assert!(unpack(form("conv_winograd_two_panels8v8", &[8, 1, 3, 3]), &[0; 16 * 32]).is_err());
    }

    /// A permutation with padding: every element of the weight is in the packed form once.
    #[test]
    fn packed_weights_come_back_on_any_machine() {
        for (name, dims) in [
            ("panels48x16", vec![7, 50]),
            ("panels16x8t", vec![19, 6]),
            ("matrix_panels32v16", vec![37, 5, 1, 1]),
            ("gates3_panels32v16", vec![2, 3 * 37, 5]),
            ("conv_panels64v16_g2", vec![70, 3, 3, 2]),
            ("conv_panels8v8_g1_t1d1x2d1x3d2", vec![4, 9, 3, 5]),
            ("conv_narrow16", vec![3, 20, 3, 3]),
            ("taps_by_channels16", vec![21, 1, 3, 3]),
        ] {
            let format = Format::named(name).unwrap();
            let n: usize = dims.iter().product();
            let n_packed = format.packed_len(&dims).unwrap();
            // Where each packed place leads to: numbered places, of which the weight shows its own.
            let places: Vec<f32> = (0..n_packed).map(|idx| idx as f32 + 1.0).collect();
            let mut seen = format.unpacked(&dims, &places).unwrap();
            assert_eq!(seen.len(), n, "{name}");
            seen.sort_by(f32::total_cmp);
            seen.dedup();
            assert_eq!(seen.len(), n, "{name}: two elements share a place");
            assert!(seen[0] >= 1.0, "{name}: an element has no place");
        }
    }
}
