//! What a child says, message by message.

use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tidegate_protocol::ids::PartId;
use tidegate_protocol::plugin::{ErrorKind, External, IntentLog, PluginError};

use super::super::check;
use super::super::wire::{Down, Fault, Reply, SecretPlace, Up};
use super::Shared;
use crate::host::log::LogLevel;
use crate::host::secrets::SecretRef;
use crate::text::Redactor;
use crate::worker::frame;

/// Secrets that are looked for at once. An instance asks for one at a time.
const MAX_ASKED: usize = 2000;

impl Shared {
    /// Takes what the child says until it says no more. Says why that is.
    pub(super) fn listen(self: &Arc<Self>, socket: UnixStream) -> String {
        let mut socket = BufReader::with_capacity(64 << 10, socket);
        loop {
            let heard = frame::read::<Up>(&mut socket, self.max_up.load(Ordering::Relaxed));
            match heard {
                Ok(up) => {
                    if let Err(broken) = self.hear(up) {
                        return format!("it was ended because it broke the protocol: {broken}");
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Other => {
                    return format!("it was ended because it broke the protocol: {error}");
                }
                Err(_) => return String::new(),
            }
        }
    }

    /// The error is what was wrong with it.
    fn hear(self: &Arc<Self>, up: Up) -> Result<(), &'static str> {
        match up {
            Up::Made { instance, made } => self.answered(instance, made.map(|()| Reply::Done)),
            Up::Answer { instance, answer } => self.answered(instance, answer),
            Up::Intent { instance, resource } => {
                let Some((intents, part, redactor)) = self.announces(instance)? else { return Ok(()) };
                let resource = check::external(&resource, &redactor);
                self.clone().answer_intent(instance, async move {
                    match resource {
                        Ok(resource) => intents.intent(part, resource).await,
                        Err(message) => Err(bad_resource(message)),
                    }
                });
                Ok(())
            }
            Up::Bound { instance, intent, name } => {
                let Some((intents, _, redactor)) = self.announces(instance)? else { return Ok(()) };
                let external = External { kind: String::new(), name, expires_at: None };
                let external = check::external(&external, &redactor);
                self.clone().answer_intent(instance, async move {
                    match external {
                        Ok(external) => intents.bound(intent, external.name).await.map(|()| 0),
                        Err(message) => Err(bad_resource(message)),
                    }
                });
                Ok(())
            }
            Up::Secret { ask, place, reveal } => self.secret(ask, place, reveal),
            Up::Line { instance, level, message, fields } => {
                let log = self.lock().instances.get(&instance).map(|entry| entry.voices.log.clone());
                if let Some(log) = log {
                    log.write(level, &message, &fields);
                }
                Ok(())
            }
            Up::Sample { instance, name, labels, change } => {
                if let Some(entry) = self.lock().instances.get_mut(&instance) {
                    entry.voices.metrics.record(name, labels, change);
                }
                Ok(())
            }
            Up::Denied(news) => {
                for (what, count) in news.into_iter().take(1000) {
                    self.tenant.add_denied(&what, count);
                }
                Ok(())
            }
        }
    }

    fn answered(&self, instance: u32, answer: Result<Reply, Fault>) -> Result<(), &'static str> {
        let mut table = self.lock();
        // Of one that was closed meanwhile, nobody waits.
        let Some(entry) = table.instances.get_mut(&instance) else { return Ok(()) };
        let waiting = entry.waiting.take().ok_or("an answer to no question")?;
        let _ = waiting.send(answer);
        Ok(())
    }

    /// `None` if the instance was closed meanwhile.
    #[allow(clippy::type_complexity, reason = "three things of one entry")]
    fn announces(&self, instance: u32) -> Result<Option<(Arc<dyn IntentLog>, Option<PartId>, Redactor)>, &'static str> {
        let mut table = self.lock();
        let Some(entry) = table.instances.get_mut(&instance) else { return Ok(None) };
        if std::mem::replace(&mut entry.announcing, true) {
            return Err("a second announcement before the first one's answer");
        }
        let intents = entry.intents.clone().ok_or("an announcement by who is no writer")?;
        Ok(Some((intents, entry.part.clone(), entry.voices.redactor.clone())))
    }

    fn answer_intent(
        self: Arc<Self>,
        instance: u32,
        answer: impl Future<Output = Result<u64, PluginError>> + Send + 'static,
    ) {
        let tasks = self.tasks.clone();
        tasks.spawn(async move {
            let answer = answer.await;
            if let Some(entry) = self.lock().instances.get_mut(&instance) {
                entry.announcing = false;
                self.post(&Down::Intent { instance, answer });
            }
        });
    }

    fn secret(self: &Arc<Self>, ask: u32, place: SecretPlace, reveal: bool) -> Result<(), &'static str> {
        let table = self.lock();
        let found = match &place {
            SecretPlace::Granted { instance, name } => {
                let Some(entry) = table.instances.get(instance) else { return Ok(()) };
                let found = entry.voices.secrets.get(name).cloned();
                found
                    .map(|found| (found, Some((name.clone(), entry.voices.redactor.clone(), entry.voices.log.clone()))))
            }
            SecretPlace::Hosts { binding, number } => {
                let bond = table.bonds.get(binding).and_then(Weak::upgrade);
                let Some(bond) = bond else { return Ok(()) };
                bond.hosts_secret(*number).map(|found| (found, None))
            }
        };
        let (secret, asker): (SecretRef, _) = found.ok_or("a secret was asked for that is not granted")?;
        drop(table);
        if self.asked.fetch_add(1, Ordering::Relaxed) >= MAX_ASKED {
            return Err("more questions for secrets than instances can ask");
        }
        let this = self.clone();
        self.tasks.spawn_blocking(move || {
            let answer = match (secret.read(), asker) {
                (Ok(value), Some((name, redactor, _))) => {
                    redactor.hide_secret(&value, &name);
                    Ok(reveal.then_some(value))
                }
                (Ok(value), None) => Ok(reveal.then_some(value)),
                // Where the operator keeps it stays here.
                (Err(message), Some((name, _, log))) => {
                    log.write(LogLevel::Error, &format!("secret `{name}`: {message}"), &[]);
                    Err("it cannot be read; the host's log says why".to_owned())
                }
                (Err(message), None) => {
                    tracing::error!(target: "tidegate::wasm", "a secret for a connection: {message}");
                    Err("it cannot be read; the host's log says why".to_owned())
                }
            };
            this.asked.fetch_sub(1, Ordering::Relaxed);
            this.post(&Down::Secret { ask, answer });
        });
        Ok(())
    }
}

fn bad_resource(message: String) -> PluginError {
    PluginError { kind: ErrorKind::Permanent, code: "bad-resource".to_owned(), message }
}
