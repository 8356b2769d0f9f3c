//! `planish debug reduce`: the smallest part of a model on which a command still fails.
//!
//! First the shortest beginning of the model that fails, by bisection; of that what its end needs; then the shortest end of
//! the rest, by bisection again; then single nodes and groups of them are left out until none can be (Zeller's ddmin).
//! Nothing is assumed: every part that is gone on with has failed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};
use planish::graph::interpret_with;
use planish::io::Sources;
use planish::onnx::{self, Types};
use planish::{Model, Tensor, Value, shapes};
use serde_json::json;

use super::asking::{self, Code};
use super::shrink::{Fails, bisect, leave_out};
use crate::args::{Asking, DebugReduce};
use crate::ending::Answer;
use crate::files::{self, Kind};
use crate::scratch::Scratch;
use crate::{load, print, progress, say_note};

pub(super) fn command(args: &DebugReduce, out: &mut dyn Write) -> Result<Answer> {
    if load::is_plan(&args.model) {
        bail!("{} is a plan; parts are taken of models", args.model.display());
    }
    let path = args.output.clone().unwrap_or_else(|| args.model.with_extension("reduced.onnx"));
    files::check_target(&path, Kind::Onnx, &[&args.model])?;
    let begun = Instant::now();
    let file = onnx::File::open(&args.model)?;
    let model = file.model()?;
    let mut types = file.types();
    let mut frozen = HashMap::new();
    if !args.open_sizes && types.unsupported().is_empty() {
        (types, frozen) = settle(args, types)?;
    }
    let n_nodes = model.graph.nodes.len();
    let scratch = Scratch::new("reduce")?;
    let code = asking::ask(&args.asking, &args.model)?;
    if code == 0 {
        bail!("the command does not fail on the whole model: there is nothing to find");
    }
    let mut search = Search {
        model: &model,
        types: &types,
        frozen: &frozen,
        asking: &args.asking,
        code,
        candidate: scratch.path().join("part.onnx"),
        seen: HashMap::new(),
        n_checks: 1,
        max_checks: args.max_checks,
        smallest: (0..n_nodes).collect(),
        bar: progress::bar(),
    };
    let all: Vec<usize> = (0..n_nodes).collect();
    let is_whole = !search.fails(&all)?;
    if is_whole {
        progress::clear();
        bail!(
            "the model fails by {}, the same model written by us with sizes settled does not; try --open-sizes or \
             --shapes",
            asking::code_text(code)
        );
    }
    let makers = Ancestors::new(&model.graph);
    let nodes = minimize(all, &makers, &mut |nodes| search.fails(nodes));
    progress::clear();
    let nodes = match nodes {
        Ok(nodes) => nodes,
        // What was found so far is a result, too.
        Err(error) if search.n_checks >= search.max_checks => {
            say_note(&format!("{error:#}"));
            search.smallest.clone()
        }
        Err(error) => return Err(error),
    };
    let part = search.part(&nodes)?;
    onnx::save(&part, &path)?;
    let ops: Vec<&str> = part.graph.nodes.iter().map(|node| node.op_type.as_ref()).collect();
    let (n, n_checks, seconds) = (nodes.len(), search.n_checks, begun.elapsed().as_secs_f64());
    if !args.json.replaces_tables() {
        writeln!(out, "part    {} ({n} of {n_nodes} nodes: {})", path.display(), few(&ops))?;
        writeln!(
            out,
            "fails   by {}, after {n_checks} checks in {}",
            asking::code_text(code),
            print::seconds(seconds)
        )?;
    }
    let names: Vec<&str> = part.graph.nodes.iter().map(|node| node.name.as_ref()).collect();
    let report = json!({
        "model": path, "nodes_before": n_nodes, "nodes": n, "operators": ops, "names": names, "exit_code": code,
        "checks": n_checks, "seconds": seconds,
    });
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}

/// The first of many.
fn few(names: &[&str]) -> String {
    const MOST: usize = 8;
    let more = if names.len() > MOST { format!(" and {} more", names.len() - MOST) } else { String::new() };
    format!("{}{more}", names[..names.len().min(MOST)].join(", "))
}

