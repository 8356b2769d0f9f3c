//! What follows each sum of a product, as the kernels take it: views of the operands, scales, bounds, and the text of a
//! program.

mod bytes;

use std::fmt::Write;

pub(crate) use self::bytes::{Bytes, Factors, Numbers};
use super::apart::Apart;
use planish_gpu::codegen;
use planish_gpu::kernel_args;
use planish_kernel::pointwise::{Epilogue, Kind, ProgramInput, Residual, Source as From};
use planish_kernel::{Approximation, Arithmetic, KernelError, Operand, Problem};
use planish_op::Op;
use planish_tensor::{DType, Tensor};

use crate::launch::Params;
use crate::source::Source;

/// How far `pl_gelu` of `GELU_IN_F8` (prelude.cuh) is off: tanh.approx is within 2^-11, half of which reaches the result,
/// and its cubic argument stands for erf within the rest.
pub(crate) const GELU_IN_F8: Approximation = Approximation { absolute: 2.8e-4, of_argument: 1.0 / 4096.0 };

/// Whether GELU is the one of eight instructions: between sums of E4M3, which are off by more, and results of E4M3.
pub(crate) fn gelu_is_fast(problem: &Problem) -> bool {
    problem.numeric.element == Arithmetic::F8
        && problem.outputs.first().is_some_and(|output| output.dtype == DType::F8E4M3FN)
}

/// The most further inputs of a program.
pub(crate) const MAX_EXTRA: usize = 4;

kernel_args! {
    /// Where an operand's elements are: four strides for the place among rows, outermost first, and one along columns,
    /// in elements.
    pub(crate) struct View {
        pub(crate) s: [i64; 4],
        pub(crate) c: i64,
        /// All rows are one step of `s[3]` apart.
        pub(crate) linear: i32,
        /// Eight neighbours along columns are aligned where the address is: `s` multiples of 16 bytes (of 8 where
        /// elements are bytes), `c` one.
        pub(crate) wide: i32,
    }

    /// Views of all that follows the sums of a product, and bounds.
    pub(crate) struct TileEpilogueArgs {
        out: View,
        bias: View,
        residual: View,
        scales: View,
        extra: [View; MAX_EXTRA],
        lo: f32,
        hi: f32,
        /// What sums are multiplied by, besides the columns' scales.
        factor: f32,
        /// The scale of a residual of bytes, and one over that of an output of bytes.
        residual_scale: f32,
        inverse: f32,
    }
}

/// How a product's rows and columns lie in its output: sizes of the four row dimensions, outermost first, and
/// the output's axes that they and the columns are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Rows {
    pub(crate) sizes: [usize; 4],
    pub(crate) axes: [Option<usize>; 4],
    pub(crate) column: Option<usize>,
    /// Columns of one group start at a multiple of this.
    pub(crate) group: usize,
    /// Row dimensions before this are blocks of their own (batches), so rows run over the others.
    pub(crate) first: usize,
}

impl Rows {
    /// A view with these strides of the output's axes.
    pub(crate) fn view(&self, strides: &[usize], dtype: DType) -> View {
        let stride = |axis: Option<usize>| axis.map_or(0, |axis| strides[axis] as i64);
        let mut s = self.axes.map(stride);
        let c = stride(self.column);
        // Rows are one step apart where every dimension continues the one inside it.
        let (mut step, mut span, mut linear) = (None, 1i64, true);
        for axis in (0..4).rev() {
            if self.sizes[axis] <= 1 {
                s[axis] = 0;
                continue;
            }
            if axis < self.first {
                // A batch: linear only if it does not move.
                linear &= s[axis] == 0;
                continue;
            }
            match step {
                None => step = Some(s[axis]),
                Some(step) => linear &= s[axis] == step * span,
            }
            span *= self.sizes[axis] as i64;
        }
        let per_chunk = (16 / dtype.bytes_for(1).unwrap_or(16).max(1) as i64).min(8);
        let aligned = s.iter().all(|step| step % per_chunk == 0) && self.group.is_multiple_of(8);
        if linear {
            s = [0, 0, 0, step.unwrap_or(0)];
        }
        View { s, c, linear: i32::from(linear), wide: i32::from(aligned && c == 1) }
    }

    fn operand(&self, operand: &Operand) -> View {
        self.view(&operand.strides, operand.dtype)
    }
}

/// What a region does with the sums of its product, a convolution or a matrix product.
#[derive(Clone, Debug)]
pub(crate) struct Following {
    pub(crate) epilogue: Epilogue,
    /// The bias, where it is a constant of the region.
    pub(crate) constant_bias: Option<Tensor>,
    pub(crate) bytes: Bytes,
}

