//! What kernels do with each of their results before it is stored: a program over the running value and further
//! operands, as a function that the kernel's text calls.
//!
//! A kernel knows its output by four coordinates of a row and a column; which axes of the output these are, the
//! family says. Further operands have a stride for each.

use std::fmt::Write;

use planish_kernel::pointwise::{Kind, Program};
use planish_kernel::{KernelError, Operand, Problem};

use crate::args::Field;
use crate::codegen;
use crate::kernel_args;
use crate::map::{Laid, Place};
use crate::operands::{is_float, refuse};
use crate::plan::{Arg, KernelCode, Slot};
use crate::space;

kernel_args! {
    /// Strides of an operand of the program along the four coordinates of a row, and along the column.
    pub struct EpilogueStrides {
        row: [i32; 4],
        column: i32,
    }

    /// What `epilogue` in a kernel's text is given: a part of the kernel's own structure.
    pub struct EpilogueArgs {
        operands: Vec<EpilogueStrides>,
    }
}

/// A program after a kernel's results.
#[derive(Clone, Debug)]
pub struct EpilogueCode {
    text: String,
    /// Addresses, which stand after the kernel's own arguments.
    pub addresses: Vec<Arg>,
    pub args: EpilogueArgs,
}

impl EpilogueCode {
    /// The program after `main`, with `lanes` neighbours along the column at once, for results that are floats.
    pub fn after(
        problem: &Problem,
        main: u32,
        rows: [&[usize]; 4],
        cols: &[usize],
        lanes: usize,
    ) -> Result<EpilogueCode, KernelError> {
        match problem.outputs.first() {
            Some(output) if !is_float(output.dtype) => refuse("a kernel that makes floats alone"),
            _ => EpilogueCode::to_any(problem, main, rows, cols, lanes),
        }
    }

    /// The same for results that may be of 8 bits: they are handed back in f32, as the numbers that they are.
    fn to_any(
        problem: &Problem,
        main: u32,
        rows: [&[usize]; 4],
        cols: &[usize],
        lanes: usize,
    ) -> Result<EpilogueCode, KernelError> {
        let program = Program::stored_epilogue(problem, main)?;
        let [output] = &*problem.outputs else {
            return refuse("a kernel with an epilogue has one output");
        };
        if output.dims != program.dims || program.output_types != [output.dtype] {
            return refuse("an epilogue of other sizes or types than the output");
        }
        EpilogueCode::of(problem, &program, rows, cols, lanes)
    }

    /// After a region's first node, which makes an image of floats or bytes: rows are pixels (sample, depth, row, column), columns are
    /// channels.
    pub fn after_image(problem: &Problem, lanes: usize) -> Result<EpilogueCode, KernelError> {
        let rank = problem.outputs.first().map_or(0, Operand::rank);
        let spatial: Vec<[usize; 1]> = (2..rank).map(|axis| [axis]).collect();
        let mut rows: [&[usize]; 4] = [&[0], &[], &[], &[]];
        for (to, from) in rows[1..].iter_mut().rev().zip(spatial.iter().rev()) {
            *to = from;
        }
        EpilogueCode::to_any(problem, 0, rows, &[1], lanes)
    }

