//! What of a plan every later version can read: enough to build the plan anew.
//!
//! The program of a plan, its evidence and its certificate belong to the version that wrote them. Header, graph
//! and weights are kept readable: a machine or a version that cannot run the program lowers the graph again,
//! with the options that it was built with.

use std::path::Path;

use planish_kernel::Target;
use planish_tensor::Bytes;

use crate::codec::{Header, WeightList, from_section};
use crate::container::{Section, Table};
use crate::error::{PlanError, PlanErrorKind, Result};
use crate::file::{self, Trust};
use crate::record::{Plan, Profile, Weight};

/// A plan without its program.
#[derive(Clone, PartialEq, Debug)]
pub struct Recipe {
    /// The model's name.
    pub name: String,
    /// The version of Planish that built it.
    pub producer: String,
    /// Hash of the source model with its external data.
    pub source: [u8; 32],
    /// The build's options, one `name=value` a line, sorted.
    pub options: String,
    /// What the plan was built for.
    pub targets: Vec<Target>,
    pub profiles: Vec<Profile>,
    pub tuned_at: Vec<(String, i64)>,
    pub threads: u32,
    pub weights: Vec<Weight>,
    /// The optimized graph as text.
    pub graph: String,
    /// For each constant `#n` of the text the weight that holds it.
    pub constants: Vec<u32>,
}

impl Recipe {
    /// Reads what every version can read of a plan file; all of it is verified, weights included.
    pub fn open(path: &Path) -> Result<Recipe> {
        let bytes = Bytes::map_file(path).map_err(|error| PlanError::io("read it", &error).in_file(path))?;
        Recipe::from_bytes(bytes).map_err(|error| error.in_file(path))
    }

    /// The same from a copy of the file in memory, which stays what was verified whatever becomes of the file.
    pub fn open_copied(path: &Path) -> Result<Recipe> {
        let bytes = Bytes::read_file(path).map_err(|error| PlanError::io("read it", &error).in_file(path))?;
        Recipe::from_bytes(bytes).map_err(|error| error.in_file(path))
    }

    /// The same of a file with these bytes.
    pub fn from_bytes(bytes: Bytes) -> Result<Recipe> {
        let table = Table::read(&bytes)?;
        let recipe = Recipe::read(&bytes, &table)?;
        recipe.validate()?;
        file::check_data(&bytes, &table, &recipe.weights, Trust::Nothing)?;
        Ok(recipe)
    }

    pub(crate) fn read(bytes: &Bytes, table: &Table) -> Result<Recipe> {
        let header: Header = from_section(table.reader(bytes, Section::Header))?;
        let list: WeightList = from_section(table.reader(bytes, Section::Weights))?;
        let graph = std::str::from_utf8(table.bytes(bytes, Section::Graph)).map_err(|error| {
            let at = table.range(Section::Graph).start + error.valid_up_to();
            let error = PlanError::new(PlanErrorKind::Malformed, "the text is not UTF-8");
            error.at(at).in_section(Section::Graph.name())
        })?;
        Ok(Recipe {
            name: header.name,
            producer: header.producer,
            source: header.source,
            options: header.options,
            targets: header.targets,
            profiles: header.profiles,
            tuned_at: header.tuned_at,
            threads: header.threads,
            weights: file::weights(bytes, table, list.entries)?,
            graph: graph.to_owned(),
            constants: list.constants,
        })
    }
}

impl Plan {
    /// What another machine or version needs to build the plan anew; the weights' memory is shared.
    pub fn recipe(&self) -> Recipe {
        Recipe {
            name: self.name.clone(),
            producer: self.producer.clone(),
            source: self.source,
            options: self.options.clone(),
            targets: self.targets.clone(),
            profiles: self.profiles.clone(),
            tuned_at: self.tuned_at.clone(),
            threads: self.threads,
            weights: self.weights.clone(),
            graph: self.graph.clone(),
            constants: self.constants.clone(),
        }
    }
}
