//! What becomes of a plan after its build: metadata, plans without weights, plans of older versions.

use std::fs;
use std::path::PathBuf;

use crate::{Folder, elements_f32, linear, planish, succeeds};

/// A file of `tests/data/old_plans`.
fn kept(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/old_plans");
    folder.join(name).display().to_string()
}

/// A plan of each older format that is read.
const OLD_PLANS: [&str; 1] = ["format4.plan"];

/// What other kernels may round otherwise: sums of at most 24 products of numbers near 1.
const CLOSE: f32 = 1e-5;

/// Plans of every older format open, with a note, and compute what they did.
#[test]
fn plans_of_older_formats_are_built_again_with_a_note() {
    let folder = Folder::new("old-plans");
    for old in OLD_PLANS {
        let (plan, input) = (kept(old), format!("x={}", kept("x.npy")));
        let results = folder.path("results");
        let results_text = results.display().to_string();
        let ended = planish(&["run", &plan, "--device", "cpu", "--input", &input, "-o", &results_text]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stderr.contains("the plan has format version 4, built by Planish"), "{}", ended.stderr);
        assert!(ended.stderr.contains("it is built again for this machine"), "{}", ended.stderr);
        let (is, was) = (elements_f32(&results.join("l.npy")), elements_f32(kept("l.npy").as_ref()));
        assert_eq!(is.len(), was.len());
        let far = is.iter().zip(&was).find(|(is, was)| (*is - *was).abs() > CLOSE);
        assert_eq!(far, None);
        let said = succeeds(&["inspect", &plan, "--metadata"]).stdout;
        assert!(said.contains("versions    format 4, program 3: is built again before it runs\n"), "{said}");
        // One bit of it is still noticed.
        let mut bytes = fs::read(&plan).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let damaged = folder.put("damaged.plan", &bytes);
        assert_eq!(planish(&["run", &damaged, "--device", "cpu"]).code, Some(2));
    }
}

