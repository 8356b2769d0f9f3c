//! What a file declares of the sizes between its nodes, and where its operators make others.
//!
//! Inference never takes declared sizes over: exporters write those of the run that they traced, or one name for sizes
//! that differ. Computed sizes win, and whoever builds the model is told where the file says otherwise.

use std::collections::HashSet;

use planish_ir::Graph;
use planish_tensor::{Dim, Shape};

use crate::types::value_type;

/// Values that a note names.
const MAX_NAMED: usize = 3;

/// The shapes that a file declares for values that nodes make, in the file's order.
#[derive(Clone, Debug, Default)]
pub struct DeclaredShapes {
    list: Vec<(String, Shape)>,
    /// Symbols of the inputs: only these stand for a size that is known from elsewhere.
    of_inputs: HashSet<String>,
}

impl DeclaredShapes {
    pub(crate) fn of(file: &planish_onnx::Graph<'_>, graph: &Graph) -> DeclaredShapes {
        let shape = |info: &planish_onnx::ValueInfo<'_>| {
            let ty = value_type(info.ty.as_ref()?, &mut |_| Dim::UNKNOWN).ok()?;
            Some((info.name.to_string(), ty.as_tensor()?.shape.clone()?))
        };
        let inputs = graph.inputs().iter().filter_map(|id| graph.value(*id).ty.as_tensor()?.shape.as_ref());
        let symbols = inputs.flat_map(Shape::iter).filter_map(|dim| dim.as_symbol().map(str::to_string));
        DeclaredShapes {
            list: file.outputs.iter().chain(&file.value_infos).filter_map(shape).collect(),
            of_inputs: symbols.collect(),
        }
    }

    /// A note about values that have other sizes than the file declares, if there are any: as far as the imported graph
    /// tells, and the optimized one of outputs (names between its nodes may have passed to other values), where
    /// symbols of inputs have the sizes that `lookup` gives.
    pub fn disagreement(
        &self,
        imported: &Graph,
        optimized: &Graph,
        lookup: &dyn Fn(&str) -> Option<i64>,
    ) -> Option<String> {
        let made = |name: &str| {
            let value = imported.value(imported.find(name)?);
            value.producer.map(|_| value)
        };
        let output = |name: &str| {
            let mut outputs = optimized.outputs().iter().map(|id| optimized.value(*id));
            outputs.find(|value| *value.name == *name)
        };
        let mut named = Vec::new();
        let mut n_more = 0;
        for (name, declared) in &self.list {
            let own = [made(name), output(name)].into_iter().flatten().find_map(|value| {
                value.ty.as_tensor()?.shape.as_ref().filter(|own| self.disagrees(declared, own, lookup))
            });
            match own {
                Some(own) if named.len() < MAX_NAMED => {
                    named.push(format!("`{name}` is declared {declared} and is {own}"));
                }
                Some(_) => n_more += 1,
                None => {}
            }
        }
        let more = if n_more > 0 { format!(", and {n_more} more") } else { String::new() };
        let list = named.join(", ");
        (!named.is_empty()).then(|| {
            format!("the file declares other sizes than the model computes, which count: {list}{more}")
        })
    }

    fn disagrees(&self, declared: &Shape, own: &Shape, lookup: &dyn Fn(&str) -> Option<i64>) -> bool {
        let is_other = |(declared, own): (&Dim, &Dim)| {
            let sized = |dim: &Dim| dim.substitute(&|name| lookup(name).map(Dim::from));
            let (declared, own) = (sized(declared), sized(own));
            let is_known = match declared.as_symbol() {
                Some(symbol) => self.of_inputs.contains(symbol),
                None => declared.as_const().is_some(),
            };
            // A size that only a run can tell may be any; where only the own one is a symbol, it may fit as well.
            let is_found = own.symbols().iter().all(|name| !name.contains('\'')) && !own.is_unknown();
            let may_fit = declared.as_const().is_some() && own.as_const().is_none();
            is_known && is_found && !may_fit && declared != own
        };
        declared.rank() != own.rank() || declared.iter().zip(own.iter()).any(is_other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(declared: &[(&str, &str)], sizes: &[(&str, i64)]) -> Option<String> {
        let graph: Graph = "graph \"g\" { input %x: f32[n,4] const %w: f32[1] = [1] %y: f32[2*n,4] = Concat(%x, %x) {axis=0}\n\
                            %i: i64[2,\"nonzero'0\"] = NonZero(%y) output %y, %i }"
            .parse()
            .unwrap();
        let list = declared.iter().map(|(name, shape)| (name.to_string(), shape.parse().unwrap()));
        let declared = DeclaredShapes { list: list.collect(), of_inputs: HashSet::from(["n".to_string()]) };
        let lookup = |name: &str| sizes.iter().find(|(known, _)| *known == name).map(|(_, size)| *size);
        declared.disagreement(&graph, &graph, &lookup)
    }

    #[test]
    fn what_the_file_declares_otherwise_is_said_once() {
        let said = "the file declares other sizes than the model computes, which count: ";
        let expected = format!("{said}`y` is declared [n,4] and is [2*n,4]");
        assert_eq!(note(&[("y", "[n,4]")], &[]), Some(expected));
        assert!(note(&[("y", "[n,8]")], &[]).is_some());
        assert!(note(&[("y", "[8]")], &[]).is_some());
        assert!(note(&[("y", "[2,4]")], &[("n", 2)]).is_some());
        let list = [("y", "[n,4]"); 5];
        assert!(note(&list, &[]).unwrap().ends_with(", and 2 more"));
    }

    #[test]
    fn what_may_hold_is_not_said() {
        for declared in ["[2*n,4]", "[m,4]", "[m,k]", "[unknown(),4]", "[6,4]"] {
            assert_eq!(note(&[("y", declared)], &[]), None, "{declared}");
        }
        assert_eq!(note(&[("y", "[4,4]")], &[("n", 2)]), None);
        // Only a run tells how many there are; constants are what they are.
        assert_eq!(note(&[("i", "[2,n]"), ("gone", "[1]"), ("w", "[3]")], &[]), None);
    }
}
