//! Plans that were built in memory, kept under the user's cache folder.
//!
//! A plan is found by a key over everything that decides it: the model with its external data, the options, the
//! machine and this program. Files are written in one piece, verified whole when they are opened, and the least
//! recently used go when together they take too much room. A folder or a file that somebody else could have written
//! is not used: checksums tell damage from what was written, not who wrote it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use planish_compile::BuildOptions;
use planish_kernel::Backend;

use crate::{Error, ErrorKind};

use crate::plan::Plan;

/// What the user's cache may take, unless somebody says otherwise: some forty plans of a ResNet-50.
const MAX_BYTES: u64 = 4 << 30;

/// A folder of plans.
///
/// ```
/// use planish::{Builder, Cached, PlanCache};
///
/// # let folder = std::env::temp_dir().join(format!("planish-doc-cache-{}", std::process::id()));
/// let cache = PlanCache::new(&folder, 1 << 30);                 // or PlanCache::user()
/// assert_eq!(cache.folder(), folder);
/// let graph = r#"graph "g" { input %x: f32[4] %y: f32[4] = Relu(%x) output %y }"#;
/// for hit in [false, true] {
///     let builder = Builder::from_graph(graph.parse()?).tune_level(0);
///     let key = builder.cache_key()?.expect("no callbacks decide what is built");
///     match cache.find(&key) {
///         Cached::Hit(plan) => assert!(hit && plan.record().program.steps.len() == 1),
///         Cached::Absent | Cached::Unusable(_) | Cached::Untrusted(_) => {
///             assert!(!hit);
///             cache.keep(&key, &builder.build()?)?;
///         }
///     }
/// }
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PlanCache {
    folder: PathBuf,
    max_bytes: u64,
}

/// What a look into the cache found.
/// Given by [`PlanCache::find`]; its example handles all of them.
#[derive(Debug)]
pub enum Cached {
    /// The plan that was kept.
    Hit(Box<Plan>),
    /// Nothing was kept under this key.
    Absent,
    /// A file that cannot be used, and why; it was removed.
    Unusable(String),
    /// Somebody else could have written what is there, and how; it is left alone.
    Untrusted(String),
}

impl PlanCache {
    /// The cache in this folder, which is made when something is kept.
    pub fn new(folder: impl AsRef<Path>, max_bytes: u64) -> PlanCache {
        PlanCache { folder: folder.as_ref().to_path_buf(), max_bytes }
    }

    /// The user's: `planish/plans` under `XDG_CACHE_HOME`, or under `.cache` at home. `None` where neither is known.
    pub fn user() -> Option<PlanCache> {
        Some(PlanCache::new(planish_files::user_cache()?.join("plans"), MAX_BYTES))
    }

    /// Where the plans are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.plan"))
    }

    /// The plan that was kept under this key; all of it is verified.
    pub fn find(&self, key: &str) -> Cached {
        if let Some(why) = planish_files::distrust(&self.folder) {
            return Cached::Untrusted(why);
        }
        let path = self.path(key);
        let Ok(file) = planish_files::open(&path) else { return Cached::Absent };
        if let Some(why) = planish_files::distrust_file(&path, &file) {
            return Cached::Untrusted(why);
        }
        match planish_plan::Plan::open(&path) {
            Ok(plan) => {
                // Used now; where that cannot be noted, it only goes earlier.
                let now = File::options().append(true).open(&path);
                let _ = now.and_then(|file| file.set_modified(SystemTime::now()));
                Cached::Hit(Box::new(plan.into()))
            }
            Err(error) => {
                let _ = fs::remove_file(&path);
                Cached::Unusable(error.to_string())
            }
        }
    }

    /// Keeps a plan under this key and makes room; gives whether it was kept: one that would fill the cache alone
    /// is not, and none in a folder that somebody else could write.
    pub fn keep(&self, key: &str, plan: &Plan) -> Result<bool, Error> {
        let n_bytes: u64 = plan.inner.weights.iter().map(|weight| weight.bytes.len() as u64).sum();
        if n_bytes > self.max_bytes {
            return Ok(false);
        }
        planish_files::private_folder(&self.folder)
            .map_err(|error| Error::io("make the folder", &self.folder, &error))?;
        if let Some(why) = planish_files::distrust(&self.folder) {
            return Err(Error::new(ErrorKind::Io, why));
        }
        plan.inner.write_file(&self.path(key))?;
        self.make_room(&self.path(key));
        Ok(true)
    }

    /// Removes the plans that nobody used for longest until the rest fits; `kept` stays.
    fn make_room(&self, kept: &Path) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| {
                let about = entry.metadata().ok()?;
                let path = entry.path();
                let is_plan = path.extension().is_some_and(|extension| extension == "plan");
                (is_plan && about.is_file()).then(|| Some((about.modified().ok()?, about.len(), path)))?
            })
            .collect();
        let mut total: u64 = files.iter().map(|(_, len, _)| len).sum();
        files.sort();
        for (_, len, path) in files.into_iter().filter(|(_, _, path)| path != kept) {
            if total <= self.max_bytes {
                return;
            }
            // Another process may have been faster.
            let _ = fs::remove_file(path);
            total -= len;
        }
    }
}