#[test]
fn metadata_is_shown_without_opening_the_plan() {
    let folder = Folder::new("metadata");
    let plan = folder.path("digits.plan").display().to_string();
    succeeds(&[
        "build",
        &kept("digits.onnx"),
        "-o",
        &plan,
        "--device",
        "cpu",
        "--tune-level",
        "0",
        "--meta",
        "team=vision",
        "--meta",
        "labels=a=b",
    ]);
    let said = succeeds(&["inspect", &plan, "--metadata"]).stdout;
    for line in [
        "precision   fp32\n",
        "inputs      x f32[batch,1,12,12]\n",
        "outputs     l f32[batch,10]\n",
        "certificate checked\n",
        // Of the model's file, and of the command.
        "metadata    author=tests\n",
        "metadata    labels=a=b\n",
        "metadata    team=vision\n",
    ] {
        assert!(said.contains(line), "{line}{said}");
    }
    // The rest of the file is not read.
    let mut bytes = fs::read(&plan).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let damaged = folder.put("damaged.plan", &bytes);
    let ended = succeeds(&["inspect", &damaged, "--metadata", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["metadata"]["team"], "vision");
    assert_eq!(report["targets"][0]["backend"], "cpu");
    assert_eq!(planish(&["inspect", &damaged]).code, Some(2));
    let ended = planish(&["build", &kept("digits.onnx"), "-o", &plan, "--meta", "no pair"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("give KEY=VALUE"), "{}", ended.stderr);
    // A plan that is built again keeps what its owner said.
    let other = planish::record::Plan::open(plan.as_ref()).unwrap();
    assert_eq!(other.header.metadata.len(), 3);
}

#[test]
fn a_stripped_plan_is_filled_again_from_its_model() {
    let folder = Folder::new("strip");
    let path = |name: &str| folder.path(name).display().to_string();
    let (model, plan) = (kept("digits.onnx"), path("full.plan"));
    let build = |output: &str, more: &[&str]| {
        let base = ["build", &model, "-o", output, "--device", "cpu", "--tune-level", "0"];
        succeeds(&[&base[..], more].concat())
    };
    build(&plan, &[]);
    let (stripped, again) = (path("stripped.plan"), path("again.plan"));
    succeeds(&["sign", "--new-key", &path("own.key")]);
    succeeds(&["sign", &plan, "--key", &path("own.key")]);
    let said = succeeds(&["strip", &plan, "-o", &stripped]).stdout;
    assert!(said.contains("fill    planish refit "), "{said}");
    build(&path("built.plan"), &["--strip-weights"]);
    assert_eq!(fs::read(path("built.plan")).unwrap(), fs::read(&stripped).unwrap());
    // It cannot run, and says what to do.
    for command in [&["run"][..], &["bench", "--duration", "10ms"]] {
        let ended = planish(&[command, &[&stripped, "--device", "cpu"]].concat());
        assert_eq!(ended.code, Some(2));
        let line = ended.stderr.lines().last().unwrap();
        assert!(line.contains("stripped of its weights; fill it again with `planish refit "), "{line}");
    }
    let ended = planish(&["bundle", &stripped, "-o", &path("bundle.plan")]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.starts_with(&format!("error: {stripped} was stripped of its weights; ")),
        "{}",
        ended.stderr
    );
    assert!(succeeds(&["inspect", &stripped]).stdout.contains("weights     left out, "));
    assert_eq!(planish(&["strip", &stripped, "-o", &path("twice.plan")]).code, Some(2));
    // The same model gives the same plan: its certificate and its signature hold again.
    let said = succeeds(&["refit", &stripped, &model, "-o", &again]).stdout;
    assert!(said.contains("certificate checked\n"), "{said}");
    assert_eq!(fs::read(&again).unwrap(), fs::read(&plan).unwrap());
    let (key, signature) = (path("own.key.pub"), format!("{plan}.sig"));
    succeeds(&["verify", &again, "--key", &key, "--signature", &signature]);
    // That of the full plan says nothing of the stripped one, which has one of its own.
    assert_eq!(planish(&["verify", &stripped, "--key", &key, "--signature", &signature]).code, Some(1));
    succeeds(&["sign", &stripped, "--key", &path("own.key")]);
    succeeds(&["verify", &stripped, "--key", &key]);
    // Another model of the graph gives a plan that counts as unchecked, another graph none.
    let mut bytes = fs::read(&model).unwrap();
    // The name of the tensor `b1`, its field of raw data, and in that the second byte of the first number.
    let at = bytes.windows(5).position(|five| five == b"\x42\x02b1\x4a").unwrap() + 6;
    bytes[at + 1] ^= 0x10;
    let other = folder.put("other.onnx", &bytes);
    let said = succeeds(&["refit", &stripped, &other, "-o", &path("other.plan")]).stdout;
    assert!(said.contains("certificate unchecked since refit\n"), "{said}");
    let ended = planish(&["refit", &stripped, &folder.put("l.onnx", &linear()), "-o", &path("no.plan")]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(2), 1), "{}", ended.stderr);
    assert!(!folder.path("no.plan").exists());
}

#[test]
fn weights_are_replaced_by_name() {
    let folder = Folder::new("refit-named");
    let path = |name: &str| folder.path(name).display().to_string();
    let (plan, newer) = (path("old.plan"), path("new.plan"));
    let (fp16, model) = (path("fp16.plan"), kept("digits.onnx"));
    for (plan, precision) in [(&plan, "fp32"), (&fp16, "fp16")] {
        let words = [
            "build",
            &kept("digits.onnx"),
            "-o",
            plan,
            "--device",
            "cpu",
            "--tune-level",
            "0",
            "--precision",
        ];
        succeeds(&[&words[..], &[precision]].concat());
    }
    let save = |name: &str, weights: &[(&str, &[usize], f32)]| {
        let one = |(name, dims, value): &(&str, &[usize], f32)| {
            let tensor = planish::Tensor::new(dims, vec![*value; dims.iter().product()]).unwrap();
            (name.to_string(), tensor)
        };
        let file = folder.path(name);
        planish::io::npy::save_archive(&file, &weights.iter().map(one).collect::<Vec<_>>()).unwrap();
        file.display().to_string()
    };
    // The last layer gives its bias alone.
    let weights = save("weights.npz", &[("w4", &[10, 24], 0.0), ("b4", &[10], 2.5)]);
    for plan in [&plan, &fp16] {
        let said = succeeds(&["refit", plan, &model, "--weights", &weights, "-o", &newer]).stdout;
        assert!(said.contains("certificate unchecked since refit\n"), "{said}");
        let (results, input) = (path("results"), format!("x={}", kept("x.npy")));
        succeeds(&["run", &newer, "--device", "cpu", "--input", &input, "-o", &results]);
        assert_eq!(elements_f32(&folder.path("results").join("l.npy")), [2.5; 20]);
        succeeds(&["refit", plan, &model, "--weights", &weights, "-o", &newer, "--check"]);
    }
    for (bad, why) in [
        (save("a.npz", &[("no such", &[1], 0.0)]), "the model has no weight `no such`"),
        (save("b.npz", &[("b4", &[11], 0.0)]), "the weight `b4` is f32[10], f32[11] is given"),
        (save("c.npz", &[("slope", &[1], 0.5)]), "build it again from the new model"),
        (save("d.npz", &[("pick", &[18], 0.5)]), "`pick` is i64[18]; weights of floats can be replaced"),
    ] {
        let ended = planish(&["refit", &plan, &model, "--weights", &bad, "-o", &path("no.plan")]);
        assert_eq!((ended.code, ended.stderr.lines().count()), (Some(2), 1), "{}", ended.stderr);
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    }
    assert!(!folder.path("no.plan").exists());
}

#[test]
fn one_file_has_plans_for_several_targets() {
    let folder = Folder::new("targets");
    let path = |name: &str| folder.path(name).display().to_string();
    let (model, both) = (kept("digits.onnx"), path("both.plan"));
    let widest = std::env::var("PLANISH_ISA").is_err() && std::arch::is_x86_feature_detected!("avx2");
    if !widest {
        return;
    }
    let said = succeeds(&[
        "build",
        &model,
        "-o",
        &both,
        "--target",
        "portable,avx2",
        "--tune-level",
        "0",
        "--threads",
        "1",
    ]);
    assert!(said.stdout.contains("built   portable: ") && said.stdout.contains("built   avx2: "));
    let listed = succeeds(&["inspect", &both]).stdout;
    assert!(listed.contains("plan 0  cpu with portable, fp32: checked\n"), "{listed}");
    assert!(listed.contains("plan 1  cpu with avx2, fp32: checked, opened here\n"), "{listed}");
    // Weights stand there once.
    let alone: Vec<String> = ["portable", "avx2"].map(|target| path(&format!("{target}.plan"))).to_vec();
    for (target, plan) in ["portable", "avx2"].iter().zip(&alone) {
        succeeds(&["build", &model, "-o", plan, "--target", target, "--tune-level", "0", "--threads", "1"]);
    }
    let bundled = path("bundled.plan");
    succeeds(&["bundle", &alone[0], &alone[1], "-o", &bundled]);
    assert_eq!(fs::read(&bundled).unwrap(), fs::read(&both).unwrap());
    let len = |plan: &str| fs::metadata(plan).unwrap().len();
    assert!(len(&both) + 4000 < len(&alone[0]) + len(&alone[1]), "{} {}", len(&both), len(&alone[0]));
    // The answers of each machine's own plan, under the file's signature.
    succeeds(&["sign", "--new-key", &path("own.key")]);
    succeeds(&["sign", &both, "--key", &path("own.key")]);
    succeeds(&["verify", &both, "--key", &path("own.key.pub")]);
    let input = format!("x={}", kept("x.npy"));
    for (isa, own) in ["portable", "avx2"].iter().zip(&alone) {
        let answer = |plan: &str, results: &str, more: &[&str]| {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_planish"));
            command.args(["run", plan, "--device", "cpu", "--no-cache", "--input", &input, "-o", results]);
            let ended = command.args(more).env("PLANISH_ISA", isa).output().unwrap();
            let said = String::from_utf8(ended.stderr).unwrap();
            assert!(ended.status.success() && !said.contains("built again"), "{said}");
            elements_f32(&std::path::Path::new(results).join("l.npy"))
        };
        let (key, of_both, of_own) = (path("own.key.pub"), path("of_both"), path("of_own"));
        let signed = ["--code", "signed", "--trusted-key", &key];
        assert_eq!(answer(&both, &of_both, &signed), answer(own, &of_own, &[]));
    }
    // The one that is opened here is checked again, and the other one stays.
    planish(&["check", &both, "--duration", "10ms"]);
    let listed = succeeds(&["inspect", &both]).stdout;
    assert!(
        listed.contains("plan 0  cpu with portable") && listed.contains("plan 1  cpu with avx2"),
        "{listed}"
    );
    // Not of one model, not for other targets, and nothing of the kind.
    let other = folder.put("linear.onnx", &linear());
    let linear_plan = path("linear.plan");
    succeeds(&["build", &other, "-o", &linear_plan, "--target", "avx2", "--tune-level", "0"]);
    for (plans, why) in [
        ([&alone[0], &linear_plan], "are not of one model"),
        ([&alone[0], &alone[0]], "two plans are for cpu with portable"),
    ] {
        let ended = planish(&["bundle", plans[0], plans[1], "-o", &path("no.plan")]);
        assert_eq!((ended.code, ended.stderr.lines().count()), (Some(2), 1), "{}", ended.stderr);
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    }
    let ended = planish(&["build", &model, "-o", &path("no.plan"), "--target", "z80"]);
    assert!(ended.code == Some(2) && ended.stderr.contains("`z80` is not a target"), "{}", ended.stderr);
    assert!(!folder.path("no.plan").exists());
}
