//! A lower precision is kept only where it is measured to be faster: which layers stay wide though integers were asked
//! for, or brought by the model.
//!
//! The graph is priced twice, once with its integers and once without. What a layer's steps cost in either, and what it
//! costs to go from one to the other between two layers, is a labelling of the layers with the least sum, which is a
//! minimum cut (`cut`). The mix that it gives is priced itself. Where prices put integers or the mix ahead of the wide graph,
//! plans run in turns (`race`), and the fastest one stays: integers against the mix if there is one, and the wide plan
//! with them unless it is clearly behind.
//!
//! A model that brings its integers means their rounding: its wide layers read the same rounded activations and multiply
//! floats that its weights stand for.

mod cut;
mod race;

use std::collections::{BTreeSet, HashMap};

use planish_ir::{Graph, Node};
use planish_kernel::Layout;
use planish_passes::name_matches;

use crate::backends::Backends;
use crate::build::{Optimized, optimize, save_new_times};
use crate::choose::select::{makers, step_prices};
use crate::choose::{Chosen, at_tuned_sizes};
use crate::diagnose::pins::label;
use crate::diagnose::{is_layer, low_layers};
use crate::error::BuildError;
use crate::integers::{integer_layers, wide_layers};
use crate::lower::candidates::Catalog;
use crate::lower::cover::Joined;
use crate::lower::lower;
use crate::options::{BuildOptions, Precision};
use crate::price::cache::TimingCache;
use crate::price::{Wanted, price};
use crate::sizes::Sizes;
use cut::{Cut, Label};

/// A mix must be cheaper than integers everywhere by this share: less is noise, and integers take a quarter of the bytes.
const LEAST_GAIN: f64 = 0.01;

/// Where the prices of steps put integers this many times ahead of the wide graph, the plans need not be run. Steps are
/// priced alone, with their operands in cache: what they cost one after the other was off by a third on two models.
const CLEARLY_AHEAD: f64 = 2.0;
/// The same of a mix before integers everywhere, most of whose steps both have.
const MIX_CLEARLY_AHEAD: f64 = 1.5;

/// Integers must win a race by this share: what is closer cannot be told from noise, and floats are never slower than
/// themselves.
const LEAST_LEAD: f64 = 0.02;

/// What is built in place of what was asked for.
pub(crate) struct Settled {
    pub(crate) options: BuildOptions,
    pub(crate) optimized: Optimized,
    pub(crate) note: String,
}

