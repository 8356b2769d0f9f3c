//! The flags of trtexec 8 to 11, those removed since included: which take a value, and which have no effect here and why.

use anyhow::{Result, bail};

/// What a flag is to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    /// It does what it does in trtexec.
    Acts,
    /// Accepted, and said to have no effect, with the reason.
    Nothing(&'static str),
    /// Refused: what it asks for cannot be had, and a result without it would be another one.
    Refused(&'static str),
}

use Effect::{Acts, Nothing, Refused};

/// A flag of trtexec.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    /// What its value is called in the help; empty for a switch.
    pub(super) value: &'static str,
    pub(super) effect: Effect,
}

const fn flag(name: &'static str, value: &'static str, effect: Effect) -> Flag {
    Flag { name, value, effect }
}

const OLD_FORMAT: Effect =
    Refused("TensorRT dropped Caffe and UFF models; convert the model to ONNX and give --onnx");
const DLA: Effect = Nothing("there is no DLA here");
const PLUGINS: Effect = Nothing("TensorRT's plugin libraries cannot be loaded");
const ROUTES: Effect = Nothing("TensorRT's build routes do not exist here");
const OWN_TYPES: Effect = Nothing("inputs and outputs have the types and layouts that the model says");
const ALWAYS_REFITS: Effect = Nothing("every plan can be refitted, see `planish refit`");
const ALWAYS_GRAPHS: Effect = Nothing("runs on a GPU are captured as CUDA graphs by themselves");
const ONE_BINARY: Effect = Nothing("a plan of another version is built again from the graph that it carries");
const DEBUG_TENSORS: Effect = Nothing("`planish run MODEL.onnx --dump-tensors GLOB` writes tensors");