impl Following {
    /// `apart` is the problem over floats, where it has integers.
    pub(crate) fn of(problem: &Problem, apart: Option<&Apart>) -> Result<Following, KernelError> {
        let plain = apart.map_or(problem, Apart::problem);
        let is_conv = matches!(plain.region.nodes[0].op, Op::Conv(_) | Op::ConvTranspose(_));
        let (epilogue, bias) = match is_conv {
            true => Epilogue::of_conv(plain, Epilogue::stored)?,
            false => (Epilogue::stored(plain, 0)?, None),
        };
        let bytes = match apart {
            Some(apart) => Bytes::of(problem, &apart.dequantized, &epilogue)?,
            None => Bytes::default(),
        };
        let residual = epilogue.residual.map(|residual| residual.input as usize);
        let is_residual = |input: &usize| Some(*input) == residual;
        if !apart.is_none_or(|apart| apart.widened.iter().all(is_residual)) {
            return Err(KernelError::unsupported(
                "after a product: a cast of something else than a residual",
            ));
        }
        Ok(Following { epilogue, constant_bias: bias.cloned(), bytes })
    }
}

/// An epilogue with all that a source and a launch need of it.
#[derive(Clone, Debug)]
pub(crate) struct TileEpilogue {
    epilogue: Epilogue,
    /// Types in memory: bias, residual, output.
    types: [&'static str; 3],
    /// The bias, where it is a constant of the region.
    constant_bias: Option<Tensor>,
    /// Inputs of the region that the program reads, in order.
    extra: Vec<usize>,
    bytes: Bytes,
}

impl TileEpilogue {
    /// What a problem's region does with the accumulators of its product, a convolution or a matrix product. `apart` is
    /// the same over floats, where it has integers.
    pub(in crate::families) fn of(
        problem: &Problem,
        apart: Option<&Apart>,
    ) -> Result<TileEpilogue, KernelError> {
        let Following { epilogue, constant_bias, bytes } = Following::of(problem, apart)?;
        TileEpilogue::new(problem, epilogue, constant_bias, bytes)
    }

    /// Refused where types or numbers of inputs are beyond the kernels.
    fn new(
        problem: &Problem,
        epilogue: Epilogue,
        constant_bias: Option<Tensor>,
        bytes: Bytes,
    ) -> Result<TileEpilogue, KernelError> {
        let refuse = |what: &str| Err(KernelError::unsupported(format!("after a product: {what}")));
        let floating = |dtype: DType| match dtype {
            DType::F32 | DType::F16 | DType::BF16 => codegen::storage_type(dtype),
            _ => None,
        };
        let input = |idx: Option<u32>| match idx {
            None => Some("float"),
            Some(idx) => floating(problem.inputs[idx as usize].dtype),
        };
        let bias = match &constant_bias {
            Some(tensor) => floating(tensor.dtype()),
            None => input(epilogue.bias),
        };
        let residual = epilogue.residual.map(|residual| residual.input);
        let output = problem.outputs.first().map(|output| output.dtype);
        let types = [
            bias,
            bytes.residual.map_or_else(|| input(residual), |stored| codegen::storage_type(stored.dtype)),
            match bytes.output {
                Some(stored) => codegen::storage_type(stored.dtype),
                None => output.and_then(floating),
            },
        ];
        let [Some(bias), Some(residual), Some(output)] = types else {
            return refuse("a type that is not f32, f16 or bf16");
        };
        let mut extra = Vec::new();
        if let Some(program) = &epilogue.program {
            let made = program.outputs.first().map(|reg| program.kinds[reg.0 as usize]);
            if program.outputs.len() != 1 || made != Some(Kind::F32) {
                return refuse("a program that makes no f32");
            }
            for input in &program.inputs {
                match input.source {
                    From::Input(idx) => extra.push(idx as usize),
                    From::Constant(_) => {}
                }
                if codegen::storage_type(input.dtype).is_none() {
                    return refuse("an input of a type that programs do not read");
                }
            }
        }
        if extra.len() > MAX_EXTRA {
            return refuse("a program with more than four inputs");
        }
        if extra.iter().any(|idx| bytes.inputs.contains(idx)) {
            return refuse("a program that reads integers which are something else too");
        }
        Ok(TileEpilogue { epilogue, types: [bias, residual, output], constant_bias, extra, bytes })
    }

    /// As `IN_STEPS` in epilogue.cuh.
    fn in_steps(&self) -> bool {
        self.bytes.output.is_some() && self.epilogue.program.is_none() && self.residual_when() != 2
    }

    /// Whether sums are of integers.
    pub(crate) fn sums_integers(&self) -> bool {
        self.bytes.factors.is_some()
    }

