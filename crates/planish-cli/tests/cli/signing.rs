//! `planish sign`, `planish verify`, and commands that take code from signed plans alone.

use std::fs;

use crate::{Folder, fails, linear, planish, succeeds};

/// A folder with a plan and two keys in it: `plan`, `own.key`, `other.key`.
fn made(name: &str) -> (Folder, String) {
    let folder = Folder::new(name);
    let model = folder.put("linear.onnx", &linear());
    let plan = folder.path("linear.plan").display().to_string();
    succeeds(&["build", &model, "-o", &plan, "--device", "cpu", "--tune-level", "0", "--no-verify"]);
    for key in ["own.key", "other.key"] {
        succeeds(&["sign", "--new-key", &folder.path(key).display().to_string()]);
    }
    (folder, plan)
}

#[test]
fn signatures_hold_for_one_plan_and_one_key() {
    let (folder, plan) = made("signing");
    let path = |name: &str| folder.path(name).display().to_string();
    let said = succeeds(&["sign", &plan, "--key", &path("own.key")]).stdout;
    assert!(said.contains("linear.plan.sig is the signature of"), "{said}");
    let said = succeeds(&["verify", &plan, "--key", &path("own.key.pub")]).stdout;
    assert!(said.contains("is signed by ed25519 "), "{said}");
    succeeds(&["verify", &plan, "--key", &path("other.key.pub"), "--key", &path("own.key.pub")]);
    let refused = planish(&["verify", &plan, "--key", &path("other.key.pub")]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stdout.contains("which is not trusted"), "{}", refused.stdout);
    // Another plan under the same signature.
    let model = path("linear.onnx");
    let other = path("other.plan");
    succeeds(&["build", &model, "-o", &other, "--device", "cpu", "--shapes", "x:2x3", "--no-verify"]);
    let (own, signature) = (path("own.key.pub"), format!("{plan}.sig"));
    let moved = ["verify", &other, "--key", &own, "--signature", &signature, "--json"];
    let refused = planish(&moved);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    let json: serde_json::Value = serde_json::from_str(&refused.stdout).unwrap();
    assert_eq!(json["signed"], false);
    assert!(json["why"].as_str().unwrap().contains("another plan"), "{json}");
    // A plan that was changed is refused by its checksums already.
    let mut bytes = fs::read(&plan).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&plan, bytes).unwrap();
    assert_eq!(planish(&["verify", &plan, "--key", &own]).code, Some(2));
}

#[test]
fn commands_run_signed_plans_alone_where_that_is_asked_for() {
    let (folder, plan) = made("trusting");
    let path = |name: &str| folder.path(name).display().to_string();
    let (own, other) = (path("own.key.pub"), path("other.key.pub"));
    let run = |key: &str| {
        planish(&["run", &plan, "--random", "1", "--device", "cpu", "--code", "signed", "--trusted-key", key])
    };
    let unsigned = run(&own);
    assert_eq!(unsigned.code, Some(2));
    assert!(unsigned.stderr.contains("cannot read the signature"), "{}", unsigned.stderr);
    succeeds(&["sign", &plan, "--key", &path("own.key")]);
    assert_eq!(run(&own).code, Some(0), "{}", run(&own).stderr);
    let strange = run(&other);
    assert_eq!(strange.code, Some(2));
    assert!(strange.stderr.contains("is not trusted: it is signed by the key"), "{}", strange.stderr);
    let model = path("linear.onnx");
    let line = "--code signed is for a plan, {}/linear.onnx is none; its code would be made here";
    let arguments =
        ["run", &model, "--random", "1", "--device", "cpu", "--code", "signed", "--trusted-key", &own];
    fails(&folder, &arguments, 2, line);
    let line = "--code signed needs the public keys that are trusted; add --trusted-key FILE";
    fails(&folder, &["run", &plan, "--random", "1", "--device", "cpu", "--code", "signed"], 2, line);
    let line = "--trusted-key and --signature are for --code signed";
    fails(&folder, &["run", &plan, "--random", "1", "--device", "cpu", "--trusted-key", &own], 2, line);
    succeeds(&["run", &plan, "--random", "1", "--device", "cpu", "--code", "compile"]);
}

#[test]
fn keys_are_files_that_are_never_replaced() {
    let (folder, plan) = made("keys");
    let path = |name: &str| folder.path(name).display().to_string();
    let text = fs::read_to_string(folder.path("own.key.pub")).unwrap();
    assert!(text.starts_with("planish public key 1\ned25519 "), "{text}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(folder.path("own.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let again = planish(&["sign", "--new-key", &path("own.key")]);
    assert_eq!(again.code, Some(2));
    assert!(again.stderr.contains("own.key.pub: File exists"), "{}", again.stderr);
    assert_eq!(fs::read_to_string(folder.path("own.key.pub")).unwrap(), text);
    // A public key does not sign, a private one does not verify, and a plan is neither.
    fails(
        &folder,
        &["sign", &plan, "--key", &path("own.key.pub")],
        2,
        "{}/own.key.pub: this is not a private key: it begins with `planish public key 1`",
    );
    assert!(!folder.path("linear.plan.sig").exists());
    succeeds(&["sign", &plan, "--key", &path("own.key"), "-o", &path("a.sig")]);
    fails(
        &folder,
        &["verify", &plan, "--key", &path("own.key"), "--signature", &path("a.sig")],
        2,
        "{}/own.key: this is not a public key: it begins with `planish private key 1`",
    );
    let line =
        "{}/linear.plan: this is not a public key of Planish; its first line is not `planish public key 1`";
    fails(&folder, &["verify", &plan, "--key", &plan, "--signature", &path("a.sig")], 2, line);
    assert_eq!(planish(&["sign", &plan]).code, Some(2));
    assert_eq!(planish(&["sign", &path("linear.onnx"), "--key", &path("own.key")]).code, Some(2));
}