/// All of them, in the order of trtexec's help.
pub(super) const FLAGS: &[Flag] = &[
    // The model.
    flag("onnx", "FILE", Acts),
    flag("loadEngine", "FILE.plan", Acts),
    flag("uff", "FILE", OLD_FORMAT),
    flag("model", "FILE", OLD_FORMAT),
    flag("deploy", "FILE", OLD_FORMAT),
    flag("uffInput", "SPEC", OLD_FORMAT),
    flag("uffNHWC", "", OLD_FORMAT),
    flag("output", "NAME", Nothing("an ONNX file names its outputs; `planish extract` takes others")),
    // The build.
    flag("saveEngine", "FILE.plan", Acts),
    flag("fp16", "", Acts),
    flag("bf16", "", Acts),
    flag("int8", "", Acts),
    flag("best", "", Acts),
    flag("noTF32", "", Acts),
    flag("stronglyTyped", "", Acts),
    flag("calib", "FILE", Acts),
    flag("shapes", "NAME:SIZES,…", Acts),
    flag("minShapes", "NAME:SIZES,…", Acts),
    flag("optShapes", "NAME:SIZES,…", Acts),
    flag("maxShapes", "NAME:SIZES,…", Acts),
    flag("profile", "N", Acts),
    flag("memPoolSize", "POOL:SIZE,…", Acts),
    flag("workspace", "MIB", Acts),
    flag("timingCacheFile", "FILE", Acts),
    flag("errorOnTimingCacheMiss", "", Acts),
    flag("builderOptimizationLevel", "0..5", Acts),
    flag("layerPrecisions", "NAME:TYPE,…", Acts),
    flag("precisionConstraints", "none|prefer|obey", Acts),
    flag("tacticSources", "±NAME,…", Acts),
    flag("sparsity", "disable|enable|force", Acts),
    flag("cpuOnly", "", Acts),
    flag("skipInference", "", Acts),
    flag("buildOnly", "", Acts),
    flag("profilingVerbosity", "layer_names_only|detailed|none", Acts),
    flag("fp8", "", Acts),
    flag(
        "int4",
        "",
        Nothing("a model's own integers of 4 bits are kept; `planish build --weights int4` stores others so"),
    ),
    flag("layerPrecision", "SPEC", Nothing("TensorRT spells it --layerPrecisions")),
    flag("layerOutputTypes", "SPEC", Nothing("a layer's outputs have the type that it computes in")),
    flag("layerDeviceTypes", "SPEC", DLA),
    flag(
        "decomposableAttentions",
        "SPEC",
        Nothing("attention is recognized and fused wherever kernels allow it"),
    ),
    flag("calibProfile", "N", Nothing("a calibration holds for all shapes")),
    flag("minShapesCalib", "SPEC", Nothing("a calibration holds for all shapes")),
    flag("optShapesCalib", "SPEC", Nothing("a calibration holds for all shapes")),
    flag("maxShapesCalib", "SPEC", Nothing("a calibration holds for all shapes")),
    flag("inputIOFormats", "SPEC", Effect::Acts),
    flag("outputIOFormats", "SPEC", Effect::Acts),
    flag("directIO", "", OWN_TYPES),
    flag("batch", "N", Nothing("the batch is a dimension of the inputs; give it in --shapes")),
    flag("maxBatch", "N", Nothing("the batch is a dimension of the inputs; give it in --maxShapes")),
    flag("explicitBatch", "", Nothing("ONNX models always say their batch")),
    flag(
        "explicitPrecision",
        "",
        Nothing("QuantizeLinear and DequantizeLinear of a model are always honoured"),
    ),
    flag("minTiming", "N", Nothing("the tuner decides how often it measures")),
    flag("avgTiming", "N", Nothing("the tuner decides how often it measures")),
    flag("maxTactics", "N", Nothing("--builderOptimizationLevel says how many candidates are measured")),
    flag("heuristic", "", Nothing("--builderOptimizationLevel=0 goes by the cost model alone")),
    flag("refit", "", ALWAYS_REFITS),
    flag("refitFromOnnx", "FILE", ALWAYS_REFITS),
    flag("timeRefit", "", ALWAYS_REFITS),
    flag("dumpRefit", "", ALWAYS_REFITS),
    flag("stripWeights", "", Nothing("a plan carries its weights")),
    flag("stripAllWeights", "", Nothing("a plan carries its weights")),
    flag("weightless", "", Nothing("a plan carries its weights")),
    flag(
        "allowWeightStreaming",
        "",
        Nothing("any plan can be opened so: `planish bench --weight-budget BYTES`"),
    ),
    flag("weightStreamingBudget", "SIZE", Nothing("`planish bench --weight-budget BYTES` streams weights")),
    flag("restricted", "", Nothing("there is no safety scope here")),
    flag("safe", "", Nothing("there is no safety runtime here")),
    flag("consistency", "", Nothing("every plan is checked against the reference when it is built")),
    flag("std", "", Nothing("there is no safety runtime here")),
    flag("serialized", "FILE", Nothing("there is no safety runtime here")),
    flag("dumpKernelText", "", Nothing("`planish inspect --code FOLDER` writes a plan's code")),
    flag("noBuilderCache", "", Nothing("only --timingCacheFile brings a timing cache in")),
    flag("noCompilationCache", "", Nothing("compiled kernels are part of the plan")),
    flag("preview", "±NAME,…", Nothing("TensorRT's preview features do not exist here")),
    flag(
        "hardwareCompatibilityLevel",
        "LEVEL",
        Nothing("a plan of another GPU is built again from the graph that it carries"),
    ),
    flag(
        "runtimePlatform",
        "NAME",
        Nothing("a plan of another machine is built again from the graph that it carries"),
    ),
    flag("versionCompatible", "", ONE_BINARY),
    flag("vc", "", ONE_BINARY),
    flag("excludeLeanRuntime", "", ONE_BINARY),
    flag("useRuntime", "full|lean|dispatch", ONE_BINARY),
    flag("leanDLLPath", "FILE", ONE_BINARY),
    flag("tempdir", "FOLDER", Nothing("nothing is unpacked to files")),
    flag("tempfileControls", "SPEC", Nothing("nothing is unpacked to files")),
    flag(
        "maxAuxStreams",
        "N",
        Nothing("`planish bench --streams N` says over how many streams branches are spread"),
    ),
    flag("tilingOptimizationLevel", "N", Nothing("tiles are part of the tactics that compete")),
    flag("l2LimitForTiling", "SIZE", Nothing("tiles are part of the tactics that compete")),
    flag("remoteAutoTuningConfig", "URL", Nothing("tactics are measured on this machine")),
    flag("distributiveIndependence", "", Nothing("results do not depend on the place in a batch")),
    flag("monitorMemory", "", Nothing("`planish bench` prints the memory of plans and contexts")),
    flag("nativeInstanceNorm", "", Nothing("there is one InstanceNormalization")),
    flag("ni", "", Nothing("there is one InstanceNormalization")),
    flag("pluginInstanceNorm", "", Nothing("there is one InstanceNormalization")),
    flag("pi", "", Nothing("there is one InstanceNormalization")),
    flag("enablePluginOverride", "", PLUGINS),
    flag("saveAllEngines", "", ROUTES),
    flag("setBuildRoute", "SPEC", ROUTES),
    flag("helpBuildRoute", "NAME", ROUTES),
    flag("tuneBuildRoutes", "SPEC", ROUTES),
    flag("tuneBuildRouteFile", "FILE", ROUTES),
    flag("tuningSearch", "NAME", ROUTES),
    flag("tuningTimeOut", "S", ROUTES),
    flag("tuningCacheFile", "FILE", ROUTES),
    flag("tuningResultFile", "FILE", ROUTES),
    flag("continue", "", ROUTES),
    flag("dryRun", "", ROUTES),
    flag("markDebug", "NAMES", DEBUG_TENSORS),
    flag("markUnfusedTensorsAsDebugTensors", "", DEBUG_TENSORS),
    flag("saveDebugTensors", "SPEC", DEBUG_TENSORS),
    flag("saveAllDebugTensors", "SPEC", DEBUG_TENSORS),
    flag("asyncFileReader", "", Nothing("plans are mapped, not read")),
    flag("getPlanVersionOnly", "", Acts),
    flag("useDLACore", "N", DLA),
    flag("allowGPUFallback", "", DLA),
    flag("buildDLAStandalone", "", DLA),
    flag("uint8AsymmetricQuantizationDLA", "", DLA),
    flag("reportCapabilityDLA", "", DLA),
    flag("adjustForDLA", "", DLA),
    // Inference.
    flag("loadInputs", "NAME:FILE,…", Acts),
    flag("loadRefOutputs", "NAME:FILE,…", Acts),
    flag("atol", "NUMBER", Acts),
    flag("rtol", "NUMBER", Acts),
    flag("iterations", "N", Acts),
    flag("warmUp", "MS", Acts),
    flag("duration", "S", Acts),
    flag("infStreams", "N", Acts),
    flag("streams", "N", Acts),
    flag("noDataTransfers", "", Acts),
    flag("useSpinWait", "", Acts),
    flag("timeDeserialize", "", Acts),
    flag(
        "accuracyAlgorithm",
        "NAME",
        Nothing("outputs are compared element by element, by --atol and --rtol"),
    ),
    flag(
        "accuracyThreshold",
        "NUMBER",
        Nothing("outputs are compared element by element, by --atol and --rtol"),
    ),
    flag("refPair", "N", Nothing("one set of inputs and outputs is compared")),
    flag("includeDataTransfers", "", Nothing("transfers are measured unless --noDataTransfers is given")),
    flag("noSpinWait", "", Nothing("waiting blocks unless --useSpinWait is given")),
    flag("threads", "", Nothing("every stream has a thread of its own")),
    flag("useCudaGraph", "", ALWAYS_GRAPHS),
    flag("noCudaGraph", "", ALWAYS_GRAPHS),
    flag("sleepTime", "MS", Nothing("runs follow each other at once")),
    flag("idleTime", "MS", Nothing("runs follow each other at once")),
    flag(
        "exposeDMA",
        "",
        Nothing(
            "transfers and computation of a context follow each other unless `planish bench --overlap` is asked",
        ),
    ),
    flag(
        "useManagedMemory",
        "",
        Nothing(
            "inputs and outputs lie in pinned memory; `planish bench --managed-weights` is about weights",
        ),
    ),
    flag("separateProfileRun", "", Nothing("layers are always profiled in runs of their own")),
    flag("persistentCacheRatio", "0..1", Nothing("the L2 cache is left to the GPU")),
    flag("useProfile", "N", Nothing("the first profile that allows the shapes of a run serves it")),
    flag("allocationStrategy", "NAME", Nothing("a context's memory is what its shapes need")),
    flag("nvtxMode", "MODE", Nothing("there are no NVTX ranges")),
    // Reports.
    flag("verbose", "", Acts),
    flag("avgRuns", "N", Acts),
    flag("percentile", "P,…", Acts),
    flag("dumpOutput", "", Acts),
    flag("dumpProfile", "", Acts),
    flag("dumpLayerInfo", "", Acts),
    flag("dumpOptimizationProfile", "", Acts),
    flag("exportTimes", "FILE.json", Acts),
    flag("exportOutput", "FILE.json", Acts),
    flag("exportProfile", "FILE.json", Acts),
    flag("exportLayerInfo", "FILE.json", Acts),
    flag("dumpRawBindingsToFile", "", Nothing("--exportOutput and `planish run -o OUT.npz` write outputs")),
    // The system.
    flag("device", "N", Acts),
    flag("plugins", "FILE", PLUGINS),
    flag("staticPlugins", "FILE", PLUGINS),
    flag("dynamicPlugins", "FILE", PLUGINS),
    flag("safetyPlugins", "FILE", PLUGINS),
    flag("setPluginsToSerialize", "FILE", PLUGINS),
    flag("ignoreParsedPluginLibs", "", PLUGINS),
    flag("help", "", Acts),
];

