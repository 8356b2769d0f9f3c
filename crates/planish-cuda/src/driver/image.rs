//! Images of compiled kernels, looked at before the driver is handed a pointer to one.
//!
//! The driver takes an address without a length and reads the length out of the image: one whose headers lead after
//! its end makes it read what lies there. So every place that the ELF headers name must lie inside of the bytes. What
//! the code itself does is not judged here: code is a program, and who it comes from is the engine's question.

use std::ops::Range;

/// Sizes and places of the ELF format for 64 bits, little endian, as the specification names them.
const HEADER: usize = 64;
const PROGRAM_ENTRY: usize = 56;
const SECTION_ENTRY: usize = 64;
const EM_CUDA: u16 = 190;
/// A section of this kind takes no bytes of the file.
const SHT_NOBITS: u32 = 8;

fn number<const N: usize>(image: &[u8], at: usize) -> Option<[u8; N]> {
    image.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(image: &[u8], at: usize) -> Option<u16> {
    number(image, at).map(u16::from_le_bytes)
}

fn u32_at(image: &[u8], at: usize) -> Option<u32> {
    number(image, at).map(u32::from_le_bytes)
}

fn u64_at(image: &[u8], at: usize) -> Option<u64> {
    number(image, at).map(u64::from_le_bytes)
}

/// The range of `len` bytes from `start` on, if the image has them all.
fn inside(image: &[u8], start: u64, len: u64) -> Option<Range<usize>> {
    let end = usize::try_from(start.checked_add(len)?).ok()?;
    (end <= image.len()).then_some(usize::try_from(start).ok()?..end)
}

/// What is wrong with an image of CUDA machine code; `None` where all that its headers name lies inside of it.
pub(crate) fn flaw(image: &[u8]) -> Option<&'static str> {
    checked(image).err()
}

fn checked(image: &[u8]) -> Result<(), &'static str> {
    let cut = "it ends within its header";
    // 64 bits, little endian, version 1.
    if !image.starts_with(b"\x7fELF\x02\x01\x01") {
        return Err("it is not an ELF image of 64 bits");
    }
    if image.len() < HEADER {
        return Err(cut);
    }
    if u16_at(image, 18) != Some(EM_CUDA) {
        return Err("it is machine code of no GPU");
    }
    let (programs, sections) = (u64_at(image, 32).ok_or(cut)?, u64_at(image, 40).ok_or(cut)?);
    let half = |at| u16_at(image, at).ok_or(cut);
    if usize::from(half(52)?) < HEADER {
        return Err("its header has another length");
    }
    let (program_entry, n_programs) = (half(54)?, half(56)?);
    let (section_entry, n_sections, names) = (half(58)?, half(60)?, half(62)?);
    if n_programs > 0 {
        if usize::from(program_entry) != PROGRAM_ENTRY {
            return Err("its program headers have another length");
        }
        let table = inside(image, programs, u64::from(n_programs) * PROGRAM_ENTRY as u64);
        for at in table.ok_or("its program headers lie outside of it")?.step_by(PROGRAM_ENTRY) {
            let (start, len) = (u64_at(image, at + 8).ok_or(cut)?, u64_at(image, at + 32).ok_or(cut)?);
            inside(image, start, len).ok_or("a segment lies outside of it")?;
        }
    }
    // No sections at all, or more than the header can count: no compiler writes that.
    if n_sections == 0 || names >= n_sections {
        return Err("it has no table of sections");
    }
    if usize::from(section_entry) != SECTION_ENTRY {
        return Err("its section headers have another length");
    }
    let table = inside(image, sections, u64::from(n_sections) * SECTION_ENTRY as u64);
    for at in table.ok_or("its section headers lie outside of it")?.step_by(SECTION_ENTRY) {
        let (start, len) = (u64_at(image, at + 24).ok_or(cut)?, u64_at(image, at + 32).ok_or(cut)?);
        if u32_at(image, at + 4) != Some(SHT_NOBITS) {
            inside(image, start, len).ok_or("a section lies outside of it")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of two sections, the second of eight bytes at the end.
    fn image() -> Vec<u8> {
        let mut image = vec![0; HEADER + 2 * SECTION_ENTRY + 8];
        image[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        put(18, &EM_CUDA.to_le_bytes());
        put(40, &(HEADER as u64).to_le_bytes());
        put(52, &(HEADER as u16).to_le_bytes());
        put(58, &(SECTION_ENTRY as u16).to_le_bytes());
        put(60, &2u16.to_le_bytes());
        let second = HEADER + SECTION_ENTRY;
        put(second + 24, &((HEADER + 2 * SECTION_ENTRY) as u64).to_le_bytes());
        put(second + 32, &8u64.to_le_bytes());
        image
    }

    #[test]
    fn places_after_the_end_are_seen() {
        assert_eq!(flaw(&image()), None);
        for len in 0..image().len() {
            assert!(flaw(&image()[..len]).is_some(), "cut at {len}");
        }
        let second = HEADER + SECTION_ENTRY;
        // Offsets, lengths and counts, each as large as it can be and just too large.
        for at in [40, second + 24, second + 32] {
            for value in [u64::MAX, u64::MAX - 7, image().len() as u64, 1 << 40] {
                let mut forged = image();
                forged[at..at + 8].copy_from_slice(&value.to_le_bytes());
                assert!(flaw(&forged).is_some(), "{value:#x} at {at}");
            }
        }
        for (at, value) in [(18, 62u16), (52, 8), (56, 3), (58, 40), (60, 0), (60, 9), (62, 2)] {
            let mut forged = image();
            forged[at..at + 2].copy_from_slice(&value.to_le_bytes());
            assert!(flaw(&forged).is_some(), "{value} at {at}");
        }
    }

    #[test]
    fn sections_without_bytes_may_be_of_any_length() {
        let mut bss = image();
        let second = HEADER + SECTION_ENTRY;
        bss[second + 4..second + 8].copy_from_slice(&SHT_NOBITS.to_le_bytes());
        bss[second + 32..second + 40].copy_from_slice(&(1u64 << 30).to_le_bytes());
        assert_eq!(flaw(&bss), None);
    }
}