    pub(crate) fn residual(&self) -> Option<Residual> {
        self.epilogue.residual
    }

    /// Whether results are bytes that lie side by side, 16 at an aligned place.
    pub(crate) fn gives_bytes(&self, problem: &Problem, rows: &Rows) -> bool {
        let view = rows.operand(&problem.outputs[0]);
        self.bytes.output.is_some() && view.c == 1 && view.s.iter().all(|step| step % 16 == 0)
    }

    /// Whether there is a residual whose rows of `n` columns lie one after the other, each at an aligned place.
    pub(crate) fn residual_is_dense(&self, problem: &Problem, rows: &Rows, n: usize) -> bool {
        self.epilogue.residual.is_some_and(|residual| {
            let operand = &problem.inputs[residual.input as usize];
            let view = rows.operand(operand);
            let aligned = (n * operand.dtype.bits()).is_multiple_of(128);
            view.linear != 0 && view.c == 1 && view.s[3] == n as i64 && aligned && !operand.is_empty()
        })
    }

    /// Whether something beside bias and residual is read after the sum.
    pub(crate) fn reads_more(&self) -> bool {
        self.epilogue.program.as_ref().is_some_and(|program| !program.inputs.is_empty())
    }

    pub(crate) fn has_bias(&self) -> bool {
        self.constant_bias.is_some() || self.epilogue.bias.is_some()
    }

    /// As `EPILOGUE_RESIDUAL` in epilogue.cuh.
    fn residual_when(&self) -> i32 {
        self.epilogue.residual.map_or(0, |residual| if residual.after_clamp { 2 } else { 1 })
    }

    /// Whether every operand has its rows one step apart.
    pub(crate) fn is_linear(&self, problem: &Problem, rows: &Rows) -> bool {
        let args = self.args(problem, rows);
        let residual = self.epilogue.residual.is_none() || args.residual.linear != 0;
        let extra = args.extra[..self.extra.len()].iter().all(|view| view.linear != 0);
        args.out.linear != 0 && residual && extra && self.constants_are_linear(problem, rows)
    }

    fn constants_are_linear(&self, problem: &Problem, rows: &Rows) -> bool {
        self.epilogue.program.iter().flat_map(|program| &program.inputs).all(|input| {
            let From::Constant(place) = input.source else { return true };
            let Some(tensor) = problem.region.constants.get(place as usize) else { return false };
            rows.view(&spread(input, tensor.shape(), rank(problem)), input.dtype).linear != 0
        })
    }

    /// The source with types and arguments; the program's text goes after the block's and before the kernel's.
    pub(crate) fn text(&self, problem: &Problem) -> Result<String, KernelError> {
        let mut text = String::new();
        if let Some(tensor) = &self.constant_bias {
            text.push_str(&codegen::constant(tensor, "constant_bias")?);
        }
        let Some(program) = &self.epilogue.program else { return Ok(text) };
        text.push_str(&codegen::function(program, "program"));
        let mut body = String::new();
        let mut arguments = Vec::new();
        if codegen::has_running(program) {
            arguments.push("v[j]".to_string());
        }
        let mut n_extra = 0;
        for (idx, input) in program.inputs.iter().enumerate() {
            let storage = codegen::storage_type(input.dtype).unwrap_or("float");
            let function = match input.dtype {
                DType::F32 | DType::F16 | DType::BF16 => "load8_float",
                _ => "load8",
            };
            let from = match input.source {
                From::Input(_) => {
                    n_extra += 1;
                    format!("a.extra[{}], f.extra[{}]", n_extra - 1, n_extra - 1)
                }
                From::Constant(place) => {
                    let name = format!("constant_{idx}");
                    let Some(tensor) = problem.region.constants.get(place as usize) else {
                        return Err(KernelError::unsupported("a constant that the region does not have"));
                    };
                    text.push_str(&codegen::constant(tensor, &name)?);
                    let _ = writeln!(text, "__device__ const View view_{idx} = {{VIEW_{idx}}};");
                    format!("{name}, view_{idx}")
                }
            };
            let _ = writeln!(body, "  {} e{idx}[8];", codegen::c_type(input.kind));
            let _ = writeln!(body, "  {function}<{storage}>(e{idx}, {from}, at, n, count);");
            arguments.push(format!("e{idx}[j]"));
        }
        arguments.push("v[j]".to_string());
        let _ = write!(
            text,
            "PL_INLINE void after(const TileEpilogueArgs& f, const Addresses& a, const Place& at, int n, int count, \
             float (&v)[8]) {{\n{body}#pragma unroll\n  for (int j = 0; j < 8; j++) program({});\n}}\n",
            arguments.join(", ")
        );
        Ok(text)
    }

