//! Who calls, on whose behalf, and what the host offers to the call.

use serde::de::DeserializeOwned;

#[cfg(not(target_family = "wasm"))]
use crate::External;
#[cfg(not(target_family = "wasm"))]
use crate::fs::Dir;
use crate::{Error, RunId, config};

/// The context of one call.
#[derive(Clone)]
pub struct Ctx {
    /// The operator's stable name of this sink.
    pub sink: String,
    /// Eight characters that stand for pipeline and sink in every short name.
    pub sink_hash: String,
    /// The run on whose behalf the call is made.
    pub run: RunId,
    /// The configuration that counts for this call, as a JSON object without secrets.
    pub config_json: String,
    /// How often this very call has been made for this very subject, from 1.
    pub attempt: u32,
    #[cfg(not(target_family = "wasm"))]
    pub(crate) host: std::sync::Arc<crate::native::Host>,
}

/// How loud a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Every step.
    Trace,
    /// For developers.
    Debug,
    /// For operators.
    Info,
    /// Something needs attention.
    Warn,
    /// Something failed.
    Error,
}

/// A secret's handle. Its value crosses into the plugin only with [`Secret::reveal`].
pub struct Secret {
    #[cfg(target_family = "wasm")]
    inner: crate::guest::bindings::tidegate::sink::secrets::Secret,
    #[cfg(not(target_family = "wasm"))]
    inner: String,
}

impl Ctx {
    /// The configuration, typed. Use `#[serde(deny_unknown_fields)]`.
    ///
    /// # Errors
    /// `bad-config`, naming the key.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T, Error> {
        config::parse(&self.config_json)
    }
}

#[cfg(target_family = "wasm")]
mod sandboxed {
    use super::{Ctx, Level, Secret};
    use crate::fs::Dir;
    use crate::guest::bindings::tidegate::sink::{ledger, log, metrics, secrets};
    use crate::{Error, External};

    impl Ctx {
        /// The directory granted under this name.
        ///
        /// # Errors
        /// Nothing of that name was granted.
        pub fn dir(&self, grant: &str) -> Result<Dir, Error> {
            Dir::granted(grant)
        }

        /// A secret by the name it was granted under.
        ///
        /// # Errors
        /// Nothing of that name was granted, or it cannot be resolved now.
        pub fn secret(&self, name: &str) -> Result<Secret, Error> {
            Ok(Secret { inner: secrets::get(name)? })
        }

        /// One line in the sink's log.
        pub fn log(&self, level: Level, message: &str, fields: &[(String, String)]) {
            let level = match level {
                Level::Trace => log::Level::Trace,
                Level::Debug => log::Level::Debug,
                Level::Info => log::Level::Info,
                Level::Warn => log::Level::Warn,
                Level::Error => log::Level::Error,
            };
            log::log(level, message, fields);
        }

        /// Adds to a counter of the sink.
        pub fn counter_add(&self, name: &str, labels: &[(String, String)], value: u64) {
            metrics::counter_add(name, labels, value);
        }

        /// Sets a gauge of the sink.
        pub fn gauge_set(&self, name: &str, labels: &[(String, String)], value: f64) {
            metrics::gauge_set(name, labels, value);
        }

        /// Records one value in a histogram of the sink.
        pub fn histogram_record(&self, name: &str, labels: &[(String, String)], value: f64) {
            metrics::histogram_record(name, labels, value);
        }

        /// Call before creating something that `list_orphans` could not find again. Returns after the intent is durable.
        ///
        /// # Errors
        /// The intent is not durable; create nothing.
        pub fn resource_intent(&self, resource: &External) -> Result<u64, Error> {
            Ok(ledger::resource_intent(&resource.clone().into())?)
        }

        /// The announced thing exists, under this name.
        ///
        /// # Errors
        /// The name is not recorded.
        pub fn resource_bound(&self, intent: u64, name: &str) -> Result<(), Error> {
            Ok(ledger::resource_bound(intent, name)?)
        }
    }

    impl Secret {
        /// The value.
        pub fn reveal(&self) -> String {
            self.inner.reveal()
        }
    }
}

#[cfg(not(target_family = "wasm"))]
impl Ctx {
    /// The directory granted under this name.
    ///
    /// # Errors
    /// Nothing of that name was granted.
    pub fn dir(&self, grant: &str) -> Result<Dir, Error> {
        self.host.granted(grant)
    }

    /// A secret by the name it was granted under.
    ///
    /// # Errors
    /// Nothing of that name was granted.
    pub fn secret(&self, name: &str) -> Result<Secret, Error> {
        self.host.secret(name).map(|inner| Secret { inner })
    }

    /// One line in the sink's log.
    pub fn log(&self, level: Level, message: &str, fields: &[(String, String)]) {
        self.host.logged(level, message, fields);
    }

    /// Adds to a counter of the sink.
    pub fn counter_add(&self, name: &str, labels: &[(String, String)], value: u64) {
        self.host.counted(name, labels, value);
    }

    /// Sets a gauge of the sink. Natively a measurement without a reader.
    pub fn gauge_set(&self, _name: &str, _labels: &[(String, String)], _value: f64) {}

    /// Records one value in a histogram of the sink. Natively a measurement without a reader.
    pub fn histogram_record(&self, _name: &str, _labels: &[(String, String)], _value: f64) {}

    /// Call before creating something that `list_orphans` could not find again. Returns after the intent is durable.
    ///
    /// # Errors
    /// The intent is not durable; create nothing.
    pub fn resource_intent(&self, resource: &External) -> Result<u64, Error> {
        Ok(self.host.intended(resource))
    }

    /// The announced thing exists, under this name.
    ///
    /// # Errors
    /// No such intent.
    pub fn resource_bound(&self, intent: u64, name: &str) -> Result<(), Error> {
        self.host.bound(intent, name)
    }
}

#[cfg(not(target_family = "wasm"))]
impl Secret {
    /// The value.
    pub fn reveal(&self) -> String {
        self.inner.clone()
    }
}
