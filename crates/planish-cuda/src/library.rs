//! A shared library as a table of functions, taken from a file that was found and checked before.
//!
//! `cudarc` gives the signatures, and the compiler checks each line of a table against them; its own loading is
//! not used. Status codes are read as numbers: a newer library may return one that no enum of ours has.

/// Declares a table: `status` functions return the library's status type, `plain` ones what they say. Older libraries
/// lack those that are `newer`, newer ones may come to lack those that are `older`: whoever calls them asks first.
macro_rules! library {
    (
        $(#[$meta:meta])*
        $name:ident over $sys:ident, status $status:ty {
            $(fn $f:ident($($t:ty),* $(,)?);)*
        } plain {
            $(fn $g:ident($($u:ty),* $(,)?) -> $r:ty;)*
        } $(newer {
            $(fn $n:ident($($v:ty),* $(,)?);)*
        } older {
            $(fn $o:ident($($w:ty),* $(,)?);)*
        })?
    ) => {
        $(#[$meta])*
        #[allow(non_snake_case)]
        pub(crate) struct $name {
            $(pub(crate) $f: unsafe extern "C" fn($($t),*) -> u32,)*
            $(pub(crate) $g: unsafe extern "C" fn($($u),*) -> $r,)*
            $($(pub(crate) $n: Option<unsafe extern "C" fn($($v),*) -> u32>,)*
            $(pub(crate) $o: Option<unsafe extern "C" fn($($w),*) -> u32>,)*)?
        }

        $(const _: unsafe fn($($t),*) -> $status = $sys::$f;)*
        $(const _: unsafe fn($($u),*) -> $r = $sys::$g;)*
        $($(const _: unsafe fn($($v),*) -> $status = $sys::$n;)*)?

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        impl $name {
            /// What every library of its kind must have; tests make a driver of it.
            #[cfg(test)]
            #[allow(dead_code)]
            const NEEDED: &[&str] = &[$(stringify!($f),)* $(stringify!($g),)*];

            /// Every function of the library that is found here; the error names the first that it lacks.
            pub(crate) fn of(which: crate::find::Which) -> Result<$name, crate::error::CudaError> {
                let found = crate::find::find(which)?;
                // Without its driver there is no GPU, whatever the reason.
                let kind = match which {
                    crate::find::Which::Driver => crate::error::CudaErrorKind::NoDriver,
                    _ => crate::error::CudaErrorKind::WrongVersion,
                };
                $name::load(found.library)
                    .map_err(|lacks| crate::error::CudaError::new(kind, format!("{found} lacks {lacks}")))
            }

            /// Takes every function from a library that stays loaded; the name of the first that it lacks.
            fn load(library: &'static libloading::Library) -> Result<$name, &'static str> {
                Ok($name {
                    // SAFETY: the symbol is a function of this name, whose signature stands in the
                    // library's header of the major version that was checked.
                    $($f: unsafe {
                        *library.get(stringify!($f).as_bytes()).map_err(|_| stringify!($f))?
                    },)*
                    // SAFETY: as above.
                    $($g: unsafe {
                        *library.get(stringify!($g).as_bytes()).map_err(|_| stringify!($g))?
                    },)*
                    // SAFETY: as above; the signatures of older ones stand in the headers of the versions that had
                    // them.
                    $($($n: unsafe { library.get(stringify!($n).as_bytes()).ok().map(|function| *function) },)*
                    // SAFETY: as above.
                    $($o: unsafe { library.get(stringify!($o).as_bytes()).ok().map(|function| *function) },)*)?
                })
            }
        }
    };
}

pub(crate) use library;
