//! Which versions of the libraries are taken, and what they say of themselves.
//!
//! Machine code and libraries of CUDA 12 run on every driver from 525 on (NVIDIA calls it minor version compatibility),
//! those of CUDA 13 from 580 on. So the driver decides which of the two are looked for; where it takes both, the newer
//! one of a folder is taken. cuDNN 9 is made for either under one name, and says for which.

use std::ffi::{c_char, c_int};

use super::Which;

/// A major version of CUDA that we were written for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Toolkit {
    Twelve = 12,
    Thirteen = 13,
}

/// The oldest driver, 525: the first of CUDA 12, with launch attributes and tensor maps.
const OLDEST_DRIVER: i32 = 12_000;

/// The oldest NVRTC: sparse products with ordered metadata are of PTX 8.5, which came with 12.5.
const OLDEST_NVRTC: (i32, i32) = (12, 5);

impl Toolkit {
    /// The newest first.
    const ALL: [Toolkit; 2] = [Toolkit::Thirteen, Toolkit::Twelve];

    /// Of a major version.
    fn of(major: i32) -> Option<Toolkit> {
        Toolkit::ALL.into_iter().find(|cuda| *cuda as i32 == major)
    }

    /// The newest whose libraries run on a driver that offers this version, as in `12.4`.
    pub(super) fn newest_on(driver: &str) -> Option<Toolkit> {
        let major: i32 = driver.split('.').next()?.parse().ok()?;
        Toolkit::ALL.into_iter().find(|cuda| *cuda as i32 <= major)
    }

    /// Those whose libraries run where `newest` does, the newest first.
    pub(super) fn up_to(newest: Toolkit) -> impl Iterator<Item = Toolkit> {
        Toolkit::ALL.into_iter().filter(move |cuda| *cuda <= newest)
    }

    /// The first driver that runs it.
    pub fn first_driver(self) -> u32 {
        match self {
            Toolkit::Twelve => 525,
            Toolkit::Thirteen => 580,
        }
    }
}

/// What a library says of itself.
pub(super) struct Said {
    pub(super) version: String,
    /// Which CUDA it is made for; none of the driver and NVML, which come together.
    pub(super) toolkit: Option<Toolkit>,
}

/// What the library itself says, if it is one that we were written for and that runs on a driver of `newest`.
pub(super) fn said_by(
    which: Which,
    library: &'static libloading::Library,
    newest: Toolkit,
) -> Result<Said, String> {
    let unknown = |version: &str| Err(format!("version {version} is not one that this program knows"));
    match which {
        Which::Driver => {
            let version = driver_version(library)?;
            let text = format!("{}.{}", version / 1000, version % 1000 / 10);
            // A newer driver keeps the interface of the older, so only the oldest is bounded.
            if version >= OLDEST_DRIVER {
                Ok(Said { version: text, toolkit: None })
            } else {
                let oldest = Toolkit::Twelve.first_driver();
                Err(format!("it offers CUDA {text}, 12.0 (driver {oldest}) is the oldest that works"))
            }
        }
        Which::Nvrtc => {
            let (major, minor) = nvrtc_version(library)?;
            let text = format!("{major}.{minor}");
            match Toolkit::of(major) {
                Some(_) if (major, minor) < OLDEST_NVRTC => Err(format!(
                    "version {text} is too old, {}.{} is the oldest that knows our instructions",
                    OLDEST_NVRTC.0, OLDEST_NVRTC.1
                )),
                Some(cuda) => fit(text, cuda, newest),
                None => unknown(&text),
            }
        }
        Which::CublasLt => {
            let number = plain_number(library, b"cublasLtGetVersion")?;
            let text = three_parts(number);
            match Toolkit::of((number / 10_000) as i32) {
                Some(cuda) => fit(text, cuda, newest),
                None => unknown(&text),
            }
        }
        Which::Cudnn => {
            let number = plain_number(library, b"cudnnGetVersion")?;
            let text = three_parts(number);
            if number / 10_000 != 9 {
                return unknown(&text);
            }
            let runtime = plain_number(library, b"cudnnGetCudartVersion")?;
            match Toolkit::of((runtime / 1000) as i32) {
                Some(cuda) => fit(text, cuda, newest),
                None => unknown(&format!("{text} for CUDA {}", runtime / 1000)),
            }
        }
        Which::Nvml => Ok(Said { version: nvml_version(library)?, toolkit: None }),
    }
}

