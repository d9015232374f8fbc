//! Secrets by name. A value is read when the plugin asks for it, so that a rotated secret counts from the next call
//! on; it is never kept in configuration, log or checkpoint.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use wasmtime::component::Resource;

use super::State;
use crate::bindings::imported::secrets;
use crate::bindings::imported::types::{Error, ErrorKind};
use crate::process::{SecretPlace, child};
use crate::text::{MAX_NAME, clean};

/// Longest secret, in bytes.
const MAX_SECRET: u64 = 64 << 10;

/// Where a secret's value is found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SecretRef {
    /// In this environment variable.
    Env(String),
    /// In this file; one newline at its end does not belong to the value.
    File(PathBuf),
    /// In a child process: with the parent, which knows the place. Cannot be configured.
    #[doc(hidden)]
    Parent(SecretPlace),
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretRef::Env(name) => write!(f, "environment variable {name}"),
            SecretRef::File(path) => write!(f, "file {}", path.display()),
            SecretRef::Parent(_) => f.write_str("parent process"),
        }
    }
}

impl SecretRef {
    /// Reads the value. The error says where it was looked for, never what was found.
    pub(crate) fn read(&self) -> Result<String, String> {
        match self {
            SecretRef::Env(name) => match std::env::var(name) {
                Ok(value) => Ok(value),
                Err(std::env::VarError::NotPresent) => Err(format!("environment variable {name} is not set")),
                Err(std::env::VarError::NotUnicode(_)) => Err(format!("environment variable {name} is not UTF-8")),
            },
            SecretRef::File(path) => {
                let file = crate::open_file(path).map_err(|e| format!("{self} cannot be read: {e}"))?;
                let mut value = String::new();
                file.take(MAX_SECRET + 1)
                    .read_to_string(&mut value)
                    .map_err(|e| format!("{self} cannot be read as UTF-8 text: {e}"))?;
                if value.len() as u64 > MAX_SECRET {
                    return Err(format!("{self} has more than {MAX_SECRET} bytes"));
                }
                let end = value.strip_suffix("\r\n").or_else(|| value.strip_suffix('\n')).map_or(value.len(), str::len);
                value.truncate(end);
                Ok(value)
            }
            SecretRef::Parent(place) => child::read_secret(place),
        }
    }
}

/// A value behind a handle.
#[allow(unreachable_pub, reason = "the generated bindings re-export it within this crate")]
pub enum HostSecret {
    /// Read when it was asked for.
    Read(String),
    /// Known to be there; this process gets it when it is revealed.
    Found {
        /// Under which name it is granted.
        name: String,
        /// Where it is.
        place: SecretPlace,
    },
}

/// The secrets that one instance may ask for.
#[derive(Clone, Default)]
pub(crate) struct GrantedSecrets(pub(crate) BTreeMap<String, SecretRef>);

impl secrets::Host for State {
    async fn get(&mut self, name: String) -> wasmtime::Result<Result<Resource<HostSecret>, Error>> {
        self.meter.check()?;
        let Some(place) = self.secrets.0.get(&name) else {
            let name = clean(&name, MAX_NAME);
            let message = format!("no secret named `{name}` is granted in this role");
            return Ok(Err(super::error(ErrorKind::Denied, "not-granted", message)));
        };
        if let SecretRef::Parent(place) = place {
            let found =
                child::find_secret(place).map(|()| HostSecret::Found { name: name.clone(), place: place.clone() });
            return match found {
                Ok(found) => Ok(Ok(self.table.push(found)?)),
                Err(_) => Ok(Err(unreadable(&name))),
            };
        }
        match place.read() {
            Ok(value) => {
                self.redactor.hide_secret(&value, &name);
                Ok(Ok(self.table.push(HostSecret::Read(value))?))
            }
            Err(message) => {
                // Where the operator keeps it is not the plugin's business.
                self.log.write(super::log::LogLevel::Error, &format!("secret `{name}`: {message}"), &[]);
                Ok(Err(unreadable(&name)))
            }
        }
    }
}

fn unreadable(name: &str) -> Error {
    let message = format!("the secret `{name}` is granted and cannot be read; the host's log says why");
    super::error(ErrorKind::BadConfig, "secret-unreadable", message)
}

impl secrets::HostSecret for State {
    async fn reveal(&mut self, secret: Resource<HostSecret>) -> wasmtime::Result<String> {
        self.meter.check()?;
        match self.table.get(&secret)? {
            HostSecret::Read(value) => Ok(value.clone()),
            HostSecret::Found { name, place } => {
                let value = child::read_secret(place)
                    .map_err(|why| wasmtime::Error::msg(format!("the secret `{name}` was there before: {why}")))?;
                self.redactor.hide_secret(&value, name);
                Ok(value)
            }
        }
    }

    async fn drop(&mut self, secret: Resource<HostSecret>) -> wasmtime::Result<()> {
        self.table.delete(secret)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_last_newline_is_not_part_of_the_value() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "s3cret\n").unwrap();
        assert_eq!(SecretRef::File(path).read().unwrap(), "s3cret");
    }

    #[test]
    fn a_missing_variable_is_named() {
        let error = SecretRef::Env("TIDEGATE_NO_SUCH_VARIABLE".to_owned()).read().unwrap_err();
        assert!(error.contains("TIDEGATE_NO_SUCH_VARIABLE"), "{error}");
    }
}