/// A flag as it was given.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) flag: Flag,
    pub(super) value: String,
}

/// Reads `--flag`, `--flag=value` and `--flag value`.
pub(super) fn parse(arguments: &[String]) -> Result<Vec<Given>> {
    let mut given = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let text = if argument == "-h" { "--help" } else { argument };
        let Some(text) = text.strip_prefix("--") else {
            bail!("`{argument}` is no flag; trtexec's flags begin with --, as in --onnx={argument}");
        };
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let Some(flag) = FLAGS.iter().find(|flag| flag.name == name) else {
            let near = FLAGS.iter().find(|flag| flag.name.eq_ignore_ascii_case(name));
            let hint = near.map_or_else(String::new, |flag| format!("; it is spelled --{}", flag.name));
            bail!("--{name} is no flag of trtexec{hint}; `planish trtexec --help` lists them");
        };
        let value = match (flag.value.is_empty(), value) {
            (true, None | Some("1" | "true" | "enable")) => String::new(),
            (true, Some(value)) => bail!("--{name} takes no value, `{value}` was given"),
            (false, Some("")) => bail!("--{name} has an empty value; give --{name}={}", flag.value),
            (false, Some(value)) => value.to_string(),
            (false, None) => match rest.next() {
                Some(value) if !value.starts_with("--") => value.clone(),
                _ => bail!("--{name} takes a value: --{name}={}", flag.value),
            },
        };
        if let Refused(why) = flag.effect {
            bail!("--{name}: {why}");
        }
        given.push(Given { flag: *flag, value });
    }
    Ok(given)
}

