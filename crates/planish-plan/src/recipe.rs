//! What of a plan every later version can read: enough to build the plan anew.
//!
//! The program of a plan, its evidence and its certificate belong to the version that wrote them. Header, graph
//! and weights are kept readable: a machine or a version that cannot run the program lowers the graph again,
//! with the options that it was built with.

use std::path::Path;

use planish_tensor::Bytes;

use crate::codec::{WeightList, from_section};
use crate::container::{OLDEST_FORMAT, Section, Table};
use crate::error::{PlanError, PlanErrorKind, Result};
use crate::file::{self, Trust};
use crate::record::{Header, Header4, Plan, Ports, Weight};
use crate::stripped::Stripped;

/// A plan without its program.
#[derive(Clone, PartialEq, Debug)]
pub struct Recipe {
    pub header: Header,
    pub weights: Vec<Weight>,
    /// The optimized graph as text.
    pub graph: String,
    /// For each constant `#n` of the text the weight that holds it.
    pub constants: Vec<u32>,
    /// What is known of the weights' bytes where they were left out; nothing can be built from such a recipe.
    pub stripped: Option<Stripped>,
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
        let (recipe, _) = Recipe::read(&bytes, &table)?;
        recipe.validate()?;
        file::check_data(&bytes, &table, &recipe.weights, Trust::Nothing)?;
        Ok(recipe)
    }

    /// The recipe, not validated, and the inputs and outputs that the header's section names.
    pub(crate) fn read(bytes: &Bytes, table: &Table) -> Result<(Recipe, Ports)> {
        let (header, ports) = read_header(bytes, table)?;
        let list: WeightList = from_section(table.reader(bytes, Section::Weights))?;
        let graph = std::str::from_utf8(table.bytes(bytes, Section::Graph)).map_err(|error| {
            let at = table.range(Section::Graph).start + error.valid_up_to();
            let error = PlanError::new(PlanErrorKind::Malformed, "the text is not UTF-8");
            error.at(at).in_section(Section::Graph.name())
        })?;
        let (weights, stripped) = file::weights(bytes, table, list.entries)?;
        let (graph, constants) = (graph.to_owned(), list.constants);
        Ok((Recipe { header, weights, graph, constants, stripped }, ports))
    }
}

/// The section of the header, of any version that is read.
pub(crate) fn read_header(bytes: &[u8], table: &Table) -> Result<(Header, Ports)> {
    let section = table.reader(bytes, Section::Header);
    match table.format_version {
        OLDEST_FORMAT => Ok((from_section::<Header4>(section)?.into(), Ports::default())),
        _ => from_section(section),
    }
}

impl Plan {
    /// What another machine or version needs to build the plan anew; the weights' memory is shared.
    pub fn recipe(&self) -> Recipe {
        Recipe {
            header: self.header.clone(),
            weights: self.weights.clone(),
            graph: self.graph.clone(),
            constants: self.constants.clone(),
            stripped: self.stripped.clone(),
        }
    }
}
