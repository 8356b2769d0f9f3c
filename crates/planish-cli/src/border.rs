//! The border that arguments ask for, put around a model, and what `run` shows of classes and boxes.

use std::io::Write;

use anyhow::{Result, bail};
use planish::{Border, Labelled, Model, Tensor};

use crate::args::Bordering;
use crate::print;
use crate::run::NamedTensor;

/// Rows of classes and boxes that are shown; files get all.
const MAX_ROWS: usize = 50;

/// The model inside of the border that the arguments ask for.
pub(crate) fn around(model: Model, asked: &Bordering) -> Result<Model> {
    let mut border = Border::new();
    for text in &asked.io {
        border = border.io(text);
    }
    for (formats, is_input) in asked.formats.iter().zip([true, false]) {
        let graph = model.graph();
        let names = if is_input { graph.inputs() } else { graph.outputs() };
        let flag = if is_input { "--inputIOFormats" } else { "--outputIOFormats" };
        for (at, spec) in formats.iter().flat_map(|formats| formats.split(',')).enumerate() {
            let Some(&id) = names.get(at) else {
                bail!("{flag} has more formats than the model has of them")
            };
            border = border.io(&format!("{}:{}", graph.value(id).name, of_trtexec(flag, spec)?));
        }
    }
    for text in &asked.pre {
        border = border.pre(text);
    }
    for text in &asked.post {
        border = border.post(text);
    }
    let states: Vec<&str> = asked.state.iter().map(String::as_str).collect();
    Ok(model.with_border(&border)?.with_states(&states)?)
}

/// `fp16:chw` in our words; formats of several channels together are laid out as the ones that they are made of.
fn of_trtexec(flag: &str, spec: &str) -> Result<String> {
    let (ty, format) = spec.trim().split_once(':').unwrap_or((spec.trim(), "chw"));
    let layout = match format.trim_end_matches(|c: char| c.is_ascii_digit()) {
        // The model's own order.
        "chw" | "cdhw" => return Ok(ty.to_string()),
        "hwc" | "dhwc" => "channels-last",
        _ => bail!("{flag}: `{format}` is not a format that Planish has; give chw or hwc, as in fp16:chw"),
    };
    Ok(format!("{ty}:{layout}"))
}

/// Says which classes an output's numbers are, with scores and boxes where the plan gives them beside.
pub(crate) fn show(labels: &[Labelled], outputs: &[NamedTensor], out: &mut dyn Write) -> Result<()> {
    let find =
        |name: &str| outputs.iter().find(|(known, _)| known == name).and_then(|(_, tensor)| tensor.as_ref());
    for Labelled { output, names } in labels {
        let Some(classes) = find(output) else { continue };
        let (stem, part) = output.rsplit_once('.').unwrap_or((output, ""));
        let (scores, boxes) = match part {
            "indices" => (find(stem), None),
            "classes" => (find(&format!("{stem}.scores")), find(stem)),
            _ => (None, None),
        };
        let mut rows = Vec::new();
        let classes = classes.to_i64s();
        for (at, &class) in classes.iter().take(MAX_ROWS).enumerate() {
            let name = usize::try_from(class).ok().and_then(|class| names.get(class));
            let mut row = vec![class.to_string(), name.map_or("?".to_string(), String::clone)];
            row.extend(scores.and_then(|scores| number(scores, at)).map(|score| format!("{score:.4}")));
            if let Some(boxes) = boxes {
                let sides: Vec<String> = (0..4)
                    .filter_map(|side| number(boxes, 4 * at + side))
                    .map(|side| format!("{side:.1}"))
                    .collect();
                row.push(sides.join(" "));
            }
            rows.push(row);
        }
        writeln!(out, "{output}: {} of {}", rows.len(), classes.len())?;
        print::table(out, &rows, &[0, 2])?;
    }
    Ok(())
}

fn number(tensor: &Tensor, at: usize) -> Option<f64> {
    (at < tensor.len()).then(|| tensor.to_f64s()[at])
}