/// Finds the layers that integers make no faster; `None` where all stay as they were asked for. `low` is the graph as it
/// was asked for.
pub(crate) fn settle(
    graph: &Graph,
    low: &Optimized,
    backends: Backends<'_>,
    options: &BuildOptions,
    timings: &mut TimingCache,
) -> Result<Option<Settled>, BuildError> {
    let is_pinned = |name: &String| options.int8_layers.iter().any(|pattern| name_matches(pattern, name));
    let layers = match low.brings_integers {
        true => integer_layers(&low.graph).into_iter().map(|(layer, _)| layer).collect(),
        false => low_layers(&low.graph, options.precision),
    };
    let (pinned, open): (Vec<String>, Vec<String>) = layers.into_iter().partition(is_pinned);
    // Without measuring nothing is known to be faster; a lock says what was.
    let is_measured = options.tune_level > 0 && options.tactics.is_none() && !options.obey_precision;
    if !has_choice(low, backends, options) || !is_measured || open.is_empty() {
        return Ok(None);
    }
    let wide_options = match low.brings_integers {
        true => BuildOptions { wide_layers: open.clone(), ..options.clone() },
        false => BuildOptions {
            precision: wide_layers(backends),
            dynamic: None,
            equalize: false,
            int8_layers: Vec::new(),
            ..options.clone()
        },
    };
    // On a CPU floats of 8 bits are for trying out what they cost: there nothing is to be won.
    let (asked, low_name) = match options.precision {
        _ if low.brings_integers => ("the model's integers", "integers"),
        Precision::Fp8 => ("--precision fp8", "fp8"),
        _ => ("--precision int8", "integers"),
    };
    let wide = optimize(graph, backends, &wide_options)?;
    let in_integers = Account::of(&low.graph, backends, options, timings)?;
    let in_floats = Account::of(&wide.graph, backends, &wide_options, timings)?;
    let out = Layers::new(&open, &pinned, [&in_integers, &in_floats]).not_worth(&in_floats, backends);
    let mut mixed = None;
    if !out.is_empty() && (out.len() < open.len() || !pinned.is_empty()) {
        let options = BuildOptions { wide_layers: out, ..options.clone() };
        let optimized = optimize(graph, backends, &options)?;
        let account = Account::of(&optimized.graph, backends, &options, timings)?;
        mixed =
            (account.ns() < in_integers.ns() * (1.0 - LEAST_GAIN)).then_some((options, optimized, account));
    }
    let mut best_ns = mixed.as_ref().map_or(in_integers.ns(), |(_, _, account)| account.ns());
    let name = wide_options.precision.name();
    let ms = |ns: f64| format!("{:.3} ms", ns / 1e6);
    let mut why = format!(
        "{} in {low_name}, {} in {name} by the times of their steps",
        ms(in_integers.ns()),
        ms(in_floats.ns())
    );
    // Where a layer must be of integers, the whole cannot be without.
    let mut is_wide = pinned.is_empty() && in_floats.ns() < best_ns;
    let may_be_wide = pinned.is_empty() && !is_wide && in_floats.ns() < best_ns * CLEARLY_AHEAD;
    // A mix that is clearly ahead of integers everywhere need not run against them.
    let may_be_low =
        mixed.as_ref().is_some_and(|(_, _, mix)| in_integers.ns() < mix.ns() * MIX_CLEARLY_AHEAD);
    if !is_wide && (may_be_low || may_be_wide) {
        let mut runners = Vec::new();
        runners.extend((may_be_low || mixed.is_none()).then_some((low, options)));
        runners.extend(mixed.as_ref().map(|(options, optimized, _)| (optimized, options)));
        runners.extend(may_be_wide.then_some((&wide, &wide_options)));
        if let Some(times) = race::race(&runners, backends, timings)? {
            let (own, floats) = times.split_at(runners.len() - usize::from(may_be_wide));
            let shortest = own.iter().copied().fold(f64::INFINITY, f64::min);
            mixed = mixed.filter(|_| !may_be_low || own[0] > shortest);
            best_ns = shortest;
            why = format!("whole plans in turns take {} with {low_name} alone", ms(own[0]));
            if let Some(&floats) = floats.first() {
                is_wide = floats < shortest * (1.0 + LEAST_LEAD);
                why = format!(
                    "whole plans in turns take {} with {low_name}, {} in {name}",
                    ms(shortest),
                    ms(floats)
                );
            }
        }
    }
    if is_wide {
        let note = format!(
            "{asked}: the plan is in {name}, which is faster here ({why}); --obey-precision has {low_name} all \
             the same"
        );
        return Ok(Some(Settled { options: wide_options, optimized: wide, note }));
    }
    Ok(mixed.map(|(options, optimized, _)| {
        let note = format!(
            "{asked}: {} of {} layers are in {name}, for {low_name} make them no faster: {} together ({why}); \
             --obey-precision has {low_name} all the same",
            options.wide_layers.len(),
            open.len(),
            ms(best_ns)
        );
        Settled { options, optimized, note }
    }))
}

/// Whether layers may be of integers or not. Types that a model says are kept where that is asked for, and on a GPU, where wide
/// layers would round otherwise than the model.
fn has_choice(low: &Optimized, backends: Backends<'_>, options: &BuildOptions) -> bool {
    match low.brings_integers {
        true => {
            let in_f32 = matches!(options.precision, Precision::Fp32 | Precision::Int8);
            in_f32 && !options.strongly_typed && backends.all().len() == 1
        }
        false => match options.precision {
            Precision::Int8 => true,
            Precision::Fp8 => backends.all().len() > 1,
            _ => false,
        },
    }
}

/// A graph with its steps and what they cost.
struct Account {
    chosen: Chosen,
    sizes: Sizes,
    /// Of each step.
    prices: Vec<f64>,
    /// The layers of each step, as patterns of names see them.
    layers: Vec<Vec<String>>,
}

impl Account {
    fn of(
        graph: &Graph,
        backends: Backends<'_>,
        options: &BuildOptions,
        timings: &mut TimingCache,
    ) -> Result<Account, BuildError> {
        let sizes = Sizes::of(graph, options);
        sizes.check(graph)?;
        let catalog = Catalog::new(backends, &sizes, options);
        let n_known = timings.len();
        let priced = lower(graph, &catalog, &|_| true)
            .and_then(|lowered| price(lowered, Wanted::All, &catalog, timings));
        save_new_times(n_known, timings, options)?;
        let chosen = at_tuned_sizes(priced?, &catalog);
        let prices = step_prices(&chosen.draft, &chosen.choices, &chosen.picks, backends, &sizes);
        let nodes: Vec<&Node> = graph.nodes().map(|(_, node)| node).collect();
        let layers = chosen.draft.steps.iter().map(|step| {
            let covered = step.nodes.iter().map(|&node| nodes[node as usize]);
            covered.filter(|node| is_layer(&node.op)).map(|node| label(graph, node)).collect()
        });
        let layers = layers.collect();
        Ok(Account { chosen, sizes, prices, layers })
    }

