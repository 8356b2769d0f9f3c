//! `--plugin FILE` of every command, and `planish plugin list|check|match`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use planish::Model;
use planish::plugin::{self, Place, Plugin};
use serde_json::json;

use crate::args::{Command, PluginCheck, PluginCommand, PluginList, PluginMatch};
use crate::ending::Answer;
use crate::files::{self, Kind};
use crate::print;

/// Loads what `--plugin` names. A library that is about to be built with is tried in a process of its own first: one that
/// crashes there is named, and this process goes on to say so.
pub(crate) fn load(paths: &[PathBuf], command: &Command) -> Result<()> {
    for path in paths {
        let builds = command.model().is_some_and(|model| !files::is(model, Kind::Plan));
        if builds && path.extension().is_none_or(|extension| extension != "cu") {
            try_apart(path)?;
        }
        plugin::load(path)?;
    }
    Ok(())
}

/// `planish plugin check FILE --device cpu` in a process of its own.
fn try_apart(path: &Path) -> Result<()> {
    let program = std::env::current_exe()?;
    let is_ours = program.file_stem().is_some_and(|name| name.to_string_lossy().starts_with("planish"));
    let mut process = Process::new(&program);
    if !is_ours {
        // A Python that has the package.
        process.args(["-m", "planish"]);
    }
    process.args(["plugin", "check", "--device", "cpu"]).arg(path);
    let ended = process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    let said = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let said = said.trim_start_matches("error: ");
    if ended.status.code().is_some_and(|code| code == 2 || code == 3) && !said.is_empty() {
        bail!("{said}");
    }
    let failed = String::from_utf8_lossy(&ended.stdout).into_owned();
    match (ended.status.code(), failed.lines().find(|line| line.contains("FAILED"))) {
        (Some(1), Some(line)) => bail!(
            "the plugin {} does not compute what its reference does: {}",
            path.display(),
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        ),
        // Its last words say by which signal, where it could still say them.
        (code, _) => bail!(
            "the plugin {0} crashed while it was tried ({1}); `planish plugin check {0}` does it again",
            path.display(),
            if code.is_some() && !said.is_empty() { said.to_string() } else { ended.status.to_string() },
        ),
    }
}

pub(crate) fn command(args: &PluginCommand, out: &mut dyn Write) -> Result<Answer> {
    match args {
        PluginCommand::List(args) => list(args, out),
        PluginCommand::Check(args) => check(args, out),
        PluginCommand::Match(args) => put_in(args, out),
    }
}

/// The plugins of these files, or all that are loaded.
fn of_files(paths: &[PathBuf]) -> Result<Vec<Arc<Plugin>>> {
    let mut all = Vec::new();
    for path in paths {
        all.extend(plugin::load(path)?);
    }
    if paths.is_empty() {
        all = plugin::loaded();
    }
    if all.is_empty() {
        bail!("no plugins: give files, .cu or shared libraries");
    }
    Ok(all)
}

fn list(args: &PluginList, out: &mut dyn Write) -> Result<Answer> {
    let plugins = of_files(&args.files)?;
    let devices = |plugin: &Plugin| {
        let places = [(Place::Cpu, "cpu"), (Place::Cuda, "cuda")];
        places.iter().filter(|(place, _)| plugin.runs_on(*place)).map(|(_, name)| *name).collect::<Vec<_>>()
    };
    let tactics = |plugin: &Plugin| {
        plugin.declaration().tactics.iter().map(|rule| rule.name.clone()).collect::<Vec<_>>()
    };
    if !args.json.replaces_tables() {
        for plugin in &plugins {
            let (identity, declaration) = (plugin.identity(), plugin.declaration());
            writeln!(out, "{identity}  hash {}  {}", identity.hash, identity.origin)?;
            if !declaration.about.is_empty() {
                writeln!(out, "  {}", declaration.about)?;
            }
            // What it takes, as it was written.
            let shown =
                ["types:", "inputs:", "outputs:", "where:", "attributes:", "reference:", "tolerance:"];
            let is_shown = |line: &&str| shown.iter().any(|key| line.trim_start().starts_with(key));
            for line in plugin.text().lines().filter(is_shown) {
                writeln!(out, "  {}", line.trim())?;
            }
            writeln!(
                out,
                "  devices: {}; tactics: {}",
                devices(plugin).join(", "),
                tactics(plugin).join(", ")
            )?;
        }
    }
    let report: Vec<_> = plugins
        .iter()
        .map(|plugin| {
            let identity = plugin.identity();
            json!({
                "domain": identity.domain, "name": identity.name, "version": identity.version, "hash": identity.hash,
                "file": identity.origin, "devices": devices(plugin), "tactics": tactics(plugin),
                "declaration": plugin.text(),
            })
        })
        .collect();
    print::json(out, &args.json, &json!({ "plugins": report }))?;
    Ok(Answer::Yes)
}

