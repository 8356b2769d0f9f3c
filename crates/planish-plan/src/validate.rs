//! What must hold in a plan before anything is run by it, so that the runtime can trust every index.
//!
//! Checked when a plan is read and when it is written: indices are in range, storages form no circles and lie
//! inside what they are parts of, outputs have memory of their own, steps touch the memory of their own target
//! alone, no step writes into weights, inputs or values that the host keeps, every value is written once and read
//! only after, regions are wired forwards, bodies take what their steps give them. What depends on sizes is checked
//! here where they are numbers, and by the runtime where they are symbols.

use std::collections::HashSet;

use planish_kernel::{Layout, Numeric, Ref, Region};
use planish_op::{Op, TensorType, ValueType};
use planish_tensor::{DType, Dim, element_count};

use crate::error::{PlanError, PlanErrorKind, Result, shorten};
use crate::recipe::Recipe;
use crate::record::{Control, Header, Plan, Profile, Program, Role, Step, StepKind, Storage, Value, Weight};
use crate::stripped::Stripped;

/// Views of views go no deeper: a run of operators that each write over their input is one view more each,
/// and the runtime walks them for every shape.
const MAX_PARTS: usize = 4096;

/// A node of the table makes as many outputs as are asked for (Split); real ones make a handful.
const MAX_NODE_OUTPUTS: u32 = 1 << 16;

/// Number types that kernels compute in; what operands are stored in stands in these.
const NUMERICS: [Numeric; 6] =
    [Numeric::F32, Numeric::TF32, Numeric::F16, Numeric::BF16, Numeric::I8, Numeric::F8];

/// The most threads that a plan may be for: every context has workspace for each of them.
pub const MAX_PLAN_THREADS: u32 = 4096;

impl Plan {
    /// Whether indices, types and orders fit each other. Reading and writing ask for it too.
    pub fn validate(&self) -> Result<()> {
        validate_recipe(&self.header, &self.weights, self.stripped.as_ref(), &self.constants)?;
        validate_roles(&self.roles, self.header.targets.len()).map_err(wrong)?;
        if let Some(code) = self.code.iter().find(|code| code.key.is_empty() || code.bytes.is_empty()) {
            return Err(wrong(format!("code `{}` has no key or no bytes", shorten(&code.key))));
        }
        if let Some(pair) = self.code.windows(2).find(|pair| pair[0].key >= pair[1].key) {
            return Err(wrong(format!("code `{}` stands twice or out of order", shorten(&pair[1].key))));
        }
        if self.header.threads > MAX_PLAN_THREADS {
            return Err(wrong(format!(
                "for {} threads, at most {MAX_PLAN_THREADS} can be",
                self.header.threads
            )));
        }
        let n_steps = program(self, &self.program).map_err(wrong)?;
        let mut names = HashSet::new();
        for idx in &self.program.inputs {
            let name = &self.program.values[*idx as usize].name;
            if !names.insert(name.as_str()) {
                return Err(wrong(format!("two inputs are called `{}`", shorten(name))));
            }
        }
        for evidence in &self.evidence {
            if evidence.step as usize >= n_steps {
                return Err(wrong(format!("evidence for step {} of {n_steps}", evidence.step)));
            }
        }
        Ok(())
    }
}

impl Recipe {
    /// What of [`Plan::validate`] does not need the program.
    pub fn validate(&self) -> Result<()> {
        validate_recipe(&self.header, &self.weights, self.stripped.as_ref(), &self.constants)
    }
}