/// Models of more work than this are not run over the reference to learn their integers: that would take minutes.
const MOST_FLOPS: u64 = 5_000_000_000;

/// Integers of more elements than this become inputs, as floats do.
const MOST_FROZEN: usize = 1 << 16;

/// Types at settled sizes, and the values of integers: as inputs of a part they would be random, and indices and shapes
/// that are random make other failures.
fn settle(args: &DebugReduce, types: Types) -> Result<(Types, HashMap<String, Tensor>)> {
    let model = Model::open(&args.model)?;
    let (given, _) = shapes::bind_all(model.graph(), "--shapes", &args.shapes)?;
    let sizes = shapes::default_sizes(model.graph(), &given)?;
    let size = |symbol: &str| sizes.get(symbol).copied();
    let types = types.at(&size)?;
    if model.graph().work(&size).flops > MOST_FLOPS {
        say_note("the model is too large to run it over the reference; integers between nodes become inputs");
        return Ok((types, HashMap::new()));
    }
    let defaults: Vec<(String, i64)> = sizes.clone().into_iter().collect();
    let sources =
        Sources { random: Some(0), shapes: &args.shapes, defaults: &defaults, ..Sources::default() };
    let inputs = sources.gather(model.graph())?;
    let graph = model.graph();
    let mut frozen = HashMap::new();
    let mut observe = |node: &planish::graph::Node, outputs: &[Option<&Value>]| {
        for (id, value) in node.outputs.iter().zip(outputs) {
            if let (Some(id), Some(Value::Tensor(tensor))) = (id, value)
                && !tensor.dtype().is_float()
                && tensor.len() <= MOST_FROZEN
                // Bodies number their values on their own.
                && graph.find(&graph.value(*id).name) == Some(*id)
                && graph.value(*id).producer.is_some_and(|producer| std::ptr::eq(graph.node(producer), node))
            {
                frozen.insert(graph.value(*id).name.to_string(), (*tensor).clone());
            }
        }
    };
    let limits = planish::Limits::default();
    // A model that the reference cannot run is reduced without.
    if let Err(error) = interpret_with(graph, inputs.values(), &limits, &mut observe) {
        say_note(&format!("integers between nodes become inputs, since the model does not run: {error}"));
        frozen.clear();
    }
    Ok((types, frozen))
}

/// Parts of a model, and whether the command fails on them.
struct Search<'m> {
    model: &'m onnx::Model<'m>,
    types: &'m Types,
    frozen: &'m HashMap<String, Tensor>,
    asking: &'m Asking,
    code: Code,
    candidate: PathBuf,
    seen: HashMap<Vec<usize>, bool>,
    n_checks: usize,
    max_checks: usize,
    smallest: Vec<usize>,
    bar: Option<planish::Progress>,
}

impl<'m> Search<'m> {
    fn part(&self, nodes: &[usize]) -> Result<onnx::Model<'m>> {
        let nodes: BTreeSet<usize> = nodes.iter().copied().collect();
        Ok(onnx::keep_nodes(self.model, self.types, &nodes, self.frozen)?)
    }

    /// Whether it fails as the whole model does. What cannot be written as a model does not.
    fn fails(&mut self, nodes: &[usize]) -> Result<bool> {
        if nodes.is_empty() {
            return Ok(false);
        }
        if let Some(&known) = self.seen.get(nodes) {
            return Ok(known);
        }
        let Ok(part) = self.part(nodes) else { return Ok(false) };
        if part.graph.outputs.is_empty() || onnx::save(&part, &self.candidate).is_err() {
            return Ok(false);
        }
        if self.n_checks >= self.max_checks {
            bail!(
                "{} checks are over, and the part may not be the smallest; --max-checks allows more",
                self.n_checks
            );
        }
        self.n_checks += 1;
        if let Some(bar) = &self.bar {
            bar(&format!("reduce to {} nodes", self.smallest.len()), self.n_checks, 0);
        }
        let fails = asking::ask(self.asking, Path::new(&self.candidate))? == self.code;
        if fails && nodes.len() < self.smallest.len() {
            self.smallest = nodes.to_vec();
        }
        self.seen.insert(nodes.to_vec(), fails);
        Ok(fails)
    }
}

