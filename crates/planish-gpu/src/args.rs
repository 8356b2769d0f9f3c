//! What kernels are given besides addresses: structures that are declared once, here in Rust.
//!
//! [`crate::kernel_args!`] makes of one declaration the structure with its named and typed fields, the text of the C++
//! structure that stands in front of the kernel, and the bytes of a launch. A field that is a `Vec` has as many
//! elements as the problem at hand asks for (one at least, which C++ wants), so a structure's text goes with its
//! value. Every text asserts the size and the offsets that the bytes are written by: code and arguments that do
//! not fit each other do not compile.

use std::fmt::Write;

/// A value that a kernel is given: a number, a structure of [`crate::kernel_args!`], or an array of such.
pub trait Field {
    /// Its type in C++; that of the elements of an array.
    fn c_type(&self) -> &'static str;

    /// The lengths of an array, outermost first.
    fn lens(&self) -> Vec<usize> {
        Vec::new()
    }

    fn align(&self) -> usize;

    /// Its bytes behind those before, which end at a multiple of its alignment.
    fn write(&self, bytes: &mut Vec<u8>);

    /// The structures that its type is made of, into a list that has each once.
    fn declare(&self, structures: &mut Structures) {
        let _ = structures;
    }
}

macro_rules! numbers {
    ($($type:ty: $c:literal),*) => {$(
        impl Field for $type {
            fn c_type(&self) -> &'static str {
                $c
            }

            fn align(&self) -> usize {
                align_of::<$type>()
            }

            fn write(&self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }
        }
    )*};
}

numbers!(i32: "i32", u32: "u32", i64: "i64", f32: "float", f64: "double");

impl<T: Field, const N: usize> Field for [T; N] {
    fn c_type(&self) -> &'static str {
        self[0].c_type()
    }

    fn lens(&self) -> Vec<usize> {
        let mut lens = vec![N];
        lens.extend(self[0].lens());
        lens
    }

    fn align(&self) -> usize {
        self[0].align()
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        self.iter().for_each(|element| element.write(bytes));
    }

    fn declare(&self, structures: &mut Structures) {
        self[0].declare(structures);
    }
}

/// Elements that are arrays themselves have the same length each.
impl<T: Field + Default> Field for Vec<T> {
    fn c_type(&self) -> &'static str {
        T::default().c_type()
    }

    fn lens(&self) -> Vec<usize> {
        let mut lens = vec![self.len().max(1)];
        lens.extend(self.first().map_or_else(|| T::default().lens(), T::lens));
        lens
    }

    fn align(&self) -> usize {
        T::default().align()
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        match self.is_empty() {
            true => T::default().write(bytes),
            false => self.iter().for_each(|element| element.write(bytes)),
        }
    }

    fn declare(&self, structures: &mut Structures) {
        match self.first() {
            Some(first) => first.declare(structures),
            None => T::default().declare(structures),
        }
    }
}

/// Fills up with zeros to a multiple of an alignment.
pub fn pad(bytes: &mut Vec<u8>, align: usize) {
    bytes.resize(bytes.len().next_multiple_of(align), 0);
}

/// The texts of structures, each once, and those that others hold before these.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Structures {
    names: Vec<&'static str>,
    text: String,
}

impl Structures {
    pub fn with(mut self, args: &impl Field) -> Structures {
        args.declare(&mut self);
        self
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    pub fn add(&mut self, structure: Structure) {
        let Structure { name, fields, checks, bytes } = structure;
        let size = bytes.len();
        let _ = write!(
            self.text,
            "struct {name} {{\n{fields}}};\nstatic_assert(sizeof({name}) == {size}{checks}, \"{name}\");\n"
        );
        self.names.push(name);
    }
}

/// The text of a structure whose arrays all have fixed lengths.
pub fn text_of<A: Field + Default>() -> String {
    Structures::default().with(&A::default()).text
}

/// A structure while it is written down, field by field.
#[derive(Clone, Debug)]
pub struct Structure {
    name: &'static str,
    fields: String,
    checks: String,
    bytes: Vec<u8>,
}

impl Structure {
    pub fn new(name: &'static str) -> Structure {
        Structure { name, fields: String::new(), checks: String::new(), bytes: Vec::new() }
    }