fn validate_recipe(
    header: &Header,
    weights: &[Weight],
    stripped: Option<&Stripped>,
    constants: &[u32],
) -> Result<()> {
    if let Some(pair) = header.metadata.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
        return Err(wrong(format!("metadata `{}` stands twice or out of order", shorten(&pair[1].0))));
    }
    let is_whole = |stripped: &Stripped| {
        stripped.lengths.len() == weights.len() && weights.iter().all(|weight| weight.bytes.is_empty())
    };
    if !stripped.is_none_or(is_whole) {
        return Err(wrong("weights were left out, and are there"));
    }
    for (idx, profile) in header.profiles.iter().enumerate() {
        validate_profile(profile).map_err(|what| wrong(format!("profile {idx}: {what}")))?;
    }
    for (symbol, size) in &header.tuned_at {
        if *size < 0 {
            return Err(wrong(format!("tuned at {size} for `{}`", shorten(symbol))));
        }
    }
    for (idx, weight) in weights.iter().enumerate() {
        let len = match stripped {
            Some(stripped) => stripped.lengths[idx],
            None => weight.bytes.len() as u64,
        };
        validate_weight(weight, len, header.targets.len())
            .map_err(|what| wrong(format!("weight {idx} (`{}`): {what}", shorten(&weight.name))))?;
    }
    for (number, weight) in constants.iter().enumerate() {
        if *weight as usize >= weights.len() {
            return Err(wrong(format!("constant #{number} is weight {weight} of {}", weights.len())));
        }
    }
    Ok(())
}

fn wrong(what: impl Into<String>) -> PlanError {
    PlanError::new(PlanErrorKind::Inconsistent, what)
}

/// What is wrong, without where: the callers know that.
type Checked<T = ()> = std::result::Result<T, String>;

fn validate_profile(profile: &Profile) -> Checked {
    let mut symbols = HashSet::new();
    for range in &profile.ranges {
        let symbol = shorten(&range.symbol);
        if range.min < 0 || range.min > range.opt || range.opt > range.max {
            return Err(format!("`{symbol}` has no range in {} ≤ {} ≤ {}", range.min, range.opt, range.max));
        }
        if !symbols.insert(range.symbol.as_str()) {
            return Err(format!("`{symbol}` has two ranges"));
        }
    }
    Ok(())
}

fn validate_roles(roles: &[Role], n_targets: usize) -> Checked {
    let n_of = |role: Role| roles.iter().filter(|known| **known == role).count();
    let (n_hosts, n_devices) = (n_of(Role::Host), n_of(Role::Device));
    if roles.len() != n_targets {
        return Err(format!("{n_targets} targets have {} roles", roles.len()));
    }
    if n_hosts != 1 || n_devices > 1 {
        return Err(format!(
            "{n_hosts} targets are hosts and {n_devices} devices; a plan has one host and at most one device"
        ));
    }
    Ok(())
}

fn validate_weight(weight: &Weight, len: u64, n_targets: usize) -> Checked {
    match (&weight.format, weight.packed_by) {
        (None, None) => {}
        (Some(_), Some(target)) if (target as usize) < n_targets && weight.layout == Layout::Plain => {}
        (format, target) => {
            let layout = weight.layout.name();
            return Err(format!("{layout} in format {format:?} of target {target:?}, there are {n_targets}"));
        }
    }
    let stored = weight.narrowed.unwrap_or(weight.dtype);
    if weight.narrowed.is_some() && !weight.may_be_narrowed(len) {
        return Err(format!("{} cannot be stored as {stored}", weight.dtype));
    }
    match stored.bytes_of(&weight.dims).filter(|_| weight.dtype.bytes_of(&weight.dims).is_some()) {
        None => Err(format!("{}{:?} does not fit into memory", weight.dtype, weight.dims)),
        Some(n) if weight.format.is_none() && n as u64 != len => {
            Err(format!("{}{:?} needs {n} bytes, it has {len}", weight.dtype, weight.dims))
        }
        Some(_) => Ok(()),
    }
}