    fn of(
        problem: &Problem,
        program: &Program,
        rows: [&[usize]; 4],
        cols: &[usize],
        lanes: usize,
    ) -> Result<EpilogueCode, KernelError> {
        let made = match program.outputs[..] {
            [reg] => program.kinds[reg.0 as usize],
            _ => return refuse("an epilogue of several results"),
        };
        if !matches!(made, Kind::F32 | Kind::U8 | Kind::I8 | Kind::F8) {
            return refuse("an epilogue that makes other than floats or bytes");
        }
        let (mut text, mut addresses) = (String::new(), Vec::new());
        let mut args = EpilogueArgs::default();
        let (mut parameters, mut arguments) = (String::new(), String::new());
        let mut body = String::new();
        let mut call = Vec::new();
        if codegen::has_running(program) {
            call.push("v[j]".to_string());
        }
        for (idx, input) in program.inputs.iter().enumerate() {
            let laid = Laid::of_input(problem, program.dims.len(), input)?;
            let (storage, wide) = (laid.storage, codegen::c_type(input.kind));
            let name = match &laid.place {
                Place::Operand(slot, offset) => {
                    let _ = write!(parameters, ", const {storage}* e{idx}");
                    let _ = write!(arguments, ", e{idx}");
                    addresses.push(Arg::Address(*slot, offset * laid.size));
                    format!("e{idx}")
                }
                Place::Constant(bytes) => {
                    text.push_str(&codegen::constant_array(&format!("ec{idx}"), bytes)?);
                    format!("((const {storage}*)ec{idx})")
                }
            };
            let along = |axes: &[usize]| run(&program.dims, &laid.strides, axes);
            let step = |axes: &[usize]| match along(axes) {
                Some(step) => space::stride(step),
                None => refuse("an operand that does not follow the rows of a kernel"),
            };
            let mut strides = EpilogueStrides { row: [0; 4], column: step(cols)? };
            for (to, axes) in strides.row.iter_mut().zip(rows) {
                *to = step(axes)?;
            }
            let own = format!("a.operands[{}]", args.operands.len());
            args.operands.push(strides);
            let row: Vec<String> = (0..4).map(|axis| format!("(i64)y{axis} * {own}.row[{axis}]")).collect();
            let _ = writeln!(body, "  const {storage}* f{idx} = {name} + ({});", row.join(" + "));
            let _ = match along(cols) {
                Some(0) => {
                    call.push(format!("i{idx}"));
                    writeln!(body, "  const {wide} i{idx} = po_widen(*f{idx});")
                }
                Some(1) => {
                    call.push(format!("i{idx}[j]"));
                    writeln!(
                        body,
                        "  {wide} i{idx}[{lanes}]; po_load_part<{storage}, {lanes}>(i{idx}, f{idx} + col, left, ({wide})0);"
                    )
                }
                _ => {
                    call.push(format!("i{idx}[j]"));
                    writeln!(
                        body,
                        "  {wide} i{idx}[{lanes}];\n#pragma unroll\n  for (int j = 0; j < {lanes}; j++) i{idx}[j] = j < left ? po_widen(f{idx}[(i64)(col + j) * {own}.column]) : ({wide})0;"
                    )
                }
            };
        }
        call.push("result".to_string());
        text.push_str(&codegen::function(program, "epilogue_program"));
        let _ = write!(
            text,
            "#define EPILOGUE_PARAMS {parameters}\n#define EPILOGUE_ARGS {arguments}\n\
             PL_INLINE void epilogue(float (&v)[{lanes}], const EpilogueArgs& a, int y0, int y1, int y2, int y3, int col, int left{parameters}) {{\n\
             {body}#pragma unroll\n  for (int j = 0; j < {lanes}; j++) {{\n    {} result;\n    epilogue_program({});\n    v[j] = to_f32(result);\n  }}\n}}\n",
            codegen::c_type(made),
            call.join(", ")
        );
        Ok(EpilogueCode { text, addresses, args })
    }

    /// The arguments of a kernel over an image and weights: both, the output, its structure, and what the program reads.
    pub fn weighted(&self, numbers: &impl Field) -> Vec<Arg> {
        let mut args = vec![
            Arg::Address(Slot::Input(0), 0),
            Arg::Address(Slot::Input(1), 0),
            Arg::Address(Slot::Output(0), 0),
            Arg::of(numbers),
        ];
        args.extend(self.addresses.iter().cloned());
        args
    }

    /// A kernel's code with this epilogue in front of it.
    pub fn code(
        &self,
        file: &'static str,
        text: &str,
        entry: &'static str,
        numbers: &impl Field,
    ) -> KernelCode {
        KernelCode::new(file, text, entry, numbers).before(&self.text)
    }
}

/// The stride of these axes as one coordinate, if they go on with one; 0 where there is nothing to go along.
fn run(dims: &[usize], strides: &[isize], axes: &[usize]) -> Option<isize> {
    let mut step: Option<(isize, isize)> = None;
    for &axis in axes.iter().rev().filter(|axis| dims[**axis] != 1) {
        let (dim, stride) = (dims[axis] as isize, strides[axis]);
        match &mut step {
            None => step = Some((stride, stride * dim)),
            Some((_, next)) if *next == stride => *next = stride * dim,
            Some(_) => return None,
        }
    }
    Some(step.map_or(0, |(first, _)| first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_become_one_coordinate_where_they_go_on() {
        assert_eq!(run(&[2, 3, 4], &[12, 4, 1], &[1, 2]), Some(1));
        assert_eq!(run(&[2, 3, 4], &[0, 0, 0], &[0, 1]), Some(0));
        assert_eq!(run(&[2, 3, 4], &[12, 0, 1], &[1, 2]), None);
        assert_eq!(run(&[2, 1, 4], &[4, 9, 1], &[0, 1, 2]), Some(1));
        assert_eq!(run(&[2], &[1], &[]), Some(0));
    }
}