/// What each flag that was given and has no effect is told, once.
pub(super) fn without_effect(given: &[Given]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for Given { flag, .. } in given {
        if let Nothing(why) = flag.effect {
            let line = format!("--{} has no effect here: {why}", flag.name);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Vec<(String, String)>> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        Ok(parse(&arguments)?.into_iter().map(|given| (given.flag.name.to_string(), given.value)).collect())
    }

    #[test]
    fn flags_have_two_spellings() {
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        let all = parsed(&["--onnx=a.onnx", "--fp16", "--shapes", "x:1x3", "-h"]).unwrap();
        assert_eq!(
            all,
            [pair("onnx", "a.onnx"), pair("fp16", ""), pair("shapes", "x:1x3"), pair("help", "")]
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (arguments, wanted) in [
            (&["--nope"][..], "--nope is no flag of trtexec; `planish trtexec --help` lists them"),
            (
                &["--FP16"],
                "--FP16 is no flag of trtexec; it is spelled --fp16; `planish trtexec --help` lists them",
            ),
            (&["--onnx"], "--onnx takes a value: --onnx=FILE"),
            (&["--onnx", "--fp16"], "--onnx takes a value: --onnx=FILE"),
            (&["--fp16=no"], "--fp16 takes no value, `no` was given"),
            (&["a.onnx"], "`a.onnx` is no flag; trtexec's flags begin with --, as in --onnx=a.onnx"),
            (
                &["--uff=a"],
                "--uff: TensorRT dropped Caffe and UFF models; convert the model to ONNX and give --onnx",
            ),
        ] {
            assert_eq!(parsed(arguments).unwrap_err().to_string(), wanted);
        }
    }

    #[test]
    fn names_are_given_once_and_reasons_too() {
        for (idx, flag) in FLAGS.iter().enumerate() {
            assert!(!FLAGS[..idx].iter().any(|other| other.name == flag.name), "{} twice", flag.name);
        }
        let arguments = ["--useCudaGraph", "--useCudaGraph", "--verbose"].map(String::from);
        assert_eq!(
            without_effect(&parse(&arguments).unwrap()),
            ["--useCudaGraph has no effect here: runs on a GPU are captured as CUDA graphs by themselves"]
        );
    }
}
