//! The text form of graphs: printed for people and tests, and parsed back to the same graph.
//!
//! ```text
//! graph "resnet" {
//!   input %x: f32[batch,3,224,224]
//!   const %k: i64[1] = [5]
//!   const %w: f32[64,3,7,7] = #0 /* 37632 bytes */
//!   %y: f32[batch,64,112,112] = Conv(%x, %w, _) {pads=[3,3,3,3], strides=[2,2]} "conv1"
//!   %top: f32[batch,5], _ = TopK(%z, %k) {axis=1}
//!   %r: f32[n] = If(%c; %y, %z) [
//!     graph "then" { … },
//!     graph "else" { … }
//!   ]
//!   output %r, %top
//! }
//! ```
//!
//! The grammar, with spaces, line ends, `// …` and `/* … */` free between tokens:
//!
//! ```text
//! graph     = "graph" string "{" statement* "output" [value ("," value)*] "}"
//! statement = "input" value ":" type
//!           | "const" value ":" type "=" data
//!           | results "=" op "(" operands [";" operands] ")" [attributes] [string] ["[" graph ("," graph)* "]"]
//! results   = "(" ")" | result ("," result)*              result  = "_" | value ":" type
//! operands  = [operand ("," operand)*]                     operand = "_" | value
//! op        = word | "custom" string string integer        the latter: domain, name, version
//! attributes = "{" [key [":" kind] "=" attribute ("," …)*] "}"      the kind is given for `custom` only
//! value     = "%" (bare | string)     bare = [A-Za-z0-9_./:-]+ that does not end in ":"
//! type      = dtype shape | dtype "[*]" | "seq(" type ")" | "optional(" type ")"
//! data      = element | "[" [element ("," element)*] "]" | "#" number | "hex" string
//! string    = '"' (character | '\"' | '\\' | '\n' | '\u{hex}')* '"'
//! ```
//!
//! The `_` is an absent operand or a result that nobody wants; operands after `;` are captured by the bodies,
//! which list them as their last inputs. Floating-point elements are decimal where that gives back the same
//! bits and `0x…` bits where it does not (a NaN with a payload). Elements of large constants stand beside the
//! text (`#0` is the first of [`Printed::constants`]) or, self-contained, in hexadecimal, little-endian.
//!
//! What inference knows of a value's elements is not printed: the parser infers again, with the printed types
//! as the final word.

mod cursor;
mod data;
mod element;
mod error;
mod parse;
mod print;
#[cfg(test)]
mod tests;

pub use error::{ParseError, ParseErrorKind};
pub use parse::parse;
pub use print::Printed;
