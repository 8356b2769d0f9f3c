//! `ai.onnx.ml`: what scikit-learn, LightGBM and XGBoost export, taken apart into standard operators; trees become one
//! TreeEnsemble.
//!
//! There are no tensors of strings and no maps: classes that are strings are told by their places, ZipMap hands the
//! probabilities on as they are, and a note says so.

mod features;
mod labels;
mod linear;
mod svm;
mod trees;

use planish_ir::ValueId;
use planish_onnx::AttributeValue;
use planish_op as op;
use planish_tensor::{DType, Tensor};

use crate::adapt::Rule;
use crate::error::ImportError;
use crate::node::NodeImport;

/// Operators of the domain by name.
pub(crate) const RULES: &[(&str, Rule)] = &[
    ("ArrayFeatureExtractor", features::array_feature_extractor),
    ("Binarizer", features::binarizer),
    ("FeatureVectorizer", features::feature_vectorizer),
    ("Imputer", features::imputer),
    ("LabelEncoder", labels::label_encoder),
    ("LinearClassifier", linear::linear_classifier),
    ("LinearRegressor", linear::linear_regressor),
    ("Normalizer", features::normalizer),
    ("OneHotEncoder", features::one_hot_encoder),
    ("SVMClassifier", svm::svm_classifier),
    ("SVMRegressor", svm::svm_regressor),
    ("Scaler", features::scaler),
    ("TreeEnsemble", trees::tree_ensemble),
    ("TreeEnsembleClassifier", trees::tree_ensemble_classifier),
    ("TreeEnsembleRegressor", trees::tree_ensemble_regressor),
    ("ZipMap", labels::zip_map),
];

/// Operators of the domain that are left out on purpose.
pub(crate) const REFUSED: &[(&str, &str)] = &[
    ("CastMap", "maps are not supported; feed tensors"),
    ("CategoryMapper", "strings are not supported; map them before the model"),
    ("DictVectorizer", "maps are not supported; feed tensors"),
];

type Made = Result<ValueId, ImportError>;

/// What follows the scores of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PostTransform {
    None,
    Softmax,
    Logistic,
    SoftmaxZero,
}

impl PostTransform {
    /// What the node's word says.
    fn of(n: &NodeImport<'_, '_>) -> Result<PostTransform, ImportError> {
        match n.text("post_transform")?.as_deref() {
            None | Some("NONE") => Ok(PostTransform::None),
            Some("SOFTMAX") => Ok(PostTransform::Softmax),
            Some("LOGISTIC") => Ok(PostTransform::Logistic),
            Some("SOFTMAX_ZERO") => Ok(PostTransform::SoftmaxZero),
            Some(_) => Err(
                n.unsupported(Some("a post_transform other than NONE, SOFTMAX, LOGISTIC and SOFTMAX_ZERO"))
            ),
        }
    }

    fn apply(self, n: &mut NodeImport<'_, '_>, scores: ValueId) -> Made {
        match self {
            PostTransform::None => Ok(scores),
            PostTransform::Softmax => n.temporary(op::Softmax { axis: -1 }, &[Some(scores)]),
            PostTransform::Logistic => n.temporary(op::Sigmoid {}, &[Some(scores)]),
            // A softmax of those that are not 0; what is 0 stays so.
            PostTransform::SoftmaxZero => {
                let dtype = n.type_of(scores)?.dtype;
                let max = n.reduced("ReduceMax", scores)?;
                let shifted = n.temporary(op::Sub {}, &[Some(scores), Some(max)])?;
                let exponents = n.temporary(op::Exp {}, &[Some(shifted)])?;
                let size = n.temporary(op::Abs {}, &[Some(scores)])?;
                let (least, zero) = (n.number("least", dtype, 1e-7)?, n.number("zero", dtype, 0.0)?);
                let is_zero = n.temporary(op::LessOrEqual {}, &[Some(size), Some(least)])?;
                let parts = n.temporary(op::Where {}, &[Some(is_zero), Some(zero), Some(exponents)])?;
                let sum = n.reduced("ReduceSum", parts)?;
                n.temporary(op::Div {}, &[Some(parts), Some(sum)])
            }
        }
    }
}

impl NodeImport<'_, '_> {
    /// Input 0 as rows of features: f64 as it is, all other numbers as f32; one row may come as a vector.
    fn rows(&mut self) -> Made {
        let mut rows = self.required(0)?;
        if self.type_of(rows)?.dtype != DType::F64 {
            rows = self.cast(rows, DType::F32)?;
        }
        if self.type_of(rows)?.rank() == Some(1) {
            rows = self.unsqueeze(rows, vec![0])?;
        }
        Ok(rows)
    }

    /// Input 0 as f32, whatever its shape.
    fn floats_in(&mut self) -> Made {
        let data = self.required(0)?;
        self.cast(data, DType::F32)
    }

    /// The reduction of this name over the last axis, which stays.
    fn reduced(&mut self, name: &str, value: ValueId) -> Made {
        let axes = self.int_vector("axes", vec![-1])?;
        self.temporary(op::Op::from_attributes(name, &[])?, &[Some(value), Some(axes)])
    }

    /// A constant of these numbers.
    fn number_list(&mut self, hint: &str, dtype: DType, shape: &[usize], values: &[f64]) -> Made {
        let tensor = Tensor::from_f64s(dtype, shape, values)
            .map_err(|error| ImportError::invalid(format!("`{hint}`: {error}")))?;
        self.constant(hint, tensor)
    }

    /// An attribute that is a list of f32, or under `NAME_as_tensor` a tensor.
    fn wide_list(&mut self, name: &str) -> Result<Option<Vec<f64>>, ImportError> {
        if let Some(list) = self.floats(name)?.filter(|list| !list.is_empty()) {
            return Ok(Some(list.into_iter().map(f64::from).collect()));
        }
        match self.attribute(&format!("{name}_as_tensor")) {
            Some(AttributeValue::Tensor(tensor)) => Ok(Some(self.importer.weights.tensor(tensor)?.to_f64s())),
            _ => Ok(None),
        }
    }

    /// A list of strings, if the node has it and it is not empty.
    fn texts(&self, name: &str) -> Result<Option<Vec<String>>, ImportError> {
        match self.attribute(name) {
            None => Ok(None),
            Some(AttributeValue::Strings(texts)) => {
                let texts: Result<Vec<String>, ImportError> =
                    texts.iter().map(|text| crate::attributes::utf8(text, name)).collect();
                Ok(Some(texts?).filter(|texts| !texts.is_empty()))
            }
            Some(_) => Err(ImportError::invalid(format!("attribute `{name}` must be a list of strings"))),
        }
    }
}