/// Checks a program with its bodies; gives the number of steps in all of them.
fn program(plan: &Plan, program: &Program) -> Checked<usize> {
    let roots = roots(plan, program)?;
    let n_values = program.values.len();
    let mut is_input = vec![false; n_values];
    for &idx in &program.inputs {
        let value = value(program, idx)?;
        if value.storage != Storage::Input || std::mem::replace(&mut is_input[idx as usize], true) {
            return Err(format!("input `{}` is not a value of the caller's, once", shorten(&value.name)));
        }
    }
    for (value, listed) in program.values.iter().zip(&is_input) {
        if value.storage == Storage::Input && !listed {
            return Err(format!("nobody gives `{}`, which is not an input", shorten(&value.name)));
        }
    }
    // By roots: a value is there once something was written into its memory.
    let mut filled: Vec<bool> = program
        .values
        .iter()
        .map(|value| matches!(value.storage, Storage::Input | Storage::Weight(_)))
        .collect();
    let mut written = vec![false; n_values];
    // Roots that hold what a step on the host made: a tensor that may be shared with anything, so it is only read.
    let mut kept_by_host = vec![false; n_values];
    let mut n_steps = program.steps.len();
    for (idx, step) in program.steps.iter().enumerate() {
        let inside = |what| format!("step {idx} (`{}`): {what}", shorten(&step.name));
        validate_step(plan, program, step).map_err(inside)?;
        for &input in step.inputs.iter().flatten() {
            if !filled[roots[input as usize]] {
                let name = shorten(&program.values[input as usize].name);
                return Err(inside(format!("it reads `{name}`, which nothing has written yet")));
            }
        }
        for &output in step.outputs.iter().flatten() {
            let root = roots[output as usize];
            let name = || shorten(&program.values[output as usize].name);
            if matches!(program.values[root].storage, Storage::Input | Storage::Weight(_)) {
                return Err(inside(format!("it writes `{}` over an input or a weight", name())));
            }
            if std::mem::replace(&mut written[output as usize], true) {
                return Err(inside(format!("it writes `{}`, which was written before", name())));
            }
            if std::mem::replace(&mut kept_by_host[root], is_host_step(step)) && !is_host_step(step) {
                return Err(inside(format!("it writes `{}` over what a step on the host made", name())));
            }
            filled[root] = true;
        }
        if let StepKind::Control(control) = &step.kind {
            for (body_idx, body) in control.bodies.iter().enumerate() {
                let at = |what| inside(format!("body {body_idx}: {what}"));
                n_steps = n_steps.saturating_add(self::program(plan, body).map_err(at)?);
            }
        }
    }
    for &output in &program.outputs {
        let value = value(program, output)?;
        if !matches!(value.storage, Storage::Arena | Storage::Own) {
            return Err(format!("the output `{}` has no memory of its own", shorten(&value.name)));
        }
        if !filled[roots[output as usize]] {
            return Err(format!("nothing writes the output `{}`", shorten(&value.name)));
        }
    }
    Ok(n_steps)
}

/// Whether a step works on values that the host keeps.
fn is_host_step(step: &Step) -> bool {
    matches!(step.kind, StepKind::Evaluate | StepKind::Control(_))
}

fn value(program: &Program, idx: u32) -> Checked<&Value> {
    program
        .values
        .get(idx as usize)
        .ok_or_else(|| format!("value {idx} is named, there are {}", program.values.len()))
}

/// For each value the one whose memory it is in, itself where it has its own.
fn roots(plan: &Plan, program: &Program) -> Checked<Vec<usize>> {
    #[derive(Clone, Copy)]
    enum Found {
        Open,
        OnTheWay,
        Root { root: usize, n_parts: usize },
    }
    let mut found = vec![Found::Open; program.values.len()];
    for start in 0..program.values.len() {
        let mut way = Vec::new();
        let mut at = start;
        let (root, mut n_parts) = loop {
            match found[at] {
                Found::Open => {}
                Found::OnTheWay => {
                    return Err(format!("`{}` is a part of itself", shorten(&program.values[at].name)));
                }
                Found::Root { root, n_parts } => break (root, n_parts + 1),
            }
            found[at] = Found::OnTheWay;
            way.push(at);
            match validate_storage(plan, program, &program.values[at])? {
                Some(of) => at = of as usize,
                None => break (at, 0),
            }
        };
        for idx in way.into_iter().rev() {
            if n_parts > MAX_PARTS {
                let name = shorten(&program.values[idx].name);
                return Err(format!("`{name}` is a part of a part, more than {MAX_PARTS} times"));
            }
            found[idx] = Found::Root { root, n_parts };
            n_parts += 1;
        }
    }
    // The loop left nothing open.
    let root = |(idx, found)| if let Found::Root { root, .. } = found { root } else { idx };
    Ok(found.into_iter().enumerate().map(root).collect())
}

