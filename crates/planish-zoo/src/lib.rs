//! The benchmark suite's architectures, built here with seeded weights, so that nobody needs Python or a download
//! to try a model of a known kind.
//!
//! The graphs are what PyTorch's exporter writes of the same networks, node for node where that matters: attention
//! and GELU taken apart, group normalization as instance normalization between reshapes, a dynamic batch. Two
//! things are left as a trained model has them and the exporter of random weights does not: batch normalization is
//! a node of its own (folding it is an optimizer's work), and no weights are shared only because they are equal.
//!
//! ```
//! let graph = planish_zoo::graph("cifar_cnn", 0)?;
//! assert_eq!(graph.value(graph.inputs()[0]).ty.to_string(), "f32[batch,32,32,3]");
//! # Ok::<(), planish_zoo::ZooError>(())
//! ```

mod cifar;
mod convnext;
mod encoder;
mod error;
mod generator;
mod layers;
mod mobile;
mod net;
mod resnet;
mod unet;
mod vit;
mod weights;

use planish_ir::{Graph, ValueId};

pub use error::{ZooError, ZooErrorKind};

use net::Net;

/// A model of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub name: &'static str,
    /// What it stands for, in a few words.
    pub about: &'static str,
    /// Trained numbers: weights, biases, scales and shifts, without the statistics of batch normalization.
    pub n_parameters: usize,
    build: fn(&mut Net) -> Result<ValueId, ZooError>,
}

/// A row of ResNet-18, whose size does not depend on its images'.
const fn resnet18(
    name: &'static str,
    about: &'static str,
    build: fn(&mut Net) -> Result<ValueId, ZooError>,
) -> Entry {
    Entry { name, about, n_parameters: 11_689_512, build }
}

/// All models, in the order of the suite.
pub const ENTRIES: &[Entry] = &[
    resnet18("resnet18_224", "image classifier, residual", |net| resnet::resnet18(net, 224)),
    resnet18("resnet18_256", "the same on larger images", |net| resnet::resnet18(net, 256)),
    resnet18("resnet18_384", "the same on larger images", |net| resnet::resnet18(net, 384)),
    resnet18("resnet18_512", "the same on larger images", |net| resnet::resnet18(net, 512)),
    Entry {
        name: "resnet50_224",
        about: "image classifier, residual with bottlenecks",
        n_parameters: 25_557_032,
        build: resnet::resnet50,
    },
    Entry {
        name: "mobilenet_v2_224",
        about: "image classifier, depthwise",
        n_parameters: 3_504_872,
        build: mobile::mobilenet_v2,
    },
    Entry {
        name: "efficientnet_b0_224",
        about: "image classifier, depthwise with squeeze-excite",
        n_parameters: 5_288_548,
        build: mobile::efficientnet_b0,
    },
    Entry {
        name: "convnext_tiny_224",
        about: "image classifier, large depthwise kernels",
        n_parameters: 28_589_128,
        build: convnext::convnext_tiny,
    },
    Entry {
        name: "cifar_cnn",
        about: "small image classifier, channels last",
        n_parameters: 3_249_994,
        build: cifar::cifar_cnn,
    },
    Entry {
        name: "labelfree_unet2d_256",
        about: "microscopy: image to image",
        n_parameters: 1_927_841,
        build: unet::labelfree_2d,
    },
    Entry {
        name: "seg_unet3d_64",
        about: "microscopy: segmentation of volumes",
        n_parameters: 1_401_969,
        build: unet::segmentation_3d,
    },
    Entry {
        name: "mae3d_64",
        about: "microscopy: masked autoencoder over volumes",
        n_parameters: 11_237_504,
        build: encoder::mae3d,
    },
    Entry {
        name: "gen_encoder_256",
        about: "image generation: image to latent",
        n_parameters: 3_965_956,
        build: generator::encoder,
    },
    Entry {
        name: "gen_unet_32",
        about: "image generation: denoiser",
        n_parameters: 16_935_940,
        build: generator::unet,
    },
    Entry {
        name: "gen_decoder_32",
        about: "image generation: latent to image",
        n_parameters: 3_966_083,
        build: generator::decoder,
    },
    Entry {
        name: "minilm_128",
        about: "text encoder, small",
        n_parameters: 22_564_608,
        build: encoder::minilm,
    },
    Entry {
        name: "minilm",
        about: "the same for any length up to 512",
        n_parameters: 22_564_608,
        build: encoder::minilm_any,
    },
    Entry {
        name: "bert_base_128",
        about: "text encoder",
        n_parameters: 108_890_112,
        build: encoder::bert_base,
    },
    Entry {
        name: "vit_b_16_224",
        about: "image classifier, transformer",
        n_parameters: 86_567_656,
        build: vit::vit_b_16,
    },
];

/// The names of all models.
pub fn names() -> impl ExactSizeIterator<Item = &'static str> {
    ENTRIES.iter().map(|entry| entry.name)
}

/// The graph of a model; the same seed gives the same bits everywhere.
pub fn graph(name: &str, seed: u64) -> Result<Graph, ZooError> {
    let entry = ENTRIES.iter().find(|entry| entry.name == name);
    let entry = entry.ok_or_else(|| ZooError::unknown(name))?;
    Ok(built(entry, seed)?.0)
}

/// The bytes of the model as an ONNX file.
pub fn onnx(name: &str, seed: u64) -> Result<Vec<u8>, ZooError> {
    let graph = graph(name, seed)?;
    planish_import::export(&graph).map_err(|error| ZooError::new(ZooErrorKind::Export(Box::new(error)), name))
}

/// The graph and the number of its parameters.
fn built(entry: &Entry, seed: u64) -> Result<(Graph, usize), ZooError> {
    let mut net = Net::new(entry.name, seed);
    let out = (entry.build)(&mut net)?;
    Ok(net.finish(out))
}

#[cfg(test)]
mod tests;
