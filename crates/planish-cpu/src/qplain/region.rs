//! Regions as products of bytes: which operand is what, and how the products of a batch lie.

use planish_kernel::{Layout, Numeric, Operand, Problem, Ref, RegionNode};
use planish_op::Op;
use planish_op::window::WindowAttributes;
use planish_tensor::DType;

use super::{Factor, Finish, OfLines, Products, Source, Unit};
use crate::isa::Isa;
use crate::spatial::Windows;

/// The longest sum: 255 · 255 for each term is below 2^31, so sums that become numbers do not wrap.
const MAX_DEPTH: usize = 33_025;

/// What a reference reads, of this type.
fn source(problem: &Problem, reference: Ref, dtype: DType) -> Option<(Source, Vec<usize>)> {
    match reference {
        Ref::Input(idx) => {
            let operand = problem.inputs.get(idx as usize)?;
            (operand.dtype == dtype).then(|| (Source::Input(idx as usize), operand.dims.clone()))
        }
        Ref::Constant(_) => {
            let tensor = problem.region.constant(Some(reference))?;
            (tensor.dtype() == dtype).then(|| (Source::Constant(tensor.clone()), tensor.shape().to_vec()))
        }
        Ref::Node { .. } => None,
    }
}

/// Numbers that are one, or one for each of `n` lines.
fn of_lines(problem: &Problem, reference: Ref, dtype: DType, n: usize) -> Option<OfLines> {
    let (from, dims) = source(problem, reference, dtype)?;
    let step = match dims.iter().product::<usize>() {
        1 => None,
        _ => Some((dims == [n]).then_some(1)?),
    };
    Some(OfLines { from, step })
}

/// A factor as nodes give it: the bytes with their sizes, and references to its scale and zero point.
struct Given {
    from: Source,
    dtype: DType,
    dims: Vec<usize>,
    is_constant: bool,
    scale: Option<Ref>,
    zero: Option<Ref>,
    /// The axis of several scales.
    axis: i64,
}

fn input(node: &RegionNode, place: usize) -> Option<Ref> {
    node.inputs.get(place).copied().flatten()
}

fn bytes(problem: &Problem, reference: Ref) -> Option<Given> {
    let both = [DType::U8, DType::I8];
    let found = both.into_iter().find_map(|dtype| source(problem, reference, dtype).map(|all| (dtype, all)));
    let (dtype, (from, dims)) = found?;
    let is_constant = match from {
        Source::Input(idx) => problem.inputs[idx].constant,
        Source::Constant(_) => true,
    };
    Some(Given { from, dtype, dims, is_constant, scale: None, zero: None, axis: 0 })
}

/// The bytes behind a DequantizeLinear to f32.
fn dequantized(problem: &Problem, reference: Ref) -> Option<Given> {
    let Ref::Node { node, output: 0 } = reference else { return None };
    let node = problem.region.nodes.get(node as usize)?;
    let Op::DequantizeLinear(op) = &node.op else { return None };
    let fits = op.block_size == 0 && op.output_dtype.is_none_or(|dtype| dtype == DType::F32);
    let given = bytes(problem, input(node, 0)?).filter(|_| fits)?;
    let axis = if op.axis < 0 { op.axis + given.dims.len() as i64 } else { op.axis };
    Some(Given { scale: Some(input(node, 1)?), zero: input(node, 2), axis, ..given })
}

impl Given {
    /// The factor, whose lines are `n` along `axis`.
    fn factor(&self, problem: &Problem, n: usize, axis: usize) -> Option<Factor> {
        let numbers = |reference: Option<Ref>, dtype: DType| match reference {
            None => Some(None),
            Some(reference) => {
                let found = of_lines(problem, reference, dtype, n)?;
                // Operators that give sums have no axis to say: lines are what there can be several of.
                let along = self.scale.is_none() || self.axis == axis as i64;
                (found.step.is_none() || along).then_some(Some(found))
            }
        };
        Some(Factor {
            from: self.from.clone(),
            signed: self.dtype == DType::I8,
            zero: numbers(self.zero, self.dtype)?,
            scale: numbers(self.scale, DType::F32)?,
        })
    }
}

