//! Files as Planish reads and writes them.
//!
//! - [`open`]: only regular files are read, so that nothing waits at a named pipe or reads a device for ever.
//! - [`write()`], [`NewFile`]: the one way in which files are written: under a temporary name in the same folder, synced,
//!   then renamed. Readers meet the old file or the new one, never a part of one, whatever ends the process.
//! - [`remove_unfinished`], [`remove_abandoned`]: what is left of files that were not finished.
//! - [`Lock`]: one process at a time changes a file.
//! - [`user_cache`], [`private_folder`], [`distrust`]: folders of the user's own, and whether somebody else could have
//!   changed what lies in them.
//! - [`text`]: small text files of tab-separated fields, with bounds and errors that name the line.

mod folder;
mod lock;
mod open;
pub mod text;
mod unfinished;
mod write;

pub use folder::{distrust, distrust_file, is_same_file, private_folder, user_cache};
pub use lock::Lock;
pub use open::{open, open_canonical};
pub use unfinished::{remove_abandoned, remove_unfinished};
pub use write::{NewFile, check_target, commit_all, is_out_of_room, write};
