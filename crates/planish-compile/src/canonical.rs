//! A plan whose weights are stored as its graph has them, in no kernel's form: engines pack them when they are opened. Plans of
//! one model for several targets then hold the same bytes, which a bundle stores once.

use planish_kernel::Layout;
use planish_plan::{CertificateState, Plan, Weight};

use crate::error::BuildError;
use crate::recover::{Unpack, tensor};
use crate::schedule::weights::narrow;

/// The plan with its weights unpacked. It computes the same: packing has a way back that gives the same bits, and engines pack
/// as builds do; so what the self-check found holds for it, too.
pub fn canonical(plan: &Plan, unpack: Unpack<'_>) -> Result<Plan, BuildError> {
    let recipe = plan.recipe();
    let mut plain = plan.clone();
    for (weight, stored) in plain.weights.iter_mut().zip(&plan.weights) {
        if stored.format.is_some() {
            let bytes = tensor(&recipe, stored, unpack)?.bytes().clone();
            let layout = Layout::Plain;
            *weight =
                Weight { format: None, packed_by: None, narrowed: None, layout, bytes, ..stored.clone() };
        }
    }
    narrow(&mut plain.weights, &plan.program);
    if plan.certificate.state() != CertificateState::NotChecked {
        let certified = plain.certify(plan.certificate.checks.clone());
        certified.map_err(|error| BuildError::internal(format!("the plan cannot be written: {error}")))?;
    } else {
        plain.certificate = planish_plan::Certificate::new(plan.certificate.checks.clone());
    }
    Ok(plain)
}