    /// The source with types and arguments.
    pub(crate) fn define(&self, mut source: Source, problem: &Problem, rows: &Rows) -> Source {
        let names: Vec<String> = (0..self.extra.len()).map(|idx| format!("e{idx}")).collect();
        let arguments: String = names.iter().map(|name| format!("const void* {name}, ")).collect();
        // Views of constants are part of the text: their strides never change.
        for (idx, input) in self.epilogue.program.iter().flat_map(|program| program.inputs.iter().enumerate())
        {
            if let From::Constant(place) = input.source
                && let Some(tensor) = problem.region.constants.get(place as usize)
            {
                let view = rows.view(&spread(input, tensor.shape(), rank(problem)), input.dtype);
                let [a, b, c, d] = view.s;
                // Arrays in the text are aligned to their elements only.
                let value = format!("{{{a}, {b}, {c}, {d}}}, {}, {}, 0", view.c, view.linear);
                source = source.define(&format!("VIEW_{idx}"), value);
            }
        }
        let [bias, residual, output] = self.types;
        let source = source.define("GELU_IN_F8", u32::from(gelu_is_fast(problem)));
        let source = self.bytes.define(source).define("IN_STEPS", u32::from(self.in_steps()));
        let plain = rows.view(&problem.outputs[0].strides, problem.outputs[0].dtype);
        source
            .define("BIAS_T", bias)
            .define("RES_T", residual)
            .define("OUT_T", output)
            .define("N_EXTRA", self.extra.len())
            .define("AFTER", u32::from(self.epilogue.program.is_some()))
            .define("PLAIN_OUT", u32::from(plain.c != 1 && plain.s[3] == 1))
            .define("EXTRA_ARGUMENTS", arguments)
            .define("EXTRA_NAMES", names.join(", "))
            .define("NEED_PLACE", u32::from(!self.constants_are_linear(problem, rows)))
            .define("CONSTANT_BIAS", u32::from(self.constant_bias.is_some()))
            .define("EPILOGUE_BIAS", u32::from(self.has_bias()))
            .define("EPILOGUE_BOUNDS", u32::from(self.epilogue.has_clamp()))
            .define("EPILOGUE_RESIDUAL", self.residual_when())
    }

    /// The arguments after the two factors: scales, bias, residual, the program's inputs, output, parts.
    pub(crate) fn addresses(&self, params: Params) -> Params {
        let residual = self.epilogue.residual.map(|residual| residual.input as usize);
        let params = params
            .optional_input(self.bytes.scales())
            .optional_input(self.epilogue.bias.map(|idx| idx as usize))
            .optional_input(residual);
        self.extra.iter().fold(params, |params, idx| params.input(*idx)).output(0).workspace(0)
    }

    /// Strides and bounds.
    pub(crate) fn args(&self, problem: &Problem, rows: &Rows) -> TileEpilogueArgs {
        let mut extra = <[View; MAX_EXTRA]>::default();
        let mut n_extra = 0;
        for input in self.epilogue.program.iter().flat_map(|program| &program.inputs) {
            if let From::Input(idx) = input.source {
                let operand = &problem.inputs[idx as usize];
                let axes = input.axes(rank(problem));
                let strides: Vec<usize> =
                    axes.iter().map(|axis| axis.map_or(0, |axis| operand.strides[axis])).collect();
                extra[n_extra] = rows.view(&strides, operand.dtype);
                n_extra += 1;
            }
        }
        let residual = self.epilogue.residual;
        let groups_align = rows.group.is_multiple_of(8);
        let columns = |wide: bool| View { s: [0; 4], c: 1, linear: 1, wide: i32::from(wide) };
        let bounds = (self.epilogue.lo, self.epilogue.hi);
        let Numbers { factor, residual_scale, inverse, lo, hi } = match self.in_steps() {
            true => self.bytes.in_steps(bounds),
            false => self.bytes.numbers(bounds),
        };
        TileEpilogueArgs {
            out: rows.operand(&problem.outputs[0]),
            bias: columns(groups_align && self.constant_bias.is_none()),
            scales: columns(groups_align),
            residual: residual
                .map_or(View::default(), |residual| rows.operand(&problem.inputs[residual.input as usize])),
            extra,
            lo,
            hi,
            factor,
            residual_scale,
            inverse,
        }
    }
}

fn rank(problem: &Problem) -> usize {
    problem.outputs[0].rank()
}

/// Strides of a dense constant along the output's axes.
fn spread(input: &ProgramInput, dims: &[usize], rank: usize) -> Vec<usize> {
    let own = planish_kernel::Layout::Plain.strides(dims);
    input.axes(rank).iter().map(|axis| axis.map_or(0, |axis| own[axis])).collect()
}