impl Given {
    /// The factor of a matrix product, and where the numbers of its lines begin for each matrix of the batch; nowhere but at
    /// the first where the list is empty.
    fn lines(
        &self,
        problem: &Problem,
        batch: &[usize],
        n: usize,
        axis: usize,
    ) -> Option<(Factor, Vec<usize>)> {
        if let (None, Some(zero)) = (self.scale, self.zero)
            && let Some((from, dims)) = source(problem, zero, self.dtype)
            && dims.len() == self.dims.len()
            && dims.len() > 1
            && dims.iter().product::<usize>() > 1
        {
            // Zero points of each matrix of its own: one for each line, or one for all of them.
            let (of_batch, [.., rows, columns]) = (&dims[..dims.len() - 2], &dims[..]) else { return None };
            let (lines, summed) = if axis + 1 == dims.len() { (*columns, *rows) } else { (*rows, *columns) };
            if summed != 1 || (lines != 1 && lines != n) {
                return None;
            }
            let starts = matrices(of_batch, batch)?.iter().map(|matrix| matrix * lines).collect();
            let step = Some(usize::from(lines > 1));
            let signed = self.dtype == DType::I8;
            let zero = Some(OfLines { from, step });
            return Some((Factor { from: self.from.clone(), signed, zero, scale: None }, starts));
        }
        Some((self.factor(problem, n, axis)?, Vec::new()))
    }
}

/// Which matrix of `own` every matrix of `batch` is, in order.
fn matrices(own: &[usize], batch: &[usize]) -> Option<Vec<usize>> {
    let missing = batch.len().checked_sub(own.len())?;
    let mut all = vec![0];
    for (axis, len) in batch.iter().enumerate() {
        let size = if axis < missing { 1 } else { own[axis - missing] };
        if size != *len && size != 1 {
            return None;
        }
        let place = |at: usize| if size == 1 { 0 } else { at };
        all = all.iter().flat_map(|before| (0..*len).map(move |at| before * size + place(at))).collect();
    }
    Some(all)
}

/// What the last node makes of the product, and the product's output.
struct Tail<'a> {
    main: &'a RegionNode,
    quantize: Option<&'a RegionNode>,
}

fn tail(problem: &Problem) -> Option<Tail<'_>> {
    let nodes = &problem.region.nodes;
    let [Ref::Node { node: last, output: 0 }] = problem.region.outputs[..] else { return None };
    let is_main = |node: &RegionNode| {
        matches!(node.op, Op::MatMul(_) | Op::Conv(_) | Op::MatMulInteger(_) | Op::ConvInteger(_))
    };
    let node = nodes.get(last as usize)?;
    let tail = match &node.op {
        Op::QuantizeLinear(op) => {
            let Some(Ref::Node { node: main, output: 0 }) = input(node, 0) else { return None };
            let plain = op.block_size == 0 && op.precision.is_none_or(|dtype| dtype == DType::F32);
            Tail { main: nodes.get(main as usize)?, quantize: Some(node).filter(|_| plain) }
        }
        _ => Tail { main: node, quantize: None },
    };
    let n_others = usize::from(matches!(node.op, Op::QuantizeLinear(_)));
    let sums = matches!(tail.main.op, Op::MatMulInteger(_) | Op::ConvInteger(_));
    let n_nodes = if sums { 1 } else { 3 + n_others };
    let whole = tail.quantize.is_some() == (n_others == 1) && !(sums && n_others == 1);
    (is_main(tail.main) && whole && nodes.len() == n_nodes).then_some(tail)
}

impl Products {
    pub(super) fn of(isa: Isa, problem: &Problem) -> Option<Products> {
        let [y] = &problem.outputs[..] else { return None };
        let plainly = |operand: &Operand| operand.packed.is_none() && operand.is_dense(Layout::Plain);
        let dense = problem.inputs.iter().chain([y]).all(plainly);
        if !dense || !matches!(problem.numeric, Numeric::F32 | Numeric::I8) {
            return None;
        }
        let Tail { main, quantize } = tail(problem)?;
        let given = |place: usize| match main.op {
            Op::MatMulInteger(_) | Op::ConvInteger(_) => {
                let zero = input(main, place + 2);
                Some(Given { zero, ..bytes(problem, input(main, place)?)? })
            }
            _ => dequantized(problem, input(main, place)?),
        };
        let (first, second) = (given(0)?, given(1)?);
        let is_sum = first.scale.is_none();
        // Weights that are known have kernels of their own, in integers or, dequantized beforehand, in floats.
        if !is_sum && second.is_constant {
            return None;
        }
        let bias = match (&main.op, input(main, 2)) {
            (Op::Conv(_), Some(bias)) => Some(source(problem, bias, DType::F32)?),
            _ => None,
        };
        let finish = match quantize {
            None if is_sum && y.dtype == DType::I32 => Finish::Sums,
            None if !is_sum && y.dtype == DType::F32 => {
                Finish::Numbers { bias: bias.as_ref().map(|(bias, _)| bias.clone()) }
            }
            Some(node) if matches!(y.dtype, DType::U8 | DType::I8) => {
                let single = |place: usize, dtype: DType| {
                    let found = of_lines(problem, input(node, place)?, dtype, 1)?;
                    found.step.is_none().then_some(found.from)
                };
                let zero = match input(node, 2) {
                    None => None,
                    Some(_) => Some(single(2, y.dtype)?),
                };
                let scale = single(1, DType::F32)?;
                let bias = bias.as_ref().map(|(bias, _)| bias.clone());
                Finish::Integers { bias, scale, zero, dtype: y.dtype }
            }
            _ => return None,
        };
        let products = match &main.op {
            Op::Conv(op) => Products::conv(isa, problem, (op.window(), op.group), (first, second), finish),
            Op::ConvInteger(op) => {
                Products::conv(isa, problem, (op.window(), op.group), (first, second), finish)
            }
            _ => Products::matrices(isa, problem, (first, second), finish),
        }?;
        let bias_fits = bias.is_none_or(|(_, dims)| dims == [y.dims[1]]);
        (products.k <= MAX_DEPTH && bias_fits).then_some(products)
    }

