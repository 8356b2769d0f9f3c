//! What kernels do with each of their results before it is stored: a program over the running value and further
//! operands, as a function that the kernel's text calls.
//!
//! A kernel knows its output by four coordinates of a row and a column; which axes of the output these are, the
//! family says. Further operands have a stride for each.

use std::fmt::Write;

use planish_kernel::pointwise::Program;
use planish_kernel::{KernelError, Operand, Problem};

use crate::codegen;
use crate::families::pointwise::operand;
use crate::map::Place;
use crate::operands::refuse;
use crate::space;
use crate::steps::{Arg, Code, Slot};

/// A program after a kernel's results.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    text: String,
    /// Arguments after the kernel's own.
    pub(crate) args: Vec<Arg>,
    /// Integers after the kernel's own.
    pub(crate) ints: Vec<i32>,
}

impl Ending {
    /// The program after `main`, with `lanes` neighbours along the column at once. Its integers begin at `base`
    /// of the kernel's.
    pub(crate) fn after(
        problem: &Problem,
        main: u32,
        rows: [&[usize]; 4],
        cols: &[usize],
        lanes: usize,
        base: usize,
    ) -> Result<Ending, KernelError> {
        let program = Program::stored_epilogue(problem, main)?;
        let [output] = &*problem.outputs else {
            return refuse("a kernel with an ending has one output");
        };
        if output.dims != program.dims || program.output_types != [output.dtype] {
            return refuse("an ending of other sizes or types than the output");
        }
        Ending::of(problem, &program, rows, cols, lanes, base)
    }

    /// After a region's first node, which makes an image: rows are pixels (sample, depth, row, column), columns are
    /// channels.
    pub(crate) fn behind_image(problem: &Problem, lanes: usize, base: usize) -> Result<Ending, KernelError> {
        let rank = problem.outputs.first().map_or(0, Operand::rank);
        let spatial: Vec<[usize; 1]> = (2..rank).map(|axis| [axis]).collect();
        let mut rows: [&[usize]; 4] = [&[0], &[], &[], &[]];
        for (to, from) in rows[1..].iter_mut().rev().zip(spatial.iter().rev()) {
            *to = from;
        }
        Ending::after(problem, 0, rows, &[1], lanes, base)
    }

    fn of(
        problem: &Problem,
        program: &Program,
        rows: [&[usize]; 4],
        cols: &[usize],
        lanes: usize,
        base: usize,
    ) -> Result<Ending, KernelError> {
        let mut ending = Ending { text: String::new(), args: Vec::new(), ints: Vec::new() };
        let (mut parameters, mut arguments) = (String::new(), String::new());
        let mut body = String::new();
        let mut call = Vec::new();
        if codegen::has_running(program) {
            call.push("v[j]".to_string());
        }
        for (idx, input) in program.inputs.iter().enumerate() {
            let laid = operand(problem, program.dims.len(), input)?;
            let (storage, wide) = (laid.storage, codegen::c_type(input.kind));
            let name = match &laid.place {
                Place::Operand(slot, offset) => {
                    let _ = write!(parameters, ", const {storage}* e{idx}");
                    let _ = write!(arguments, ", e{idx}");
                    ending.args.push(Arg::Address(*slot, offset * laid.size));
                    format!("e{idx}")
                }
                Place::Constant(bytes) => {
                    ending.text.push_str(&codegen::constant_array(&format!("ec{idx}"), bytes)?);
                    format!("((const {storage}*)ec{idx})")
                }
            };
            let along = |axes: &[usize]| run(&program.dims, &laid.strides, axes);
            let at = base + ending.ints.len();
            for axes in rows.into_iter().chain([cols]) {
                match along(axes) {
                    Some(step) => ending.ints.push(space::stride(step)?),
                    None => return refuse("an operand that does not follow the rows of a kernel"),
                }
            }
            let row: Vec<String> = (0..4).map(|axis| format!("(i64)y{axis} * a.v[{}]", at + axis)).collect();
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
                        "  {wide} i{idx}[{lanes}];\n#pragma unroll\n  for (int j = 0; j < {lanes}; j++) i{idx}[j] = j < left ? po_widen(f{idx}[(i64)(col + j) * a.v[{}]]) : ({wide})0;",
                        at + 4
                    )
                }
            };
        }
        call.push("result".to_string());
        ending.text.push_str(&codegen::function(program, "ending_program"));
        let _ = write!(
            ending.text,
            "#define ENDING_PARAMS {parameters}\n#define ENDING_ARGS {arguments}\n\
             PL_INLINE void ending(float (&v)[{lanes}], const Ints& a, int y0, int y1, int y2, int y3, int col, int left{parameters}) {{\n\
             {body}#pragma unroll\n  for (int j = 0; j < {lanes}; j++) {{\n    float result;\n    ending_program({});\n    v[j] = result;\n  }}\n}}\n",
            call.join(", ")
        );
        Ok(ending)
    }

    /// The arguments of a kernel over an image and weights: both, the output, integers, and the ending's own.
    pub(crate) fn weighted(&self, ints: Vec<i32>) -> Vec<Arg> {
        let mut args = vec![
            Arg::Address(Slot::Input(0), 0),
            Arg::Address(Slot::Input(1), 0),
            Arg::Address(Slot::Output(0), 0),
            Arg::Ints(ints),
        ];
        args.extend(self.args.iter().cloned());
        args
    }

    /// A kernel's code with this ending in front of it.
    pub(crate) fn code(&self, file: &'static str, text: &str, entry: &'static str, n_ints: usize) -> Code {
        Code::new(file, text, entry, n_ints).before(&self.text)
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