fn fit(version: String, cuda: Toolkit, newest: Toolkit) -> Result<Said, String> {
    if cuda <= newest {
        return Ok(Said { version, toolkit: Some(cuda) });
    }
    let (is, driver) = (cuda as i32, cuda.first_driver());
    Err(format!("version {version} is for CUDA {is}, which needs a driver of {driver} or newer"))
}

/// As in `9.13.0` of 91300.
fn three_parts(number: usize) -> String {
    format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
}

fn driver_version(library: &'static libloading::Library) -> Result<i32, String> {
    let mut version: c_int = 0;
    // SAFETY: this signature is the driver's since its first version; it may be called before cuInit.
    let code = unsafe {
        let ask: libloading::Symbol<'_, unsafe extern "C" fn(*mut c_int) -> u32> =
            library.get(b"cuDriverGetVersion").map_err(|error| error.to_string())?;
        ask(&raw mut version)
    };
    match code {
        0 => Ok(version),
        code => Err(format!("it fails with code {code} when asked for its version")),
    }
}

fn nvrtc_version(library: &'static libloading::Library) -> Result<(i32, i32), String> {
    let (mut major, mut minor): (c_int, c_int) = (0, 0);
    // SAFETY: this signature is NVRTC's since its first version.
    let code = unsafe {
        let ask: libloading::Symbol<'_, unsafe extern "C" fn(*mut c_int, *mut c_int) -> u32> =
            library.get(b"nvrtcVersion").map_err(|error| error.to_string())?;
        ask(&raw mut major, &raw mut minor)
    };
    match code {
        0 => Ok((major, minor)),
        code => Err(format!("it fails with code {code} when asked for its version")),
    }
}

/// What a function that takes nothing says, as `cudnnGetVersion`.
fn plain_number(library: &'static libloading::Library, name: &[u8]) -> Result<usize, String> {
    // SAFETY: the functions of cuBLASLt and cuDNN that are asked for so take nothing and return a size_t since their
    // first versions.
    unsafe {
        let ask: libloading::Symbol<'_, unsafe extern "C" fn() -> usize> =
            library.get(name).map_err(|error| error.to_string())?;
        Ok(ask())
    }
}

fn nvml_version(library: &'static libloading::Library) -> Result<String, String> {
    let symbol = |error: libloading::Error| error.to_string();
    let mut text = [0 as c_char; 96];
    // SAFETY: nvmlSystemGetDriverVersion writes at most `length` bytes; it needs nvmlInit_v2 before.
    let code = unsafe {
        let init: libloading::Symbol<'_, unsafe extern "C" fn() -> u32> =
            library.get(b"nvmlInit_v2").map_err(symbol)?;
        let ask: libloading::Symbol<'_, unsafe extern "C" fn(*mut c_char, u32) -> u32> =
            library.get(b"nvmlSystemGetDriverVersion").map_err(symbol)?;
        match init() {
            0 => ask(text.as_mut_ptr(), text.len() as u32),
            code => code,
        }
    };
    let bytes: Vec<u8> = text.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    match code {
        0 => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        code => Err(format!("it fails with code {code} when asked for the driver's version")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_of_12_take_libraries_of_12_and_newer_ones_both() {
        assert_eq!(Toolkit::newest_on("12.2"), Some(Toolkit::Twelve));
        assert_eq!(Toolkit::newest_on("13.0"), Some(Toolkit::Thirteen));
        assert_eq!(Toolkit::newest_on("14.1"), Some(Toolkit::Thirteen));
        assert_eq!(Toolkit::newest_on("11.8"), None);
        let both: Vec<Toolkit> = Toolkit::up_to(Toolkit::Thirteen).collect();
        assert_eq!(both, [Toolkit::Thirteen, Toolkit::Twelve]);
        assert!(fit("13.0".into(), Toolkit::Thirteen, Toolkit::Twelve).is_err_and(|why| why.contains("580")));
        assert!(fit("12.6".into(), Toolkit::Twelve, Toolkit::Thirteen).is_ok());
    }
}