    /// One run, by the prices of its steps.
    fn ns(&self) -> f64 {
        self.prices.iter().sum()
    }
}

/// Layers that are decided on together, since one step covers them in one of the graphs.
struct Layers {
    group_of: HashMap<String, usize>,
    /// The open layers of each group.
    open: Vec<Vec<String>>,
    /// What each group costs in integers and in floats.
    cut: Cut,
}

impl Layers {
    fn new(open: &[String], pinned: &[String], accounts: [&Account; 2]) -> Layers {
        let mut number: HashMap<&str, u32> = HashMap::new();
        for name in accounts.iter().flat_map(|account| account.layers.iter().flatten()) {
            let next = number.len() as u32;
            number.entry(name).or_insert(next);
        }
        let mut joined = Joined::new(number.len());
        for layers in accounts.iter().flat_map(|account| &account.layers) {
            joined.join(&layers.iter().map(|name| number[name.as_str()]).collect::<Vec<u32>>());
        }
        let group_of: HashMap<String, usize> =
            number.iter().map(|(name, &at)| (name.to_string(), joined.root(at as usize))).collect();
        let mut layers =
            Layers { open: vec![Vec::new(); group_of.len()], cut: Cut::new(group_of.len()), group_of };
        for name in open {
            if let Some(&group) = layers.group_of.get(name) {
                layers.open[group].push(name.clone());
            }
        }
        for (label, account) in [Label::Low, Label::Wide].into_iter().zip(accounts) {
            let owners = layers.owners(account);
            for (owners, ns) in owners.iter().zip(&account.prices) {
                if let Some(&last) = owners.last() {
                    layers.cut.add_cost(last, label, *ns);
                }
            }
        }
        // What is not open is as it is.
        let Layers { open, cut, group_of } = &mut layers;
        let pinned: BTreeSet<usize> = pinned.iter().filter_map(|name| group_of.get(name).copied()).collect();
        for (group, open) in open.iter().enumerate() {
            match (pinned.contains(&group), open.is_empty()) {
                (true, _) => cut.fix(group, Label::Low),
                (false, true) => cut.fix(group, Label::Wide),
                (false, false) => {}
            }
        }
        layers
    }

    /// The groups that each step belongs to: those of its layers, or of the layers that made what it reads.
    fn owners(&self, account: &Account) -> Vec<BTreeSet<usize>> {
        let draft = &account.chosen.draft;
        let made_by = makers(draft);
        let mut owners: Vec<BTreeSet<usize>> = Vec::with_capacity(draft.steps.len());
        for (step, layers) in draft.steps.iter().zip(&account.layers) {
            let own: BTreeSet<usize> = layers.iter().map(|name| self.group_of[name]).collect();
            let read = step.inputs.iter().flatten().filter_map(|&value| owners.get(made_by[value]?.0));
            owners.push(if own.is_empty() { read.flatten().copied().collect() } else { own });
        }
        owners
    }

    /// The open layers that had better stay wide. Between a wide layer and one of integers values are rounded, a pass over
    /// them; from integers to floats only where others read the integers.
    fn not_worth(mut self, in_floats: &Account, backends: Backends<'_>) -> Vec<String> {
        let draft = &in_floats.chosen.draft;
        let (made_by, owners) = (makers(draft), self.owners(in_floats));
        let mut n_readers = vec![0; draft.values.len()];
        draft
            .steps
            .iter()
            .flat_map(|step| step.inputs.iter().flatten())
            .for_each(|&value| n_readers[value] += 1);
        for (idx, step) in draft.steps.iter().enumerate() {
            for &value in step.inputs.iter().flatten() {
                let Some((maker, _)) = made_by[value] else { continue };
                let bytes = in_floats.sizes.operand(&draft.values[value].ty, Layout::Plain);
                let ns = backends.get(step.target).prices().reorder(bytes.map_or(0, |o| o.span_bytes()));
                let back = if n_readers[value] > 1 { ns } else { 0.0 };
                for &from in &owners[maker] {
                    for &to in owners[idx].iter().filter(|&&to| to != from) {
                        self.cut.add_border(from, to, [back, ns]);
                    }
                }
            }
        }
        let labels = self.cut.cheapest();
        let wide = self.open.into_iter().zip(labels).filter(|(_, label)| *label == Label::Wide);
        wide.flat_map(|(layers, _)| layers).collect()
    }
}