    pub fn field(&mut self, name: &str, value: &impl Field) {
        let lens: String = value.lens().iter().map(|len| format!("[{len}]")).collect();
        pad(&mut self.bytes, value.align());
        let _ = writeln!(self.fields, "  {} {name}{lens};", value.c_type());
        let _ = write!(self.checks, " && PL_OFFSET({}, {name}) == {}", self.name, self.bytes.len());
        value.write(&mut self.bytes);
    }

    /// What was written down so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// With the padding at its end.
    pub fn end(mut self, align: usize) -> Structure {
        pad(&mut self.bytes, align);
        self
    }
}

/// A structure's bytes, ready for a launch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArgBytes {
    pub bytes: Vec<u8>,
    pub align: usize,
}

impl ArgBytes {
    pub fn of(args: &impl Field) -> ArgBytes {
        let mut bytes = Vec::new();
        args.write(&mut bytes);
        ArgBytes { bytes, align: args.align() }
    }
}

/// Declares structures that kernels are given: in Rust as it stands here, in C++ under the same names.
#[macro_export]
macro_rules! kernel_args {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$about:meta])* $field_vis:vis $field:ident: $type:ty,)*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, PartialEq, Debug, Default)]
        $vis struct $name {
            $($(#[$about])* $field_vis $field: $type,)*
        }

        impl $crate::args::Field for $name {
            fn c_type(&self) -> &'static str {
                stringify!($name)
            }

            fn align(&self) -> usize {
                [$($crate::args::Field::align(&self.$field)),*].into_iter().max().unwrap_or(1)
            }

            fn write(&self, bytes: &mut Vec<u8>) {
                $(
                    $crate::args::pad(bytes, $crate::args::Field::align(&self.$field));
                    $crate::args::Field::write(&self.$field, bytes);
                )*
                $crate::args::pad(bytes, $crate::args::Field::align(self));
            }

            fn declare(&self, structures: &mut $crate::args::Structures) {
                if structures.has(stringify!($name)) {
                    return;
                }
                $($crate::args::Field::declare(&self.$field, structures);)*
                let mut structure = $crate::args::Structure::new(stringify!($name));
                $(structure.field(stringify!($field), &self.$field);)*
                structures.add(structure.end($crate::args::Field::align(self)));
            }
        }
    )*};
}

#[cfg(test)]
mod tests {
    use super::*;

    kernel_args! {
        struct Pair {
            small: i32,
            large: f64,
        }

        struct Mixed {
            count: u32,
            pairs: Vec<Pair>,
            table: Vec<Vec<i32>>,
            scale: f32,
            fixed: [i64; 2],
        }
    }

    #[test]
    fn text_and_bytes_are_laid_out_as_c_does() {
        let args = Mixed {
            count: 7,
            pairs: vec![Pair { small: 1, large: 0.5 }; 2],
            table: vec![vec![1, 2, 3], vec![4, 5, 6]],
            scale: 2.0,
            fixed: [8, 9],
        };
        let made = Structures::default().with(&args);
        let expected = "struct Pair {\n  i32 small;\n  double large;\n};\n\
            static_assert(sizeof(Pair) == 16 && PL_OFFSET(Pair, small) == 0 && \
            PL_OFFSET(Pair, large) == 8, \"Pair\");\n\
            struct Mixed {\n  u32 count;\n  Pair pairs[2];\n  i32 table[2][3];\n  float scale;\n  i64 fixed[2];\n};\n\
            static_assert(sizeof(Mixed) == 88 && PL_OFFSET(Mixed, count) == 0 && \
            PL_OFFSET(Mixed, pairs) == 8 && PL_OFFSET(Mixed, table) == 40 && \
            PL_OFFSET(Mixed, scale) == 64 && PL_OFFSET(Mixed, fixed) == 72, \"Mixed\");\n";
        assert_eq!(made.text(), expected);
        let ArgBytes { bytes, align } = ArgBytes::of(&args);
        assert_eq!((bytes.len(), align), (88, 8));
        assert_eq!(bytes[..4], 7u32.to_le_bytes());
        assert_eq!(bytes[32..40], 0.5f64.to_le_bytes());
        assert_eq!(bytes[60..64], 6i32.to_le_bytes());
        assert_eq!(bytes[80..], 9i64.to_le_bytes());
    }

    #[test]
    fn an_array_of_nothing_has_one_element() {
        let args = Mixed::default();
        let made = Structures::default().with(&args);
        assert!(made.text().contains("Pair pairs[1];\n  i32 table[1][1];"), "{}", made.text());
        assert_eq!(ArgBytes::of(&args).bytes, [0; 48]);
    }
}
