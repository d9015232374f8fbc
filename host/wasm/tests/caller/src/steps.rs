//! The steps.

use std::io::{Read as _, Write as _};

use tidegate_sdk::tcp::Connection;
use tidegate_sdk::{Ctx, Error};

use crate::sockets;

/// What stays between two calls.
#[derive(Default)]
pub(crate) struct Held {
    connection: Option<Connection>,
    others: Vec<Connection>,
}

impl Held {
    /// Takes one step: a word and what belongs to it. `None`: nothing to say about it.
    pub(crate) fn take(&mut self, ctx: &Ctx, step: &str) -> Option<String> {
        let (word, rest) = step.split_once(' ').unwrap_or((step, ""));
        match word {
            "connect" => match ctx.connect(rest) {
                Ok(connection) => {
                    self.others.extend(self.connection.replace(connection));
                    None
                }
                Err(error) => Some(told(&error)),
            },
            "connect-many" => {
                let (name, count) = rest.split_once(' ').unwrap_or((rest, "1"));
                let made: Result<Vec<_>, _> = (0..number(count)).map(|_| ctx.connect(name)).collect();
                match made {
                    Ok(made) => self.others.extend(made),
                    Err(error) => return Some(told(&error)),
                }
                Some(self.others.len().to_string())
            }
            "drop" => {
                self.connection = None;
                self.others.clear();
                None
            }
            "loop" => loop {
                std::hint::black_box(0);
            },
            "nap" => {
                std::thread::sleep(std::time::Duration::from_secs(3600));
                None
            }
            "trap" => panic!("as the step says"),
            "std" | "std-loop" | "resolve" | "resolve-many" | "listen" | "udp" | "raw-connect" => {
                Some(sockets::take(word, rest))
            }
            "empty-writes" => Some(sockets::empty_writes(rest)),
            _ => match &mut self.connection {
                Some(connection) => on_connection(connection, word, rest),
                None => Some("no connection".to_owned()),
            },
        }
    }
}

fn told(error: &Error) -> String {
    format!("{:?} {}: {}", error.kind, error.code, error.message)
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

fn on_connection(connection: &mut Connection, word: &str, rest: &str) -> Option<String> {
    let done = match word {
        "write" => connection.write_all(rest.as_bytes()),
        "write-many" => {
            let block = vec![b'x'; 1 << 16];
            let mut left = number(rest);
            let mut wrote = Ok(());
            while left > 0 && wrote.is_ok() {
                let now = left.min(block.len());
                wrote = connection.write_all(&block[..now]);
                left -= now;
            }
            wrote
        }
        "flush" => connection.flush(),
        "read" => {
            let mut read = vec![0; number(rest)];
            return Some(match connection.read_exact(&mut read) {
                Ok(()) => String::from_utf8_lossy(&read).into_owned(),
                Err(error) => format!("lost: {error}"),
            });
        }
        "read-all" => {
            let mut read = Vec::new();
            return Some(match connection.read_to_end(&mut read) {
                Ok(_) => format!("{} and an end", read.len()),
                Err(error) => format!("{} and lost: {error}", read.len()),
            });
        }
        "start-tls" => return connection.start_tls().err().map(|error| told(&error)),
        "end-point" => {
            let bytes = connection.tls_server_end_point();
            return Some(bytes.map_or("none".to_owned(), |bytes| {
                bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
            }));
        }
        _ => return Some(format!("no such step: {word}")),
    };
    done.err().map(|error| format!("lost: {error}"))
}
