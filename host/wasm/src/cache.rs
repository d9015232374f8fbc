//! Compiled components on disk. A compiled component is native code, so a file counts only if this host wrote it: the
//! directory is private, and each file carries a MAC under a key that never leaves the directory. What does not fit
//! is compiled again, never loaded.
//!
//! A file is `<sha256 of component>-<sha256 of engine>.cwasm`: 32 bytes of HMAC-SHA256 over the file's name and
//! content, then the content.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use rustix::fs::{OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::engine;
use crate::error::WasmError;

const KEY_FILE: &str = "key";
const KEY_BYTES: usize = 32;
const MAC_BYTES: usize = 32;
const SUFFIX: &str = ".cwasm";
/// Larger files than any component compiles to are not read.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Old entries go when all together are larger.
const MAX_CACHE_BYTES: u64 = 2 << 30;

/// A private directory of compiled components.
pub(crate) struct CompileCache {
    dir: PathBuf,
    key: [u8; KEY_BYTES],
    engine: String,
}

impl CompileCache {
    /// Opens the directory; creates it, and its key, if missing.
    pub(crate) fn open(dir: &Path, engine: &Engine) -> Result<Self, WasmError> {
        let fail = |path: &Path, detail: String| WasmError::Cache { path: path.to_owned(), detail };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|e| fail(dir, format!("cannot be created: {e}")))?;
        check_private(dir).map_err(|detail| fail(dir, detail))?;
        let key_path = dir.join(KEY_FILE);
        let key = read_or_create_key(&key_path).map_err(|detail| fail(&key_path, detail))?;
        Ok(Self { dir: dir.to_owned(), key, engine: engine::id(engine) })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn name(&self, component: &str) -> String {
        format!("{component}-{}{SUFFIX}", self.engine)
    }

    /// The compiled component, if this host once wrote it and nobody changed it.
    pub(crate) fn load(&self, engine: &Engine, component: &str) -> Option<Component> {
        let name = self.name(component);
        let path = self.dir.join(&name);
        let mut file = open_no_follow(&path).ok()?;
        if file.metadata().ok()?.len() > MAX_FILE_BYTES {
            return None;
        }
        let mut bytes = Vec::new();
        (&mut file).take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        let Some((mac, code)) = bytes.split_at_checked(MAC_BYTES) else { return self.refuse(&path) };
        if !same(mac, &self.mac(&name, code)) {
            return self.refuse(&path);
        }
        // SAFETY: the MAC proves that these very bytes, which are in memory and not mapped from a file that could change,
        // came from the compiler of an engine with the same configuration and version, written by a process that could
        // read the key.
        let component = match unsafe { Component::deserialize(engine, code) } {
            Ok(component) => component,
            Err(_) => return self.refuse(&path),
        };
        // Entries used last are dropped last. Failing to note that is harmless.
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let _ = rustix::fs::futimens(&file, &Timestamps { last_access: omit, last_modification: now });
        Some(component)
    }

    fn refuse(&self, path: &Path) -> Option<Component> {
        tracing::warn!(
            target: "tidegate::wasm",
            "compile cache: {} was not written by this host, or was changed; compiling again", path.display()
        );
        None
    }

    /// Keeps a compiled component. Failing to is no error: it is compiled again next time.
    pub(crate) fn store(&self, component: &str, code: &[u8]) {
        if let Err(error) = self.try_store(component, code) {
            tracing::warn!(target: "tidegate::wasm", "compile cache {}: {error}", self.dir.display());
        }
        self.shrink(MAX_CACHE_BYTES, &self.name(component));
    }

    fn try_store(&self, component: &str, code: &[u8]) -> Result<(), String> {
        let name = self.name(component);
        let mut unique = [0; 8];
        getrandom::fill(&mut unique).map_err(|e| e.to_string())?;
        let temporary = self.dir.join(format!("tmp-{}", HEXLOWER.encode(&unique)));
        let written = create_private(&temporary).and_then(|mut file| {
            file.write_all(&self.mac(&name, code))?;
            file.write_all(code)?;
            fs::rename(&temporary, self.dir.join(&name))
        });
        written.map_err(|e| {
            let _ = fs::remove_file(&temporary);
            format!("cannot write {name}: {e}")
        })
    }