    fn matrices(isa: Isa, problem: &Problem, (a, b): (Given, Given), finish: Finish) -> Option<Products> {
        let (mut a_dims, mut b_dims) = (a.dims.clone(), b.dims.clone());
        if a_dims.len() == 1 {
            a_dims.insert(0, 1);
        }
        if b_dims.len() == 1 {
            b_dims.push(1);
        }
        let ([a_batch @ .., m, k], [b_batch @ .., b_k, n]) = (&a_dims[..], &b_dims[..]) else { return None };
        let (m, n, k) = (*m, *n, *k);
        let rank = a_batch.len().max(b_batch.len());
        let size = |dims: &[usize], axis: usize| match (axis + dims.len()).checked_sub(rank) {
            Some(at) => dims[at],
            None => 1,
        };
        let batch: Vec<usize> = (0..rank)
            .map(|axis| match (size(a_batch, axis), size(b_batch, axis)) {
                (1, other) => other,
                (one, _) => one,
            })
            .collect();
        let n_matrices: usize = batch.iter().product();
        if *b_k != k || n_matrices.checked_mul(m * n)? != problem.outputs[0].len() {
            return None;
        }
        let (a_matrices, b_matrices) = (matrices(a_batch, &batch)?, matrices(b_batch, &batch)?);
        // A vector has one line, so its scales are one, too, whatever axis they name.
        let (left, a_lines) = a.lines(problem, &batch, m, a.dims.len().wrapping_sub(2))?;
        let (right, b_lines) = b.lines(problem, &batch, n, b.dims.len() - 1)?;
        let line = |lines: &[usize], at: usize| lines.get(at).copied().unwrap_or(0);
        let unit = |(at, (a, b)): (usize, (&usize, &usize))| Unit {
            left: a * m * k,
            right: b * k * n,
            left_line: line(&a_lines, at),
            right_line: line(&b_lines, at),
        };
        let units = a_matrices.iter().zip(&b_matrices).enumerate().map(unit).collect();
        Some(Products { isa, m, n, k, left, right, units, windows: None, finish })
    }

    fn conv(
        isa: Isa,
        problem: &Problem,
        (window, group): (WindowAttributes<'_>, i64),
        (x, w): (Given, Given),
        finish: Finish,
    ) -> Option<Products> {
        let y = &problem.outputs[0];
        let groups = usize::try_from(group).ok().filter(|groups| *groups > 0)?;
        let (&[images, channels, ref size @ ..], &[rows, per_group, ref kernel @ ..]) =
            (&x.dims[..], &w.dims[..])
        else {
            return None;
        };
        let kernel: Vec<_> = kernel.iter().map(|len| (*len).into()).collect();
        let axes = window.axes(&window.kernel_of_weight(&kernel).ok()?).ok()?;
        if axes.len() != size.len() {
            return None;
        }
        let placed: Option<Vec<_>> = axes.iter().zip(size).map(|(axis, len)| axis.place(*len).ok()).collect();
        let image = Operand::dense(x.dtype, &x.dims, Layout::Plain);
        let windows = Windows::new(&placed?, &image, y)?;
        let fits = channels == groups * per_group && rows % groups == 0 && y.dims[1] == rows;
        let right = x.factor(problem, 1, usize::MAX).filter(|factor| {
            let one = |numbers: &Option<OfLines>| numbers.as_ref().is_none_or(|all| all.step.is_none());
            fits && one(&factor.zero) && one(&factor.scale)
        })?;
        let left = w.factor(problem, rows, 0)?;
        let (m, k) = (rows / groups, per_group * windows.n_taps());
        let n = windows.axes.iter().map(|axis| axis.output).product();
        let n_pixels: usize = size.iter().product();
        let unit = |at: usize| {
            let (image, group) = (at / groups, at % groups);
            let right = (image * channels + group * per_group) * n_pixels;
            Unit { left: group * m * k, right, left_line: group * m, right_line: 0 }
        };
        let units = (0..images * groups).map(unit).collect();
        Some(Products { isa, m, n, k, left, right, units, windows: Some(windows), finish })
    }
}