/// Checks where one value lives; gives the value that it is in.
fn validate_storage(plan: &Plan, program: &Program, own: &Value) -> Checked<Option<u32>> {
    let name = || shorten(&own.name);
    if own.target as usize >= plan.header.targets.len() {
        return Err(format!("`{}` lies on target {} of {}", name(), own.target, plan.header.targets.len()));
    }
    let parent = |of: u32| match value(program, of)? {
        other if other.target == own.target => Ok(other),
        other => Err(format!("`{}` and `{}` lie on different targets", name(), shorten(&other.name))),
    };
    let tensor = |value: &Value| match &value.ty {
        ValueType::Tensor(tensor) => Ok(tensor.clone()),
        ValueType::Sequence(_) | ValueType::Optional(_) => {
            Err(format!("`{}` is {}, which has no memory of a tensor", shorten(&value.name), value.ty))
        }
    };
    match &own.storage {
        Storage::Input | Storage::Own => Ok(None),
        Storage::Weight(idx) => {
            let ty = tensor(own)?;
            let weight = plan
                .weights
                .get(*idx as usize)
                .ok_or_else(|| format!("`{}` is weight {idx} of {}", name(), plan.weights.len()))?;
            let fits = ty.shape.as_ref().is_none_or(|shape| {
                shape.rank() == weight.dims.len()
                    && shape.iter().zip(&weight.dims).all(|(dim, size)| dim.as_usize() == Some(*size))
            });
            if ty.dtype != weight.dtype || !fits {
                return Err(format!("`{}` is {ty}, its weight is {}{:?}", name(), weight.dtype, weight.dims));
            }
            if !own.layout.same_for(weight.layout, &weight.dims) {
                let (own, its) = (own.layout.name(), weight.layout.name());
                return Err(format!("`{}` is {own}, its weight is {its}", name()));
            }
            Ok(None)
        }
        Storage::Arena => {
            let known = tensor(own)?.shape.is_some_and(|shape| !shape.iter().any(Dim::is_unknown));
            if !known {
                return Err(format!("`{}` is in the arena, but its size {} cannot be known", name(), own.ty));
            }
            Ok(None)
        }
        Storage::Alias { of } => {
            let other = parent(*of)?;
            let (ty, other_ty) = (tensor(own)?, tensor(other)?);
            if let (Some(n), Some(other_n)) = (fixed_bytes(&ty), fixed_bytes(&other_ty))
                && n != other_n
            {
                return Err(format!("`{}` is {ty} in the memory of {other_ty}", name()));
            }
            Ok(Some(*of))
        }
        Storage::Inside { of, axis, offset } => {
            let other = parent(*of)?;
            let (ty, other_ty) = (tensor(own)?, tensor(other)?);
            if !lies_inside(&ty, &other_ty, *axis as usize, offset) {
                return Err(format!("`{}` is {ty} at {offset} of axis {axis} in {other_ty}", name()));
            }
            Ok(Some(*of))
        }
    }
}

/// Bytes of a tensor whose sizes are numbers; `None` too where they do not fit.
fn fixed_bytes(ty: &TensorType) -> Option<usize> {
    let dims = ty.shape.as_ref()?.as_fixed()?;
    ty.dtype.bytes_for(element_count(&dims)?)
}

/// Whether a part can be where it is said to be, as far as sizes are numbers.
fn lies_inside(part: &TensorType, whole: &TensorType, axis: usize, offset: &Dim) -> bool {
    let (Some(part_shape), Some(whole_shape)) = (&part.shape, &whole.shape) else { return false };
    // Elements that share bytes cannot be addressed on their own.
    let addressable = part.dtype == whole.dtype && !DType::is_sub_byte(part.dtype);
    if !addressable || part_shape.rank() != whole_shape.rank() || axis >= part_shape.rank() {
        return false;
    }
    let others_fit = (0..part_shape.rank()).filter(|other| *other != axis).all(|other| {
        match (part_shape[other].as_const(), whole_shape[other].as_const()) {
            (Some(part), Some(whole)) => part == whole,
            _ => true,
        }
    });
    let fits = match (offset.as_const(), part_shape[axis].as_const(), whole_shape[axis].as_const()) {
        (Some(offset), ..) if offset < 0 => false,
        (Some(offset), Some(part), Some(whole)) => offset.checked_add(part).is_some_and(|end| end <= whole),
        _ => !offset.is_unknown(),
    };
    others_fit && fits
}