    /// Removes the entries that were not used for longest until all together have at most `max` bytes.
    fn shrink(&self, max: u64, keep: &str) {
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        let mut files: Vec<_> = entries
            .flatten()
            .filter(|e| {
                let name = e.file_name();
                let name = name.to_string_lossy();
                name.starts_with("tmp-") || name.ends_with(SUFFIX)
            })
            .filter_map(|e| e.metadata().ok().map(|m| (m.mtime(), m.mtime_nsec(), m.len(), e.file_name())))
            .collect();
        files.sort();
        let mut sum: u64 = files.iter().map(|(_, _, len, _)| len).sum();
        for (_, _, len, name) in files {
            if sum <= max {
                return;
            }
            if name.to_string_lossy() != keep && fs::remove_file(self.dir.join(&name)).is_ok() {
                sum = sum.saturating_sub(len);
            }
        }
    }

    fn mac(&self, name: &str, code: &[u8]) -> [u8; MAC_BYTES] {
        // The name has a fixed length for a given engine; its own length keeps the two apart in any case.
        hmac_sha256(&self.key, &[&(name.len() as u64).to_le_bytes(), name.as_bytes(), code])
    }
}

/// HMAC of RFC 2104, for keys of at most one block.
fn hmac_sha256(key: &[u8; KEY_BYTES], message: &[&[u8]]) -> [u8; MAC_BYTES] {
    const BLOCK: usize = 64;
    let pad = |byte: u8| {
        let mut block = [byte; BLOCK];
        block.iter_mut().zip(key).for_each(|(b, k)| *b ^= k);
        block
    };
    let mut inner = Sha256::new_with_prefix(pad(0x36));
    message.iter().for_each(|piece| inner.update(piece));
    Sha256::new_with_prefix(pad(0x5c)).chain_update(inner.finalize()).finalize().into()
}

/// Compares without telling by its time where the first difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (x, y)| diff | (x ^ y)) == 0
}

fn check_private(dir: &Path) -> Result<(), String> {
    let meta = fs::symlink_metadata(dir).map_err(|e| e.to_string())?;
    if !meta.is_dir() {
        return Err("is not a directory".to_owned());
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err("belongs to another user; name a directory of your own".to_owned());
    }
    if meta.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
            .map_err(|e| format!("others can write to it, and that cannot be changed: {e}"))?;
    }
    Ok(())
}

fn open_no_follow(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)
}

fn create_private(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// The key is linked into place whole, so that two processes that start together agree on one.
fn read_or_create_key(path: &Path) -> Result<[u8; KEY_BYTES], String> {
    if let Some(key) = read_key(path)? {
        return Ok(key);
    }
    let mut key = [0; KEY_BYTES];
    let mut unique = [0; 8];
    getrandom::fill(&mut key).and_then(|()| getrandom::fill(&mut unique)).map_err(|e| e.to_string())?;
    let temporary = path.with_file_name(format!("tmp-{}", HEXLOWER.encode(&unique)));
    let written = create_private(&temporary).and_then(|mut file| file.write_all(&key));
    let linked = written.and_then(|()| fs::hard_link(&temporary, path));
    let _ = fs::remove_file(&temporary);
    match linked {
        Ok(()) => Ok(key),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            read_key(path)?.ok_or_else(|| "vanished while it was read".to_owned())
        }
        Err(e) => Err(format!("cannot be created: {e}")),
    }
}

