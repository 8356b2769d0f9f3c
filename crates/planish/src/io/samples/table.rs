//! CSV files: one sample a line, numbers separated by commas, under a heading or not.

use std::path::Path;

use planish_files::text::{self, TextError};
use planish_tensor::Tensor;

use super::{Port, evenly};
use crate::{Error, ErrorKind};

/// Up to `limit` samples of a file.
pub(super) fn read(path: &Path, port: &Port, limit: usize) -> Result<Vec<Tensor>, Error> {
    let bad = |why: String| Error::new(ErrorKind::BadFile, format!("{}: {why}", path.display()));
    let text = match text::read(path) {
        Ok(text) => text.unwrap_or_default(),
        Err(TextError::Io(error)) => return Err(Error::io("read", path, &error)),
        Err(error) => return Err(bad(error.to_string())),
    };
    let mut rows: Vec<Vec<f64>> = Vec::new();
    for (idx, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let numbers: Result<Vec<f64>, &str> =
            line.split(',').map(|field| field.trim().parse().map_err(|_| field.trim())).collect();
        match numbers {
            Ok(row) => {
                if let Some(first) = rows.first().filter(|first| first.len() != row.len()) {
                    let (n, of) = (row.len(), first.len());
                    return Err(bad(format!("line {}: {n} numbers, the lines before have {of}", idx + 1)));
                }
                rows.push(row);
            }
            // A heading.
            Err(_) if idx == 0 => {}
            Err(field) => return Err(bad(format!("line {}: `{field}` is not a number", idx + 1))),
        }
    }
    let Some(first) = rows.first() else { return Err(bad("there are no numbers".to_string())) };
    let shape = shape(port, first.len()).ok_or_else(|| {
        let (n, name, ty) = (first.len(), &port.name, &port.ty);
        Error::new(
            ErrorKind::WrongShape,
            format!("{}: {n} numbers a line do not make input `{name}` of type {ty}", path.display()),
        )
    })?;
    let row = |idx: usize| Ok(Tensor::from_f64s(port.ty.dtype, &shape, &rows[idx])?);
    evenly(rows.len(), limit).into_iter().map(row).collect()
}

/// The shape of one sample of so many numbers: a batch of 1, and at most one further open axis.
fn shape(port: &Port, n: usize) -> Option<Vec<usize>> {
    let mut dims = port.dims().ok()?;
    if dims.len() > 1 {
        dims[0] = Some(1);
    }
    let fixed = dims.iter().flatten().try_fold(1usize, |product, &size| product.checked_mul(size))?;
    let n_open = dims.iter().filter(|dim| dim.is_none()).count();
    let open = match n_open {
        0 => 1,
        1 if fixed > 0 && n.is_multiple_of(fixed) => n / fixed,
        _ => return None,
    };
    let shape: Vec<usize> = dims.iter().map(|dim| dim.unwrap_or(open)).collect();
    (fixed.checked_mul(open)? == n).then_some(shape)
}
