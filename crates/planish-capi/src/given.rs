//! What C gives and is given: pointers, texts, lists, and structures whose first field is their size.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use planish::{Error, ErrorKind};

pub(crate) fn wrong<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(ErrorKind::BadOption, message))
}

/// A text for C, which ends it at the first NUL: those inside become `?`.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

/// What a pointer points at.
///
/// # Safety
/// `pointer` is NULL, or points at a `T` that nobody changes while `'a` lasts.
pub(crate) unsafe fn shared<'a, T>(what: &str, pointer: *const T) -> Result<&'a T, Error> {
    // SAFETY: the caller's promise.
    match unsafe { pointer.as_ref() } {
        Some(object) => Ok(object),
        None => wrong(format!("{what} is NULL")),
    }
}

/// The same, to be changed.
///
/// # Safety
/// `pointer` is NULL, or points at a `T` that nobody else uses while `'a` lasts.
pub(crate) unsafe fn exclusive<'a, T>(what: &str, pointer: *mut T) -> Result<&'a mut T, Error> {
    // SAFETY: the caller's promise.
    match unsafe { pointer.as_mut() } {
        Some(object) => Ok(object),
        None => wrong(format!("{what} is NULL")),
    }
}

/// Makes the object that a call asks for, and gives it out.
///
/// # Safety
/// `out` is NULL, or may be written.
pub(crate) unsafe fn give<T>(out: *mut *mut T, make: impl FnOnce() -> Result<T, Error>) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    let out = unsafe { exclusive("the pointer to the result", out)? };
    *out = std::ptr::null_mut();
    *out = Box::into_raw(Box::new(make()?));
    Ok(())
}

/// Takes an object back that `give` gave out, and ends it.
///
/// # Safety
/// `object` is NULL, or of `give`, and nobody uses it any more.
pub(crate) unsafe fn end<T>(object: *mut T) {
    if object.is_null() {
        return;
    }
    // A destructor may wait for a device, and must not unwind into C either.
    let _ = crate::status::guarded(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(object) });
        Ok(())
    });
}

