//! `planish explore`: a plan as a page: the graph before and after, every kernel and why, memory, roofline, hazards, and two
//! plans side by side.

mod serve;
mod trials;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use planish::io::Sources;
use planish::{Device, Model, Opened, Plan};
use serde_json::Value;

use crate::anatomy::{Anatomy, Measured};
use crate::args::Explore;
use crate::ending::Answer;
use crate::page::{Page, escaped};
use crate::{files, load, print, profile, say_note};

pub(crate) fn command(args: &Explore, out: &mut dyn Write) -> Result<Answer> {
    load::check_opening(&args.model, args.building.device, &args.opening)?;
    let path = args.output.clone().unwrap_or_else(|| args.model.with_extension("html"));
    let mut given = vec![args.model.as_path()];
    given.extend(args.other.as_deref());
    given.extend(args.onnx.as_deref());
    // JSON alone is no reason for a page.
    let has_place = args.output.is_some() || !args.json.replaces_tables();
    let writes_page = has_place && !args.serve;
    if writes_page {
        files::check_target(&path, files::Kind::Html, &given)?;
    }
    let model = args.onnx.as_ref().map(Model::open).transpose()?;
    let first = look(args, &args.model, model)?;
    let second = args.other.as_ref().map(|other| look(args, other, None)).transpose()?;
    print::json(out, &args.json, &first)?;
    if !args.json.replaces_tables() {
        tell(&first, out)?;
    }
    let page = page(&args.model, first, args.other.as_ref(), second).html();
    if args.serve {
        return serve::page(&page, args.port, out);
    }
    if writes_page {
        files::write(&path, |file| file.write_all(page.as_bytes()))?;
        if !args.json.replaces_tables() {
            writeln!(out, "page     {} ({})", path.display(), print::bytes(page.len() as u64))?;
        }
    }
    Ok(Answer::Yes)
}

/// A plan taken apart, with the times of its steps where it runs here.
fn look(args: &Explore, path: &Path, model: Option<Model>) -> Result<Value> {
    let (plan, model) = open(args, path, model)?;
    if let Some(model) = &model {
        ensure!(
            model.hash() == plan.record().header.source,
            "{} was built from another model than the one of --onnx",
            path.display()
        );
    }
    let engine = match load::engine(path, plan.clone(), args.building.device, &args.opening) {
        Ok(engine) => engine,
        // Of a plan for another machine everything but its times is shown.
        Err(error) if load::is_plan(path) => {
            say_note(&format!("{} does not run here, times are those of tuning: {error:#}", path.display()));
            return Ok(Anatomy::new(plan.record(), &Measured::default()).json(model.as_ref()));
        }
        Err(error) => return Err(error),
    };
    let threads = args.building.threads.unwrap_or(plan.record().header.threads as usize).max(1);
    let tuned_at = &engine.record().header.tuned_at;
    let measured = if args.no_time {
        crate::anatomy::counted(&engine, tuned_at, threads)
    } else {
        let sources = Sources { shapes: &args.building.shapes, defaults: tuned_at, ..Sources::default() };
        let fed = sources.gather_for(&engine)?;
        profile::measure(&engine, &fed, threads, args.iterations)?
    };
    let mut json = Anatomy::new(engine.record(), &measured).json(model.as_ref());
    if args.tries {
        let sources = Sources { shapes: &args.building.shapes, defaults: tuned_at, ..Sources::default() };
        let fed = sources.gather_for(&engine)?;
        let tried = trials::all(&plan, model.as_ref(), args.building.device, &fed, &json["hazards"])?;
        json["trials"] = Value::Array(tried);
    }
    Ok(json)
}

/// What was tried, in lines.
fn tell(plan: &Value, out: &mut dyn Write) -> Result<()> {
    for trial in plan["trials"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let what = text(&trial["what"]);
        match trial["failed"].as_str() {
            Some(why) => writeln!(out, "tried    {what}: {why}")?,
            None => {
                let result = &trial["result"];
                let error = result["error"].as_f64();
                let error = error.map_or_else(String::new, |error| format!(", results {error:.1e} apart"));
                writeln!(out, "tried    {what}: {}{error}", text(&result["line"]))?;
            }
        }
    }
    Ok(())
}