/// Who needs whom among the nodes.
struct Ancestors {
    /// The nodes whose values each reads.
    reads: Vec<Vec<usize>>,
}

impl Ancestors {
    fn new(graph: &onnx::Graph<'_>) -> Ancestors {
        let mut makers: HashMap<&str, usize> = HashMap::new();
        for (idx, node) in graph.nodes.iter().enumerate() {
            makers.extend(node.outputs.iter().map(|output| (output.as_ref(), idx)));
        }
        let of = |node| onnx::reads(node).into_iter().filter_map(|name| makers.get(name).copied()).collect();
        Ancestors { reads: graph.nodes.iter().map(of).collect() }
    }

    /// The nodes among `nodes` that the last of them needs, itself included.
    fn of_last(&self, nodes: &[usize]) -> Vec<usize> {
        let among: HashSet<usize> = nodes.iter().copied().collect();
        let mut needed = BTreeSet::new();
        let mut open: Vec<usize> = nodes.last().copied().into_iter().collect();
        while let Some(idx) = open.pop() {
            if among.contains(&idx) && needed.insert(idx) {
                open.extend(&self.reads[idx]);
            }
        }
        needed.into_iter().collect()
    }
}

/// The smallest list that fails, of one that does.
fn minimize(all: Vec<usize>, makers: &Ancestors, fails: Fails<'_>) -> Result<Vec<usize>> {
    let mut nodes = all;
    loop {
        let before = nodes.len();
        let n = bisect(nodes.len(), &mut |n| fails(&nodes[..n]))?;
        nodes.truncate(n);
        let needed = makers.of_last(&nodes);
        if needed.len() < nodes.len() && fails(&needed)? {
            nodes = needed;
        }
        let n = bisect(nodes.len(), &mut |n| fails(&nodes[nodes.len() - n..]))?;
        nodes.drain(..nodes.len() - n);
        if nodes.len() == before {
            break;
        }
    }
    leave_out(nodes, fails)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(n: usize) -> Ancestors {
        Ancestors { reads: (0..n).map(|idx| idx.checked_sub(1).into_iter().collect()).collect() }
    }

    /// Parts fail that hold all of these.
    fn found(n: usize, guilty: &[usize]) -> (Vec<usize>, usize) {
        let mut n_asked = 0;
        let nodes = minimize((0..n).collect(), &chain(n), &mut |nodes| {
            n_asked += 1;
            Ok(guilty.iter().all(|idx| nodes.contains(idx)))
        });
        (nodes.unwrap(), n_asked)
    }

    #[test]
    fn what_fails_is_found_in_few_steps() {
        for guilty in [&[0][..], &[399], &[137], &[5, 6], &[10, 300], &[1, 200, 398]] {
            let (nodes, n_asked) = found(400, guilty);
            assert_eq!(nodes, guilty);
            assert!(n_asked < 150, "{n_asked} for {guilty:?}");
        }
        assert!(found(400, &[137]).1 <= 25);
        assert_eq!(found(1, &[0]).0, [0]);
    }

    #[test]
    fn failures_that_come_and_go_end() {
        // Only even numbers of nodes fail, which no bisection expects.
        let nodes = minimize((0..64).collect(), &chain(64), &mut |nodes| {
            Ok(nodes.len() % 2 == 0 && !nodes.is_empty())
        });
        assert_eq!(nodes.unwrap().len() % 2, 0);
    }

    #[test]
    fn only_what_the_last_node_needs_is_kept() {
        // 0 -> 1 -> 3, 2 on its own.
        let makers = Ancestors { reads: vec![vec![], vec![0], vec![], vec![1]] };
        assert_eq!(makers.of_last(&[0, 1, 2, 3]), [0, 1, 3]);
        assert_eq!(makers.of_last(&[1, 2, 3]), [1, 3]);
    }
}