/// # Safety
/// `text` is NULL, or ends in a NUL and stays as it is while `'a` lasts.
unsafe fn c_str<'a>(what: &str, text: *const c_char) -> Result<&'a CStr, Error> {
    if text.is_null() {
        return wrong(format!("{what} is NULL"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// A text in UTF-8.
///
/// # Safety
/// `text` is NULL, or ends in a NUL and stays as it is while `'a` lasts.
pub(crate) unsafe fn text<'a>(what: &str, text: *const c_char) -> Result<&'a str, Error> {
    // SAFETY: the caller's promise.
    let text = unsafe { c_str(what, text)? };
    text.to_str().or_else(|_| wrong(format!("{what} is not UTF-8: {}", text.to_string_lossy())))
}

/// A text that may be NULL, or empty, which are the same.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn optional_text<'a>(what: &str, given: *const c_char) -> Result<Option<&'a str>, Error> {
    if given.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { text(what, given)? };
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// The path of a file, in the system's own bytes.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn path<'a>(given: *const c_char) -> Result<&'a Path, Error> {
    // SAFETY: the caller's promise.
    let path = unsafe { c_str("the path", given)? };
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// A list.
///
/// # Safety
/// `first` is NULL, or points at `n` elements that stay as they are while `'a` lasts.
pub(crate) unsafe fn list<'a, T>(what: &str, first: *const T, n: usize) -> Result<&'a [T], Error> {
    if n == 0 {
        return Ok(&[]);
    }
    if first.is_null() {
        return wrong(format!("{what} is NULL"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(first, n) })
}

/// Sizes of a tensor.
///
/// # Safety
/// As for [`list`].
pub(crate) unsafe fn sizes(what: &str, first: *const i64, rank: usize) -> Result<Vec<usize>, Error> {
    // SAFETY: the caller's promise.
    let list = unsafe { list(what, first, rank)? };
    let size = |&size: &i64| match usize::try_from(size) {
        Ok(size) => Ok(size),
        Err(_) => {
            let message = format!("{what} has a size of {size}; sizes are 0 or more");
            Err(Error::new(ErrorKind::WrongShape, message))
        }
    };
    list.iter().map(size).collect()
}

/// A structure that crosses the border: plain numbers and pointers for which zeros are valid, its own size first.
///
/// # Safety
/// `repr(C)`, its first field is a `usize`, and any bytes are a valid one: what callers fill in has numbers and pointers
/// alone. Those that are only given out may hold enumerations.
pub(crate) unsafe trait Crossing: Copy {
    const NAME: &'static str;
    /// Bytes of the structure in the first header that had it.
    const FIRST_SIZE: usize;
}

/// How many bytes a structure of the caller's has.
///
/// # Safety
/// `given` is not NULL and points at a `usize`.
unsafe fn size_of_given<T: Crossing>(given: *const T) -> Result<usize, Error> {
    // SAFETY: the caller's promise.
    let size = unsafe { given.cast::<usize>().read() };
    if size < T::FIRST_SIZE {
        let (name, least) = (T::NAME, T::FIRST_SIZE);
        return wrong(format!("{name}.size is {size}, the least is {least}: set it to sizeof({name})"));
    }
    Ok(size)
}

/// Reads a structure as long as its writer knew it: fields that it did not know are zero. Fields that this library does not
/// know must be.
///
/// # Safety
/// `given` is NULL, or points at as many bytes as its first field says.
pub(crate) unsafe fn read<T: Crossing>(given: *const T) -> Result<T, Error> {
    let mut own = MaybeUninit::<T>::zeroed();
    if !given.is_null() {
        // SAFETY: the caller's promise.
        let size = unsafe { size_of_given(given)? };
        // SAFETY: as many bytes as the caller says.
        let bytes = unsafe { std::slice::from_raw_parts(given.cast::<u8>(), size) };
        let (known, unknown) = bytes.split_at(size.min(size_of::<T>()));
        if unknown.iter().any(|&byte| byte != 0) {
            let name = T::NAME;
            return wrong(format!(
                "{name} has options that this library does not know; use the planish.h that came with it"
            ));
        }
        // SAFETY: no more bytes than the structure has.
        unsafe {
            std::ptr::copy_nonoverlapping(known.as_ptr(), own.as_mut_ptr().cast::<u8>(), known.len());
        }
    }
    // SAFETY: bytes of the caller's structure, and zeros, both of which `Crossing` allows.
    Ok(unsafe { own.assume_init() })
}

/// Writes a structure as far as its reader knows it; its size stays.
///
/// # Safety
/// `to` is NULL, or points at as many writable bytes as its first field says.
pub(crate) unsafe fn write<T: Crossing>(to: *mut T, value: &T) -> Result<(), Error> {
    if to.is_null() {
        return wrong(format!("the pointer to {} is NULL", T::NAME));
    }
    // SAFETY: the caller's promise.
    let size = unsafe { size_of_given(to.cast_const())? };
    let rest = size.min(size_of::<T>()) - size_of::<usize>();
    let from = std::ptr::from_ref(value).cast::<u8>();
    // SAFETY: both have as many bytes behind their sizes.
    unsafe {
        std::ptr::copy_nonoverlapping(
            from.add(size_of::<usize>()),
            to.cast::<u8>().add(size_of::<usize>()),
            rest,
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Newer {
        size: usize,
        a: u64,
        b: u64,
    }

    // SAFETY: numbers alone, the first is its size.
    unsafe impl Crossing for Newer {
        const NAME: &'static str = "Newer";
        const FIRST_SIZE: usize = 16;
    }

    #[test]
    fn structures_of_other_versions_are_read_as_far_as_both_know() {
        let read = |bytes: &[u64]| {
            // SAFETY: the tests give as many bytes as they say.
            unsafe { read::<Newer>(bytes.as_ptr().cast()) }.map(|got| (got.a, got.b))
        };
        assert_eq!(read(&[24, 5, 6]).unwrap(), (5, 6));
        assert_eq!(read(&[16, 5, 6]).unwrap(), (5, 0), "a program of the first header");
        assert_eq!(read(&[32, 5, 6, 0]).unwrap(), (5, 6), "a newer program that asks for nothing new");
        assert!(read(&[32, 5, 6, 1]).unwrap_err().to_string().contains("does not know"));
        assert!(read(&[0, 5, 6]).unwrap_err().to_string().contains("set it to sizeof(Newer)"));
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { super::read::<Newer>(std::ptr::null()) }.unwrap().a, 0);
    }

    #[test]
    fn structures_are_written_as_far_as_the_reader_knows() {
        let value = Newer { size: 24, a: 1, b: 2 };
        for (size, wanted) in [(16u64, [16, 1, 9, 9]), (24, [24, 1, 2, 9]), (32, [32, 1, 2, 9])] {
            let mut to = [size, 9, 9, 9];
            // SAFETY: four words are as many bytes as the largest size says.
            unsafe { write::<Newer>(to.as_mut_ptr().cast(), &value) }.unwrap();
            assert_eq!(to, wanted);
        }
    }

    #[test]
    fn nothing_is_said_about_what_is_null() {
        // SAFETY: NULL is allowed.
        unsafe {
            assert_eq!(text("the name", std::ptr::null()).unwrap_err().to_string(), "the name is NULL");
            assert!(list::<i64>("sizes", std::ptr::null(), 2).is_err());
            assert!(list::<i64>("sizes", std::ptr::null(), 0).unwrap().is_empty());
            assert_eq!(optional_text("the device", c"".as_ptr()).unwrap(), None);
            assert!(text("the name", c"\xff".as_ptr()).unwrap_err().to_string().contains("UTF-8"));
            assert!(sizes("sizes", [2, -1].as_ptr(), 2).unwrap_err().to_string().contains("-1"));
            end::<Newer>(std::ptr::null_mut());
        }
    }
}