fn check(args: &PluginCheck, out: &mut dyn Write) -> Result<Answer> {
    let plugins = of_files(&args.files)?;
    let mut rows = vec![
        ["operator", "by", "types", "sizes", "points", "worst", "allowed", "verdict"]
            .map(String::from)
            .to_vec(),
    ];
    let (mut report, mut is_right, mut n_tried) = (Vec::new(), true, 0);
    for plugin in &plugins {
        let checks = plugin::check(plugin, args.device)?;
        if checks.is_empty() {
            let row = [plugin.identity().to_string(), "nothing to run on this device".to_string()];
            rows.push(row.into_iter().chain((0..6).map(|_| String::new())).collect());
        }
        for check in checks {
            n_tried += 1;
            is_right &= check.failure.is_none();
            let verdict = match &check.failure {
                None => "passed".to_string(),
                Some(why) => format!("FAILED: {why}"),
            };
            report.push(json!({
                "operator": check.operator, "by": check.by, "types": check.types, "cases": check.n_cases,
                "points": check.n_points, "worst": check.worst, "allowed": check.allowed, "failure": check.failure,
            }));
            let numbers = [check.n_cases.to_string(), check.n_points.to_string()];
            let errors = [format!("{:.1e}", check.worst), format!("{:.1e}", check.allowed)];
            let words = [check.operator, check.by, check.types];
            rows.push(words.into_iter().chain(numbers).chain(errors).chain([verdict]).collect());
        }
    }
    if !args.json.replaces_tables() {
        print::table(out, &rows, &[3, 4, 5, 6])?;
    }
    print::json(out, &args.json, &json!({ "checks": report, "passed": is_right, "tried": n_tried }))?;
    Ok(if is_right { Answer::Yes } else { Answer::No })
}

fn put_in(args: &PluginMatch, out: &mut dyn Write) -> Result<Answer> {
    files::check_target(&args.output, Kind::Onnx, &[&args.model])?;
    let loaded = plugin::loaded();
    let is_asked = |plugin: &&Arc<Plugin>| {
        let identity = plugin.identity();
        args.op.as_ref().is_none_or(|op| *op == format!("{}::{}", identity.domain, identity.name))
    };
    let mut asked: Vec<&Arc<Plugin>> = loaded.iter().filter(is_asked).collect();
    asked.dedup_by_key(|plugin| plugin.identity().to_string());
    let plugin = match asked[..] {
        [plugin] => plugin,
        [] => bail!("no plugin that is loaded brings it: give its file by --plugin FILE"),
        _ => bail!("the plugins bring several operators: say which by --op DOMAIN::NAME"),
    };
    let model = Model::open(&args.model)?;
    let (matched, n) = match args.pattern.as_deref() {
        Some(file) if file.ends_with(".onnx") => {
            plugin::matched_by_model(&model, plugin, &Model::open(file)?)?
        }
        pattern => plugin::matched(&model, plugin, pattern)?,
    };
    let identity = plugin.identity();
    if n == 0 {
        return Err(anyhow!(
            "nothing in {} computes the pattern of {identity}: {} is not written",
            args.model.display(),
            args.output.display()
        ));
    }
    matched.save_onnx(&args.output)?;
    if !args.json.replaces_tables() {
        let times = if n == 1 { "once".to_string() } else { format!("{n} times") };
        writeln!(out, "{} has {identity} {times}", args.output.display())?;
    }
    print::json(out, &args.json, &json!({ "operator": identity.to_string(), "matches": n }))?;
    Ok(Answer::Yes)
}
