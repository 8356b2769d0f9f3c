//! Files of pins: which layers are computed in what, a line each, as `--layer-precision` takes them.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use planish::files::text::{self, Format, escape, unescape};

use crate::args::LayerPrecision;
use crate::load;

/// What the files are.
pub(crate) const FORMAT: Format = Format { name: "pins", version: 1 };

/// Writes names of layers that are to stay in fp32.
pub(crate) fn save(path: &Path, names: &[String]) -> Result<()> {
    let lines = names.iter().map(|name| escape(&format!("{name}:fp32")));
    let text = FORMAT.text("layer:precision, for planish build --pins", lines);
    text::write(path, &text).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads which layers are computed in what.
pub(crate) fn open(path: &Path) -> Result<Vec<LayerPrecision>> {
    let name = path.display();
    let text = text::read(path).with_context(|| format!("cannot read {name}"))?;
    let text = text.with_context(|| format!("cannot read {name}: there is no such file"))?;
    let lines = FORMAT.lines(&text).with_context(|| name.to_string())?;
    let one = |(number, line): (usize, &str)| {
        let line = unescape(line).unwrap_or_else(|| line.to_string());
        load::layer_precision(&line).map_err(|why| anyhow!("{name}, line {number}: {why}"))
    };
    lines.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_come_back_from_their_file() {
        let folder = std::env::temp_dir().join(format!("planish-pins-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("model.pins");
        let names = ["conv1", "layer/2: odd", "# sharp", "back\\slash"].map(String::from);
        save(&path, &names).unwrap();
        let read: Vec<String> = open(&path).unwrap().into_iter().map(|layer| layer.pattern).collect();
        assert_eq!(read, names);
        for (text, why) in [("", "line 1"), ("planish pins 1\nconv1\n", "line 2"), ("conv1:fp32\n", "line 1")]
        {
            std::fs::write(&path, text).unwrap();
            let error = format!("{:#}", open(&path).unwrap_err());
            assert!(error.contains(why) && error.contains("model.pins"), "{error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
