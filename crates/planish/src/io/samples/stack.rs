//! TIFF stacks: pages of 8 or 16 bits, or of floats. Each page is a sample of a two-dimensional model; runs of pages are
//! the samples of a three-dimensional one.

use std::path::Path;

use planish_tensor::Tensor;
use tiff::decoder::DecodingResult;

use super::pixels::{Plane, Preprocess, cropped};
use super::{Port, evenly};
use crate::io::picture::Layout;
use crate::io::stack::{self, Page};
use crate::{Error, ErrorKind};

/// A page of more bytes than this is a slip in its header: a camera's 16,384 x 16,384 pixels of 16 bits take half.
const MAX_PAGE_BYTES: usize = 1 << 30;

/// Up to `limit` samples of a file.
pub(super) fn read(
    path: &Path,
    port: &Port,
    limit: usize,
    preprocess: &Preprocess,
    notes: Option<&mut Vec<String>>,
) -> Result<Vec<Tensor>, Error> {
    if preprocess.resize.is_some() {
        let message = "TIFF files are not resized; leave --resize out and give --crop HxW";
        return Err(Error::new(ErrorKind::BadOption, message));
    }
    let dims = port.dims()?;
    match dims[..] {
        [_, Some(1), depth, height, width] => {
            let layout = Layout { is_batched: true, channels_first: true, n_channels: 1, height, width };
            let pages = pages(path, &layout, preprocess)?;
            let depth = depth.unwrap_or(pages.len()).max(1);
            if pages.len() < depth {
                let (path, n) = (path.display(), pages.len());
                let message = format!("{path} has {n} pages, input `{}` takes {depth}", port.name);
                return Err(Error::new(ErrorKind::WrongShape, message));
            }
            note(notes, preprocess, &layout, &pages[0], port, &format!("stacks of {depth} pages"))?;
            let volumes: Vec<&[Plane]> = pages.chunks_exact(depth).collect();
            let volume = |idx: usize| {
                let mut values = Vec::new();
                for page in volumes[idx] {
                    values.extend(preprocess.finish(page, &layout, port.ty.dtype)?);
                }
                let (height, width) = (pages[0].height, pages[0].width);
                Ok(Tensor::from_f64s(port.ty.dtype, &[1, 1, depth, height, width], &values)?)
            };
            evenly(volumes.len(), limit).into_iter().map(volume).collect()
        }
        _ if dims.len() == 5 => {
            let (name, ty) = (&port.name, &port.ty);
            let message = format!("input `{name}` of type {ty} takes no TIFF stacks: that needs [N,1,D,H,W]");
            Err(Error::new(ErrorKind::WrongType, message))
        }
        _ => {
            let layout = preprocess.layout_of(port)?;
            let pages = pages(path, &layout, preprocess)?;
            note(notes, preprocess, &layout, &pages[0], port, "pages of TIFF files")?;
            let page = |idx: usize| {
                let plane = &pages[idx];
                let values = preprocess.finish(plane, &layout, port.ty.dtype)?;
                let (h, w, n) = (plane.height, plane.width, layout.n_channels);
                let mut shape = if layout.is_batched { vec![1] } else { Vec::new() };
                shape.extend(if layout.channels_first { [n, h, w] } else { [h, w, n] });
                Ok(Tensor::from_f64s(port.ty.dtype, &shape, &values)?)
            };
            evenly(pages.len(), limit).into_iter().map(page).collect()
        }
    }
}

fn note(
    notes: Option<&mut Vec<String>>,
    preprocess: &Preprocess,
    layout: &Layout,
    page: &Plane,
    port: &Port,
    what: &str,
) -> Result<(), Error> {
    if let Some(notes) = notes {
        let size = format!("{what}: {}x{} from the middle", page.height, page.width);
        notes.push(preprocess.note(&size, layout, port.ty.dtype)?);
    }
    Ok(())
}

/// All pages, cut to the model's size and brought to its channels.
fn pages(path: &Path, layout: &Layout, preprocess: &Preprocess) -> Result<Vec<Plane>, Error> {
    let bad = |why: String| {
        Error::new(ErrorKind::BadFile, format!("{} is not a usable TIFF file: {why}", path.display()))
    };
    let mut pages: Vec<Plane> = Vec::new();
    stack::pages(path, MAX_PAGE_BYTES, &mut |page| {
        let plane =
            plane(page, layout.n_channels).map_err(|why| bad(format!("page {}: {why}", pages.len() + 1)))?;
        let size = preprocess.crop_of(layout.height, layout.width);
        let plane = cropped(plane, size, path)?;
        if let Some(first) =
            pages.first().filter(|first| (first.height, first.width) != (plane.height, plane.width))
        {
            let sizes =
                format!("pages of {}x{} and {}x{}", first.height, first.width, plane.height, plane.width);
            return Err(bad(format!("it has {sizes}; give --crop HxW")));
        }
        pages.push(plane);
        Ok(())
    })?;
    Ok(pages)
}

/// A page from 0 to 1; gray serves inputs of several channels.
fn plane(page: Page, wanted: usize) -> Result<Plane, String> {
    let Page { height, width, n_channels, is_planar, values } = page;
    if is_planar {
        return Err("its channels lie in planes of their own; only pixels with all channels are supported"
            .to_string());
    }
    let values: Vec<f32> = match values {
        DecodingResult::U8(values) => values.iter().map(|&value| f32::from(value) / 255.0).collect(),
        DecodingResult::U16(values) => values.iter().map(|&value| f32::from(value) / 65535.0).collect(),
        // Floats have no largest value; they are taken as they are.
        DecodingResult::F32(values) => values,
        _ => return Err("only pixels of 8 and 16 bits and of 32-bit floats are supported".to_string()),
    };
    let values = match (n_channels, wanted) {
        (own, wanted) if own == wanted => values,
        (1, 3) => values.iter().flat_map(|&value| [value; 3]).collect(),
        (own, wanted) => return Err(format!("it has {own} channels, the model takes {wanted}")),
    };
    Ok(Plane { height, width, n_channels: wanted, values })
}