/// The key of a build; `None` where callbacks or a tactic lock decide too, which no key can hold.
pub(crate) fn key(
    source: &[u8; 32],
    options: &BuildOptions,
    backends: &[std::sync::Arc<dyn Backend>],
) -> Option<String> {
    if options.selector.is_some() || options.tactics.is_some() || options.timing_cache_only {
        return None;
    }
    let mut hasher = blake3::Hasher::new();
    let mut add = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    add(planish_runtime::VERSION);
    add(&this_program());
    add(&blake3::Hash::from_bytes(*source).to_hex());
    add(&format!("{options:?}"));
    add(&format!("{:?} {:?} {}", options.profiles, options.tune_at, options.verify));
    add(&format!("{:?}", options.metadata));
    for backend in backends {
        add(&format!("{:?}", backend.target()));
        backend.versions(&|source| options.takes_source(source)).iter().for_each(|version| add(version));
    }
    Some(hasher.finalize().to_hex().to_string())
}

/// What tells this program from another of the same version: kernels may have changed between two builds of it.
fn this_program() -> String {
    let about = own_file().map_or_else(std::env::current_exe, Ok).and_then(fs::metadata);
    let age = about.as_ref().ok().and_then(|about| about.modified().ok());
    format!("{:?} {age:?}", about.map(|about| about.len()).ok())
}

/// The file that this code is mapped from: the program, or the library that another program loaded. `None` where the
/// system does not say.
fn own_file() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let here = own_file as fn() -> Option<PathBuf> as usize;
    let line = maps.lines().find(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let range = range.map(|(from, to)| (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)));
        matches!(range, Some((Ok(from), Ok(to))) if (from..to).contains(&here))
    })?;
    line.find('/').map(|at| PathBuf::from(&line[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;

    fn builder(size: usize) -> Builder {
        let text = format!(r#"graph "g" {{ input %x: f32[{size}] %y: f32[{size}] = Relu(%x) output %y }}"#);
        Builder::from_graph(text.parse().unwrap()).tune_level(0).threads(1)
    }

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("planish-cache-{}-{name}", std::process::id()))
    }

    #[test]
    fn this_code_is_found_in_its_file() {
        assert_eq!(own_file().map(fs::canonicalize).unwrap().unwrap(), std::env::current_exe().unwrap());
    }

    #[test]
    fn keys_hold_all_that_decides_a_plan() {
        let key = |builder: &Builder| builder.cache_key().unwrap().unwrap();
        let plain = key(&builder(4));
        assert_eq!(plain, key(&builder(4)));
        let others =
            [builder(5), builder(4).threads(2), builder(4).tune_level(1), builder(4).winograd(false)];
        for other in others {
            assert_ne!(plain, key(&other));
        }
        let mut asked = builder(4);
        asked.options_mut().selector = Some(std::sync::Arc::new(|_, _| true));
        assert_eq!(asked.cache_key().unwrap(), None);
    }

    #[test]
    fn damaged_plans_are_removed_and_said() {
        let cache = PlanCache::new(folder("damaged"), 1 << 20);
        let plan = builder(4).build().unwrap();
        assert!(matches!(cache.find("a"), Cached::Absent));
        assert!(cache.keep("a", &plan).unwrap());
        assert!(matches!(cache.find("a"), Cached::Hit(_)));
        let path = cache.path("a");
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
        let Cached::Unusable(why) = cache.find("a") else { panic!("a damaged plan was taken") };
        assert!(why.contains("checksum") || why.contains("zero"), "{why}");
        assert!(matches!(cache.find("a"), Cached::Absent));
        fs::remove_dir_all(cache.folder()).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn what_others_may_write_is_left_alone() {
        use std::os::unix::fs::PermissionsExt;
        let cache = PlanCache::new(folder("shared"), 1 << 20);
        let plan = builder(4).build().unwrap();
        cache.keep("a", &plan).unwrap();
        let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for (path, loose, tight) in [(cache.path("a"), 0o666, 0o644), (folder("shared"), 0o777, 0o700)] {
            allow(&path, loose);
            let Cached::Untrusted(why) = cache.find("a") else { panic!("{} was used", path.display()) };
            assert!(why.contains("may be written by others"), "{why}");
            allow(&path, tight);
            assert!(matches!(cache.find("a"), Cached::Hit(_)));
        }
        allow(cache.folder(), 0o777);
        assert!(cache.keep("b", &plan).is_err());
        fs::remove_dir_all(cache.folder()).unwrap();
    }

    #[test]
    fn the_least_recently_used_go_first() {
        let plan = builder(4).build().unwrap();
        let n_bytes = plan.inner.to_bytes().unwrap().len() as u64;
        let cache = PlanCache::new(folder("room"), 3 * n_bytes);
        let long_ago = SystemTime::now() - std::time::Duration::from_secs(1000);
        for (age, key) in ["a", "b", "c"].into_iter().enumerate() {
            cache.keep(key, &plan).unwrap();
            let file = File::options().append(true).open(cache.path(key)).unwrap();
            file.set_modified(long_ago + std::time::Duration::from_secs(age as u64)).unwrap();
        }
        // `a` is the oldest, but was just used.
        assert!(matches!(cache.find("a"), Cached::Hit(_)));
        cache.keep("d", &plan).unwrap();
        let there = ["a", "b", "c", "d"].map(|key| cache.path(key).exists());
        assert_eq!(there, [true, false, true, true]);
        fs::remove_dir_all(cache.folder()).unwrap();
    }
}