/// The file's own plan, for whatever machine it is; a model is built.
fn open(args: &Explore, path: &Path, model: Option<Model>) -> Result<(Plan, Option<Model>)> {
    if !load::is_plan(path) {
        let is_beside_another = model.is_some();
        let model = Model::open(path)?;
        if is_beside_another {
            bail!("--onnx is for a plan; {} is a model, whose graph is shown as it is", path.display());
        }
        load::check_device(args.building.device)?;
        let made = load::build_in_memory(path, model.clone(), &args.building, args.no_cache)?;
        // Where names of sizes had to be taken apart, the model that was built is another one.
        let is_same = model.hash() == made.plan.record().header.source;
        return Ok((made.plan, is_same.then_some(model)));
    }
    let plan = match Plan::open_for(path, Device::Auto) {
        Ok(Opened::Fits(plan)) => plan,
        // Its program can be read, it only does not run here.
        _ => Plan::open(path).with_context(|| format!("cannot show {}", path.display()))?,
    };
    load::say_if_unchecked(plan.record());
    Ok((plan, model))
}

fn page(path: &Path, first: Value, other_path: Option<&PathBuf>, second: Option<Value>) -> Page {
    let name = |path: &Path| escaped(&path.file_name().unwrap_or_default().to_string_lossy());
    let title = match other_path {
        Some(other) => format!("{} against {}", name(path), name(other)),
        None => name(path),
    };
    let about = |value: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let n = value["layers"].as_array().map_or(0, Vec::len);
        let time =
            value["total_us"].as_f64().map_or_else(String::new, |us| format!(", {:.3} ms a run", us / 1e3));
        let device =
            value["targets"].as_array().and_then(|list| list.last()).map(|target| text(&target["device"]));
        escaped(&format!("{}: {n} layers{time} on {}", text(&value["name"]), device.unwrap_or_default()))
    };
    let has_nodes = first["nodes"].is_array();
    let mut tabs = vec![
        ("layers", "Layers"),
        ("graph", "Graph"),
        ("memory", "Memory"),
        ("roof", "Roofline"),
        ("hazards", "Hazards"),
    ];
    let mut diff = String::new();
    if let Some(second) = &second {
        tabs.push(("diff", "Diff"));
        diff = format!(
            "<section class=\"view\" id=\"view-diff\"><p class=\"tip\">&nbsp; <label><input type=\"checkbox\" id=\"changed\"> \
             only other kernels or precisions</label> &nbsp; there: {}</p><div class=\"head diff\" id=\"diff-head\"></div>\
             <div class=\"list\" id=\"diff-list\"></div></section>",
            about(second)
        );
    }
    let tabs: String = tabs
        .iter()
        .map(|(id, name)| format!("<button data-view=\"{id}\" aria-selected=\"false\">{name}</button>"))
        .collect();
    let before = match has_nodes {
        true => {
            "<div class=\"head nodes\"><span>#</span><span>node of the model</span><span>operator</span><span>layer</span></div>"
        }
        false => {
            "<p class=\"tip\">&nbsp; --onnx MODEL.onnx shows the graph before, and which node went where</p>"
        }
    };
    let body = format!(
        "<header><h1>{title}</h1><p>{}</p></header>\n<nav>{tabs}<input id=\"search\" type=\"search\" placeholder=\"search \
         layers, kernels, operators\"><button id=\"clear\" hidden>show all</button><span class=\"count\" id=\"count\"></span></nav>\n\
         <main><section class=\"view\" id=\"view-layers\"><div class=\"head layers\" id=\"layers-head\"></div><div class=\"list\" \
         id=\"layers-list\"></div></section>\n<section class=\"view\" id=\"view-graph\"><div class=\"pair\"><div class=\"half\">\
         {before}<div class=\"list\" id=\"before\"></div></div><canvas id=\"lines\"></canvas><div class=\"half\"><div class=\"head \
         steps\"><span>#</span><span>layer of the plan</span><span>operators</span><span class=\"n\">us</span></div><div class=\"list\" \
         id=\"after\"></div></div></div></section>\n<section class=\"view pad\" id=\"view-memory\"><h2>What is alive in the arena, step \
         by step</h2><canvas class=\"chart\" id=\"memory-chart\"></canvas><p class=\"tip\" id=\"memory-tip\"></p><h2>The largest \
         values</h2><div class=\"wide\"><table id=\"memory-values\"><tr><th>value</th><th class=\"n\">bytes</th><th class=\"n\">from \
         step</th><th class=\"n\">to</th></tr></table></div></section>\n<section class=\"view pad\" id=\"view-roof\"><h2>GFLOP/s over \
         FLOP a byte; the area is the time</h2><canvas class=\"chart\" id=\"roof-chart\"></canvas><p class=\"tip\" \
         id=\"roof-tip\"></p></section>\n<section class=\"view pad\" id=\"view-hazards\"><div id=\"hazards\"></div></section>\n{diff}\
         <aside id=\"detail\" hidden></aside></main>",
        about(&first)
    );
    let mut data = vec![("plan", first)];
    data.extend(second.map(|second| ("other", second)));
    Page {
        title,
        style: include_str!("explore/explore.css"),
        script: include_str!("explore/explore.js"),
        data,
        body,
    }
}