fn validate_step(plan: &Plan, program: &Program, step: &Step) -> Checked {
    if !NUMERICS.contains(&step.numeric) {
        let Numeric { element, accumulator, scale } = step.numeric;
        return Err(format!(
            "it multiplies in {}, sums in {accumulator} and scales in {scale}, which no kernel does",
            element.name()
        ));
    }
    if step.target as usize >= plan.header.targets.len() {
        return Err(format!("it runs on target {} of {}", step.target, plan.header.targets.len()));
    }
    for &idx in step.inputs.iter().chain(&step.outputs).flatten() {
        value(program, idx)?;
    }
    validate_region(&step.region)?;
    if let StepKind::Transfer = step.kind {
        return validate_transfer(program, step);
    }
    if step.region.n_inputs as usize != step.inputs.len() {
        return Err(format!("{} inputs for a region of {}", step.inputs.len(), step.region.n_inputs));
    }
    if step.region.outputs.len() != step.outputs.len() {
        return Err(format!("{} outputs for a region of {}", step.outputs.len(), step.region.outputs.len()));
    }
    for &idx in step.inputs.iter().chain(&step.outputs).flatten() {
        let value = value(program, idx)?;
        if value.target != step.target {
            let name = shorten(&value.name);
            return Err(format!("it runs on target {}, `{name}` is on target {}", step.target, value.target));
        }
    }
    match &step.kind {
        StepKind::Kernel { variants, packed, slow: _ } => {
            if variants.is_empty() {
                return Err("it has no tactic".to_string());
            }
            // What an operator leaves out, its node leaves out: kernels find every operand that their region has.
            if let Some(idx) = step.inputs.iter().position(Option::is_none) {
                return Err(format!("a kernel leaves out input {idx}"));
            }
            if let Some(idx) = step.outputs.iter().position(Option::is_none) {
                return Err(format!("a kernel leaves out output {idx}"));
            }
            if packed.len() > step.inputs.len() {
                return Err(format!("{} packings for {} inputs", packed.len(), step.inputs.len()));
            }
            for (format, input) in packed.iter().zip(&step.inputs) {
                // What a kernel reads packed is longer than its type says, so nothing but a weight may be.
                if let (Some(format), Some(input)) = (format, input)
                    && !matches!(value(program, *input)?.storage, Storage::Weight(_))
                {
                    let name = shorten(&program.values[*input as usize].name);
                    return Err(format!(
                        "it reads `{name}` packed as {}, which is not a weight",
                        shorten(format)
                    ));
                }
            }
            for &idx in step.inputs.iter().chain(&step.outputs).flatten() {
                let value = value(program, idx)?;
                let name = || shorten(&value.name);
                if value.ty.as_tensor().is_none() {
                    return Err(format!("a kernel cannot take `{}`, {}", name(), value.ty));
                }
            }
            Ok(())
        }
        StepKind::Transfer => Ok(()),
        StepKind::Evaluate => validate_results(program, step),
        StepKind::Control(control) => {
            validate_results(program, step)?;
            validate_control(step, control)
        }
    }
}

/// What steps on the host make is kept under its own name, so it cannot be a part of another value.
fn validate_results(program: &Program, step: &Step) -> Checked {
    for &idx in step.outputs.iter().flatten() {
        let value = value(program, idx)?;
        if !matches!(value.storage, Storage::Arena | Storage::Own) {
            return Err(format!("it makes `{}`, which has no memory of its own", shorten(&value.name)));
        }
    }
    Ok(())
}

