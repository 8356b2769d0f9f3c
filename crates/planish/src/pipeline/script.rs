//! What a pipeline does at given sizes: its stages, its values, and from when to when each of them is needed.
//!
//! Time is the place of a stage in the order in which they were said; a loop's stages have their places once. What is read in
//! a loop and made before it is needed to the loop's end, and so are both ends of what a trip hands to the next.

use planish_runtime::{Lane, LaneStage, LaneValue, lane_sizes};
use planish_tensor::DType;

use super::{HostStage, Item, PipelineBuilder, options};
use crate::{Error, ErrorKind, PortInfo};

/// One thing that is done.
pub(super) enum Act {
    Stage(usize),
    Host { name: String, reads: Vec<usize>, gives: Vec<usize>, work: HostStage },
    Repeat { n: usize, acts: Vec<Act>, carries: Vec<(usize, usize)> },
}

/// A pipeline at given sizes.
pub(super) struct Script {
    pub(super) acts: Vec<Act>,
    stages: Vec<LaneStage>,
    stage_names: Vec<String>,
    values: Vec<LaneValue>,
    inputs: Vec<(String, usize)>,
    outputs: Vec<(String, usize)>,
}

fn wrong<T>(kind: ErrorKind, message: String) -> Result<T, Error> {
    Err(Error::new(kind, message))
}

/// Whether names fit, before sizes are known.
pub(super) fn check(said: &PipelineBuilder) -> Result<(), Error> {
    if said.outputs.is_empty() {
        return wrong(ErrorKind::BadOption, "a pipeline has an output; say which value it is".to_string());
    }
    if !said.carries.is_empty() {
        return wrong(ErrorKind::BadOption, "values are carried in loops alone; see `repeat`".to_string());
    }
    let mut known: Vec<(String, Option<DType>)> =
        said.inputs.iter().map(|name| (name.clone(), None)).collect();
    check_items(&said.items, &mut known)?;
    for (name, value) in &said.outputs {
        if !known.iter().any(|(known, _)| known == value) {
            return wrong(ErrorKind::BadOption, format!("output `{name}` is `{value}`, which nothing gives"));
        }
    }
    Ok(())
}

