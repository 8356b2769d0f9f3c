//! The activation functions that RNN, GRU and LSTM name in their attributes.

/// An activation function with its parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RecurrentActivation {
    Relu,
    Tanh,
    Sigmoid,
    /// `alpha*x + beta`
    Affine {
        alpha: f32,
        beta: f32,
    },
    /// `x` if `x >= 0`, else `alpha*x`
    LeakyRelu {
        alpha: f32,
    },
    /// `x` if `x >= alpha`, else 0
    ThresholdedRelu {
        alpha: f32,
    },
    /// `alpha*tanh(beta*x)`
    ScaledTanh {
        alpha: f32,
        beta: f32,
    },
    /// `alpha*x + beta`, bounded to 0 and 1
    HardSigmoid {
        alpha: f32,
        beta: f32,
    },
    /// `x` if `x >= 0`, else `alpha*(exp(x) - 1)`
    Elu {
        alpha: f32,
    },
    /// `x / (1 + |x|)`
    Softsign,
    /// `log(1 + exp(x))`
    Softplus,
}

impl RecurrentActivation {
    /// The functions of every direction, `defaults.len()` for each, from the attributes of a recurrent operator.
    ///
    /// Only functions that have an `alpha` or `beta` take one from the lists, in order; where a list ends, the
    /// operator of that name gives the default. The error says what is wrong with the attributes.
    pub fn list(
        names: &[String],
        alphas: &[f32],
        betas: &[f32],
        defaults: &[RecurrentActivation],
        n_directions: usize,
    ) -> Result<Vec<RecurrentActivation>, String> {
        let needed = defaults.len() * n_directions;
        if names.is_empty() {
            return Ok(defaults.iter().copied().cycle().take(needed).collect());
        }
        // The schema's own default for RNN names two functions whatever the direction.
        let is_rnn_default_form = defaults.len() == 1 && names.len() == 2;
        if names.len() != needed && !is_rnn_default_form {
            return Err(format!("activations must name {needed} functions, they name {}", names.len()));
        }
        let (mut alphas, mut betas) = (alphas.iter().copied(), betas.iter().copied());
        names.iter().take(needed).map(|name| Self::parse(name, &mut alphas, &mut betas)).collect()
    }

    fn parse(
        name: &str,
        alphas: &mut impl Iterator<Item = f32>,
        betas: &mut impl Iterator<Item = f32>,
    ) -> Result<RecurrentActivation, String> {
        let mut alpha = |default: f32| alphas.next().unwrap_or(default);
        let mut beta = |default: f32| betas.next().unwrap_or(default);
        Ok(match name.to_ascii_lowercase().as_str() {
            "relu" => RecurrentActivation::Relu,
            "tanh" => RecurrentActivation::Tanh,
            "sigmoid" => RecurrentActivation::Sigmoid,
            // Affine and ScaledTanh are no operators any more; these values leave their argument as it is.
            "affine" => RecurrentActivation::Affine { alpha: alpha(1.0), beta: beta(0.0) },
            "scaledtanh" => RecurrentActivation::ScaledTanh { alpha: alpha(1.0), beta: beta(1.0) },
            "leakyrelu" => RecurrentActivation::LeakyRelu { alpha: alpha(0.01) },
            "thresholdedrelu" => RecurrentActivation::ThresholdedRelu { alpha: alpha(1.0) },
            "hardsigmoid" => RecurrentActivation::HardSigmoid { alpha: alpha(0.2), beta: beta(0.5) },
            "elu" => RecurrentActivation::Elu { alpha: alpha(1.0) },
            "softsign" => RecurrentActivation::Softsign,
            "softplus" => RecurrentActivation::Softplus,
            _ => {
                return Err(format!(
                    "no activation is called `{name}`; there are Relu, Tanh, Sigmoid, Affine, LeakyRelu, \
                     ThresholdedRelu, ScaledTanh, HardSigmoid, Elu, Softsign and Softplus"
                ));
            }
        })
    }
}

/// The defaults of each operator, per direction.
impl RecurrentActivation {
    /// RNN: f.
    pub const RNN: &'static [RecurrentActivation] = &[RecurrentActivation::Tanh];
    /// GRU: f of the update and reset gates, g of the hidden gate.
    pub const GRU: &'static [RecurrentActivation] =
        &[RecurrentActivation::Sigmoid, RecurrentActivation::Tanh];
    /// LSTM: f of the input, output and forget gates, g of the cell gate, h of the cell.
    pub const LSTM: &'static [RecurrentActivation] =
        &[RecurrentActivation::Sigmoid, RecurrentActivation::Tanh, RecurrentActivation::Tanh];
}

#[cfg(test)]
mod tests {
    use super::RecurrentActivation as Act;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn parameters_go_to_the_functions_that_take_them() {
        let list = Act::list(
            &names(&["Sigmoid", "LeakyRelu", "HardSigmoid", "tanh", "Elu", "Affine"]),
            &[0.3, 0.4],
            &[0.6],
            Act::LSTM,
            2,
        );
        let expected = [
            Act::Sigmoid,
            Act::LeakyRelu { alpha: 0.3 },
            Act::HardSigmoid { alpha: 0.4, beta: 0.6 },
            Act::Tanh,
            Act::Elu { alpha: 1.0 },
            Act::Affine { alpha: 1.0, beta: 0.0 },
        ];
        assert_eq!(list.unwrap(), expected);
    }

    #[test]
    fn defaults_repeat_for_each_direction() {
        assert_eq!(Act::list(&[], &[], &[], Act::GRU, 2).unwrap(), [Act::GRU, Act::GRU].concat());
        assert_eq!(Act::list(&names(&["Relu", "Tanh"]), &[], &[], Act::RNN, 1).unwrap(), [Act::Relu]);
    }

    #[test]
    fn refusals() {
        assert!(Act::list(&names(&["Tanh"]), &[], &[], Act::LSTM, 1).unwrap_err().contains("3 functions"));
        assert!(Act::list(&names(&["Gelu"]), &[], &[], Act::RNN, 1).unwrap_err().contains("`Gelu`"));
    }
}