fn validate_transfer(program: &Program, step: &Step) -> Checked {
    let (&[Some(input)], &[Some(output)]) = (&*step.inputs, &*step.outputs) else {
        return Err("a transfer has one input and one output".to_string());
    };
    let (from, to) = (value(program, input)?, value(program, output)?);
    if from.ty != to.ty || from.ty.as_tensor().is_none() {
        return Err(format!("it brings {} to {}", from.ty, to.ty));
    }
    if from.target == to.target || ![from.target, to.target].contains(&step.target) {
        let (target, from, to) = (step.target, from.target, to.target);
        return Err(format!("a transfer from target {from} to target {to}, queued on target {target}"));
    }
    if is_weight(program, input)? {
        return Err(format!("it brings the weight `{}`, which every target has", shorten(&from.name)));
    }
    let shape = from.ty.as_tensor().and_then(|ty| ty.shape.as_ref());
    let keeps = |shape| from.layout.same_for_all(to.layout, shape);
    if from.layout != to.layout && !shape.is_some_and(keeps) {
        return Err(format!("a copy does not change {} to {}", from.layout.name(), to.layout.name()));
    }
    Ok(())
}

/// Whether a value is a weight or lies in one. Storages form no circles: they were looked at before steps.
fn is_weight(program: &Program, idx: u32) -> Checked<bool> {
    let mut at = idx;
    loop {
        match value(program, at)?.storage {
            Storage::Alias { of } | Storage::Inside { of, .. } => at = of,
            Storage::Weight(_) => return Ok(true),
            Storage::Input | Storage::Arena | Storage::Own => return Ok(false),
        }
    }
}

fn validate_control(step: &Step, control: &Control) -> Checked {
    let [node] = &*step.region.nodes else {
        return Err(format!("control flow of {} nodes", step.region.nodes.len()));
    };
    let n_bodies = match &node.op {
        Op::If(_) => 2,
        Op::Loop(_) | Op::Scan(_) | Op::SequenceMap(_) => 1,
        op => return Err(format!("{} is not control flow", shorten(op.name()))),
    };
    if control.bodies.len() != n_bodies {
        return Err(format!("{} with {} bodies", node.op.name(), control.bodies.len()));
    }
    let n_captured = control.n_captured as usize;
    if n_captured > step.inputs.len() || control.bodies.iter().any(|body| n_captured > body.inputs.len()) {
        return Err(format!("{n_captured} captured values for fewer inputs"));
    }
    let n_own = step.inputs.len() - n_captured;
    // What a trip gives its body besides, and what the body gives back before what is collected.
    let (n_given, n_carried) = match &node.op {
        // The trip and the condition, whether or not the step limits them, then what is carried.
        Op::Loop(_) => (n_own.max(2), n_own.max(2) - 1),
        Op::Scan(scan) => match usize::try_from(scan.num_scan_inputs).ok().filter(|n| *n <= n_own) {
            Some(n_scanned) => (n_own, n_own - n_scanned),
            None => return Err(format!("a Scan of {n_own} inputs over {}", scan.num_scan_inputs)),
        },
        Op::SequenceMap(_) => (n_own, 0),
        _ => (0, 0),
    };
    for (idx, body) in control.bodies.iter().enumerate() {
        let (n_inputs, n_outputs) = (body.inputs.len(), body.outputs.len());
        if n_inputs != n_given + n_captured {
            return Err(format!("body {idx} takes {n_inputs} inputs, it is given {}", n_given + n_captured));
        }
        if n_outputs < n_carried {
            return Err(format!("body {idx} makes {n_outputs} outputs, {n_carried} are carried on"));
        }
    }
    Ok(())
}

fn validate_region(region: &Region) -> Checked {
    let check = |reference: &Ref, n_nodes: usize| {
        let known = match *reference {
            Ref::Input(idx) => idx < region.n_inputs,
            Ref::Constant(idx) => (idx as usize) < region.constants.len(),
            Ref::Node { node, output } => {
                (node as usize) < n_nodes && output < region.nodes[node as usize].n_outputs
            }
        };
        if known { Ok(()) } else { Err(format!("the region reads {reference:?}, which is not there")) }
    };
    for (idx, node) in region.nodes.iter().enumerate() {
        if node.n_outputs > MAX_NODE_OUTPUTS {
            return Err(format!("a node of {} outputs, at most {MAX_NODE_OUTPUTS} can be", node.n_outputs));
        }
        node.inputs.iter().flatten().try_for_each(|reference| check(reference, idx))?;
    }
    region.outputs.iter().try_for_each(|reference| check(reference, region.nodes.len()))
}