fn check_items(items: &[Item], known: &mut Vec<(String, Option<DType>)>) -> Result<(), Error> {
    for item in items {
        match item {
            Item::Stage { name, engine, feeds } => {
                for (at, port) in engine.inputs().iter().enumerate() {
                    let mut given = feeds.iter().filter(|(input, _)| *input == port.name);
                    let (Some((_, value)), None) = (given.next(), given.next()) else {
                        let message =
                            format!("stage `{name}`: input `{}` is fed by no value, or by two", port.name);
                        return wrong(ErrorKind::BadOption, message);
                    };
                    let Some(found) = known.iter_mut().find(|(known, _)| known == value) else {
                        let message =
                            format!("stage `{name}` reads `{value}`, which nothing before it gives");
                        return wrong(ErrorKind::BadOption, message);
                    };
                    let wanted = dtype_of(name, port)?;
                    if *found.1.get_or_insert(wanted) != wanted {
                        let message = format!(
                            "stage `{name}`: input `{}` is {}, `{value}` is of another type",
                            port.name, port.ty
                        );
                        return wrong(ErrorKind::WrongType, message);
                    }
                    // A value is one buffer, and a run has each of its buffers once.
                    let again = engine.inputs()[..at]
                        .iter()
                        .any(|earlier| feeds.contains(&(earlier.name.clone(), value.clone())));
                    if again {
                        return wrong(
                            ErrorKind::BadOption,
                            format!("stage `{name}` reads `{value}` twice; a model with one input does that"),
                        );
                    }
                }
                if let Some((input, _)) =
                    feeds.iter().find(|(input, _)| engine.inputs().iter().all(|port| port.name != *input))
                {
                    return wrong(ErrorKind::BadOption, format!("stage `{name}` has no input `{input}`"));
                }
                for port in engine.outputs() {
                    let dtype = dtype_of(name, &port)?;
                    add(known, format!("{name}.{}", port.name), Some(dtype))?;
                }
            }
            Item::Host { name, reads, gives, .. } => {
                for value in reads.iter().chain(gives.iter().map(|(_, like)| like)) {
                    if !known.iter().any(|(known, _)| known == value) {
                        return wrong(
                            ErrorKind::BadOption,
                            format!("stage `{name}` reads `{value}`, which nothing before it gives"),
                        );
                    }
                }
                for (output, like) in gives {
                    let dtype = known.iter().find(|(known, _)| known == like).and_then(|(_, dtype)| *dtype);
                    add(known, format!("{name}.{output}"), dtype)?;
                }
            }
            Item::Repeat { items, carries, .. } => {
                let n_before = known.len();
                check_items(items, known)?;
                for (value, from) in carries {
                    let place = |name: &String| known.iter().position(|(known, _)| known == name);
                    match (place(value), place(from)) {
                        (Some(value), Some(from)) if value < n_before && from >= n_before => {}
                        _ => {
                            let message = format!(
                                "a loop carries a value from before it and takes one of its trips; `{value}` from `{from}` is not that"
                            );
                            return wrong(ErrorKind::BadOption, message);
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

fn add(known: &mut Vec<(String, Option<DType>)>, name: String, dtype: Option<DType>) -> Result<(), Error> {
    if known.iter().any(|(known, _)| *known == name) {
        return wrong(
            ErrorKind::BadOption,
            format!("two values are called `{name}`; give their stages names of their own"),
        );
    }
    known.push((name, dtype));
    Ok(())
}

fn dtype_of(stage: &str, port: &PortInfo) -> Result<DType, Error> {
    match port.ty.as_tensor() {
        Some(ty) => Ok(ty.dtype),
        None => wrong(
            ErrorKind::WrongType,
            format!("stage `{stage}`: `{}` is {}; stages hand tensors on", port.name, port.ty),
        ),
    }
}

impl Script {
    /// At the sizes of the inputs, in their order.
    pub(super) fn new(said: &PipelineBuilder, sizes: &[Vec<usize>]) -> Result<Script, Error> {
        let mut script = Script {
            acts: Vec::new(),
            stages: Vec::new(),
            stage_names: Vec::new(),
            values: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
        };
        let is_port = !said.is_resident;
        for (name, dims) in said.inputs.iter().zip(sizes) {
            let Some(dtype) = input_type(&said.items, name) else {
                return wrong(ErrorKind::BadOption, format!("no stage reads the input `{name}`"));
            };
            script.inputs.push((name.clone(), script.values.len()));
            let (name, dims) = (name.clone(), dims.clone());
            script.values.push(LaneValue { name, dtype, dims, time: (0, 0), is_port });
        }
        let mut time = 0;
        script.acts = script.walk(&said.items, &mut time)?;
        for (name, value) in &said.outputs {
            let at = script.find(value)?;
            script.outputs.push((name.clone(), at));
            script.values[at].time.1 = time;
            script.values[at].is_port |= is_port;
        }
        // Inputs stay, so that a lane can run again on what it holds.
        for (_, at) in script.inputs.clone() {
            script.values[at].time.1 = time;
        }
        script.join_carried();
        Ok(script)
    }

    /// Values that change places are needed for as long as either of them.
    fn join_carried(&mut self) {
        fn pairs(acts: &[Act], list: &mut Vec<(usize, usize)>) {
            for act in acts {
                if let Act::Repeat { acts, carries, .. } = act {
                    list.extend(carries);
                    pairs(acts, list);
                }
            }
        }
        let mut list = Vec::new();
        pairs(&self.acts, &mut list);
        // As often as there are pairs: chains of them are as long as that at most.
        for _ in 0..list.len() {
            for &(one, other) in &list {
                let (a, b) = (&self.values[one], &self.values[other]);
                let time = (a.time.0.min(b.time.0), a.time.1.max(b.time.1));
                let is_port = a.is_port || b.is_port;
                for at in [one, other] {
                    (self.values[at].time, self.values[at].is_port) = (time, is_port);
                }
            }
        }
    }

    fn find(&self, name: &str) -> Result<usize, Error> {
        match self.values.iter().position(|value| value.name == name) {
            Some(at) => Ok(at),
            None => wrong(ErrorKind::BadOption, format!("there is no value `{name}`")),
        }
    }

    fn read(&mut self, name: &str, time: usize) -> Result<usize, Error> {
        let at = self.find(name)?;
        let last = &mut self.values[at].time.1;
        *last = (*last).max(time);
        Ok(at)
    }

    fn walk(&mut self, items: &[Item], time: &mut usize) -> Result<Vec<Act>, Error> {
        let mut acts = Vec::new();
        for item in items {
            *time += 1;
            let now = *time;
            match item {
                Item::Stage { name, engine, feeds } => {
                    let value = |port: &PortInfo| {
                        feeds.iter().find(|(input, _)| *input == port.name).map(|(_, value)| value)
                    };
                    let mut inputs = Vec::new();
                    for port in engine.inputs() {
                        let Some(value) = value(&port) else {
                            return wrong(
                                ErrorKind::BadOption,
                                format!("stage `{name}`: input `{}` is not fed", port.name),
                            );
                        };
                        inputs.push(self.read(value, now)?);
                    }
                    let dims: Vec<&[usize]> = inputs.iter().map(|&at| &self.values[at].dims[..]).collect();
                    let at = |error: Error| error.within(format!("stage `{name}`"));
                    let sizes = lane_sizes(engine.runtime(), &dims).map_err(at)?;
                    let mut outputs = Vec::new();
                    for (port, dims) in engine.outputs().iter().zip(sizes) {
                        outputs.push(self.values.len());
                        let (dtype, time) = (dtype_of(name, port)?, (now, now));
                        let name = format!("{name}.{}", port.name);
                        self.values.push(LaneValue { name, dtype, dims, time, is_port: false });
                    }
                    acts.push(Act::Stage(self.stages.len()));
                    let engine = engine.runtime().clone();
                    self.stages.push(LaneStage { engine, inputs, outputs, time: (now, now) });
                    self.stage_names.push(name.clone());
                }
                Item::Host { name, reads, gives, work } => {
                    let reads =
                        reads.iter().map(|value| self.read(value, now)).collect::<Result<Vec<_>, _>>()?;
                    let mut made = Vec::new();
                    for (output, like) in gives {
                        let LaneValue { dtype, dims, .. } = self.values[self.find(like)?].clone();
                        made.push(self.values.len());
                        let name = format!("{name}.{output}");
                        self.values.push(LaneValue { name, dtype, dims, time: (now, now), is_port: false });
                    }
                    acts.push(Act::Host { name: name.clone(), reads, gives: made, work: work.clone() });
                }
                Item::Repeat { n, items, carries } => {
                    let (n_before, begin) = (self.values.len(), *time);
                    let inner = self.walk(items, time)?;
                    *time += 1;
                    let end = *time;
                    for value in self.values[..n_before].iter_mut().filter(|value| value.time.1 >= begin) {
                        value.time.1 = end;
                    }
                    let mut pairs = Vec::new();
                    for (value, from) in carries {
                        let (value, from) = (self.find(value)?, self.find(from)?);
                        let (one, other) = (&self.values[value], &self.values[from]);
                        if one.dtype != other.dtype || one.dims != other.dims {
                            let message = format!(
                                "a loop carries `{}`, {} of sizes {:?}, from `{}`, {} of sizes {:?}: they must be the same",
                                one.name, one.dtype, one.dims, other.name, other.dtype, other.dims
                            );
                            return wrong(ErrorKind::WrongShape, message);
                        }
                        for at in [value, from] {
                            let known = self.values[at].time;
                            self.values[at].time = (known.0.min(begin), known.1.max(end));
                        }
                        pairs.push((value, from));
                    }
                    acts.push(Act::Repeat { n: *n, acts: inner, carries: pairs });
                }
            }
        }
        Ok(acts)
    }

    /// Memory and contexts for one run at a time.
    pub(super) fn lane(&self) -> Result<Lane, Error> {
        Lane::new(&self.stages, &self.values, &options)
    }

    pub(super) fn stage_text(&self, stage: usize) -> String {
        format!("stage `{}`", self.stage_names.get(stage).map_or("?", String::as_str))
    }

    pub(super) fn input(&self, name: &str) -> Result<usize, Error> {
        port(&self.inputs, "input", name)
    }

    pub(super) fn output(&self, name: &str) -> Result<usize, Error> {
        port(&self.outputs, "output", name)
    }
}

fn port(ports: &[(String, usize)], what: &str, name: &str) -> Result<usize, Error> {
    match ports.iter().find(|(known, _)| known == name) {
        Some((_, at)) => Ok(*at),
        None => {
            let names: Vec<&str> = ports.iter().map(|(name, _)| name.as_str()).collect();
            wrong(
                ErrorKind::WrongInputs,
                format!("the pipeline has no {what} `{name}`; it has {}", names.join(", ")),
            )
        }
    }
}

/// The type of a value, by the first stage that reads it.
fn input_type(items: &[Item], name: &str) -> Option<DType> {
    items.iter().find_map(|item| match item {
        Item::Stage { engine, feeds, .. } => {
            let (input, _) = feeds.iter().find(|(_, value)| value == name)?;
            engine.inputs().iter().find(|port| port.name == *input)?.ty.as_tensor().map(|ty| ty.dtype)
        }
        Item::Host { .. } => None,
        Item::Repeat { items, .. } => input_type(items, name),
    })
}