fn read_key(path: &Path) -> Result<Option<[u8; KEY_BYTES]>, String> {
    let file = match open_no_follow(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("cannot be read: {e}")),
    };
    let meta = file.metadata().map_err(|e| e.to_string())?;
    if meta.uid() != rustix::process::geteuid().as_raw() || meta.permissions().mode() & 0o077 != 0 {
        return Err("others may have read or changed it; delete the cache directory".to_owned());
    }
    let mut key = Vec::new();
    file.take(KEY_BYTES as u64 + 1).read_to_end(&mut key).map_err(|e| e.to_string())?;
    let key = key.try_into().map_err(|_| "is damaged; delete the cache directory".to_owned())?;
    Ok(Some(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_of_a_known_message() {
        // RFC 4231 has no key of 32 bytes; its keys are padded with zeros, which changes nothing.
        let mut key = [0; KEY_BYTES];
        key[..4].copy_from_slice(b"Jefe");
        let mac = hmac_sha256(&key, &[b"what do ya want ", b"for nothing?"]);
        assert_eq!(HEXLOWER.encode(&mac), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    fn parts() -> (Engine, Vec<u8>) {
        (
            crate::engine::TickingEngine::new(&crate::limits::HostLimits::default()).unwrap().engine,
            wat::parse_str("(component (core module))").unwrap(),
        )
    }

    #[test]
    fn what_was_stored_is_loaded_and_what_was_changed_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("cache");
        let (engine, bytes) = parts();
        let cache = CompileCache::open(&dir, &engine).unwrap();
        cache.store("abc", &engine.precompile_component(&bytes).unwrap());
        assert!(cache.load(&engine, "abc").is_some());
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);

        let path = dir.join(cache.name("abc"));
        let good = fs::read(&path).unwrap();
        for at in [0, MAC_BYTES, good.len() / 2, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, &bad).unwrap();
            assert!(cache.load(&engine, "abc").is_none(), "byte {at}");
        }
        fs::write(&path, &good[..10]).unwrap();
        assert!(cache.load(&engine, "abc").is_none());

        fs::write(dir.join(cache.name("other")), &good).unwrap();
        assert!(cache.load(&engine, "other").is_none(), "a file under another component's name");
    }

    #[test]
    fn a_file_of_another_key_is_not_loaded() {
        let base = tempfile::tempdir().unwrap();
        let (engine, bytes) = parts();
        let ours = CompileCache::open(&base.path().join("ours"), &engine).unwrap();
        let theirs = CompileCache::open(&base.path().join("theirs"), &engine).unwrap();
        theirs.store("abc", &engine.precompile_component(&bytes).unwrap());
        let name = ours.name("abc");
        fs::copy(base.path().join("theirs").join(&name), base.path().join("ours").join(&name)).unwrap();
        assert!(ours.load(&engine, "abc").is_none());
    }

    #[test]
    fn h33_code_for_another_engine_is_not_loaded_under_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, bytes) = parts();
        let ours = CompileCache::open(dir.path(), &engine).unwrap();
        let mut config = wasmtime::Config::new();
        let other = Engine::new(config.concurrency_support(false)).unwrap();
        let theirs = CompileCache::open(dir.path(), &other).unwrap();
        assert_ne!(ours.name("abc"), theirs.name("abc"));
        // The same host with the same key, as after an upgrade.
        theirs.store("abc", &other.precompile_component(&bytes).unwrap());
        assert!(theirs.load(&other, "abc").is_some());
        assert!(ours.load(&engine, "abc").is_none());
        fs::copy(dir.path().join(theirs.name("abc")), dir.path().join(ours.name("abc"))).unwrap();
        assert!(ours.load(&engine, "abc").is_none());
    }

    #[test]
    fn entries_used_last_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, bytes) = parts();
        let cache = CompileCache::open(dir.path(), &engine).unwrap();
        let compiled = engine.precompile_component(&bytes).unwrap();
        for name in ["one", "two"] {
            cache.store(name, &compiled);
        }
        let old = File::options().write(true).open(dir.path().join(cache.name("two"))).unwrap();
        old.set_modified(std::time::UNIX_EPOCH).unwrap();
        cache.shrink(old.metadata().unwrap().len(), &cache.name("none"));
        assert!(cache.load(&engine, "one").is_some());
        assert!(cache.load(&engine, "two").is_none());
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, _) = parts();
        CompileCache::open(dir.path(), &engine).unwrap();
        fs::set_permissions(dir.path().join(KEY_FILE), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(CompileCache::open(dir.path(), &engine).is_err());
    }
}
