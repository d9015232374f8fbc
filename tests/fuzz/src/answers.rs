//! What a plugin hands back from its calls, behind the component model: any value of the interface's types, taken into the
//! protocol's words. What is stored or shown is bounded, and has no secret and nothing that moves a cursor in it.

use tidegate_wasm::lifted as w;

use crate::input::Input;
use crate::{Met, words};

const SECRET: &str = "hunter22";
const PATH: &str = "/srv/granted";
/// Largest committable, here: the product's own limit is out of reach for an input.
const MAX_BODY: usize = 1000;
/// Longest message, longest short text, and what stands behind one that was cut.
const MESSAGE: usize = 4096;
const NAME: usize = 200;
const CUT: usize = " … (cut)".len();

pub(crate) fn run(bytes: &[u8]) -> Met {
    let redactor = w::Redactor::default();
    redactor.hide_secret(SECRET, "token");
    redactor.hide_path(PATH, "output");
    let mut input = Input(bytes);
    match input.byte() % 8 {
        0 => description(input.description()),
        1 => error(input.error(), &redactor),
        2 => outcomes(input.list(Input::outcome), &redactor),
        3 => rejects(input.list(Input::reject), &redactor),
        4 => prepared(&input.prepared(), &redactor),
        5 => position(&input.position(), &redactor),
        6 => orphans(input.orphans()),
        _ => resource(&input.external(), &redactor),
    }
}

/// Text for people.
fn shown(text: &str, most: usize) {
    assert!(text.len() <= most + CUT, "{} bytes are shown, at most {most} are due", text.len());
    assert!(!text.contains(SECRET) && !text.contains(PATH), "{text:?}");
    harmless(text);
}

fn harmless(text: &str) {
    let moves = |c: char| {
        c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!text.contains(moves), "{text:?}");
}

/// What the log will hold.
fn stored(bytes: &[u8], most: usize) {
    assert!(bytes.len() <= most, "{} bytes are stored, at most {most} are due", bytes.len());
    assert!(!bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()), "a secret is stored");
}

fn refused<T>(taken: &w::Checked<T>) -> Met {
    if let Err(error) = taken {
        shown(&words(error), 1024);
    }
    Met::of(taken)
}

/// What is handed back to the plugin is what it gave.
fn same(given: &impl std::fmt::Debug, handed_back: &impl std::fmt::Debug) {
    assert_eq!(format!("{given:?}"), format!("{handed_back:?}"));
}

fn description(given: w::Description) -> Met {
    let taken = w::description_from_wit(given);
    match &taken {
        Ok(taken) => {
            let grants = taken.grants.iter().flat_map(|grant| [&grant.kind, &grant.name]);
            for name in [&taken.name, &taken.version].into_iter().chain(grants) {
                assert!((1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic()), "{name:?}");
            }
            for grant in &taken.grants {
                assert!(grant.reason.len() <= NAME + CUT);
                harmless(&grant.reason);
            }
            assert!(taken.config_schema.len() <= 256 << 10 && (1..=16).contains(&taken.encodings.len()));
            assert!(taken.grants.len() <= 100 && taken.committable_versions.len() <= 1000);
            assert!(taken.abilities.max_open_epochs > 0);
        }
        // Nothing was granted yet, and so there is nothing to hide.
        Err(error) => harmless(&words(error)),
    }
    Met::of(&taken)
}

/// An error is never refused: it says itself that something failed.
fn error(given: w::Error, redactor: &w::Redactor) -> Met {
    let whole = given.code.len() <= NAME && given.message.len() <= MESSAGE;
    let kind = format!("{:?}", given.kind);
    let taken = w::error_from_wit(given, redactor);
    assert_eq!(kind.replace("ErrorKind::", ""), format!("{:?}", taken.kind));
    shown(&taken.code, NAME);
    shown(&taken.message, MESSAGE);
    if whole { Met::Read } else { Met::Refused }
}

fn outcomes(given: Vec<w::Outcome>, redactor: &w::Redactor) -> Met {
    let count = given.len();
    let taken = w::outcomes_from_wit(given, redactor);
    for outcome in taken.iter().flatten() {
        match outcome {
            tidegate_protocol::plugin::Outcome::Rejected(error) => {
                shown(&error.code, NAME);
                shown(&error.message, MESSAGE);
            }
            tidegate_protocol::plugin::Outcome::Retry(after) => assert!(after.is_none_or(|ms| ms <= 86_400_000)),
            _ => {}
        }
    }
    // One left out would stand for the next one's.
    assert!(taken.as_ref().is_err() || taken.as_ref().is_ok_and(|taken| taken.len() == count));
    refused(&taken)
}

fn rejects(given: Vec<w::Reject>, redactor: &w::Redactor) -> Met {
    let rows: Vec<u64> = given.iter().map(|reject| reject.row).collect();
    let taken = w::rejects_from_wit(given, redactor);
    if let Ok(taken) = &taken {
        assert!(taken.iter().map(|reject| reject.row).eq(rows));
        for reject in taken {
            shown(&reject.code, NAME);
            shown(&reject.message, MESSAGE);
        }
    }
    refused(&taken)
}

fn prepared(given: &w::Prepared, redactor: &w::Redactor) -> Met {
    let taken = w::prepared_from_wit(given.clone(), redactor, MAX_BODY, MAX_BODY);
    if let Ok(taken) = &taken {
        same(&given.committable, &w::committable_to_wit(&taken.committable));
        same(&given.state, &taken.state.as_ref().map(w::state_to_wit));
        same(&given.resources, &taken.resources.iter().map(w::external_to_wit).collect::<Vec<_>>());
        part(&taken.committable.part);
        stored(&taken.committable.body, MAX_BODY);
        taken.state.iter().for_each(|state| stored(&state.body, MAX_BODY));
        taken.resources.iter().for_each(|resource| external(&resource.kind, &resource.name));
        assert_eq!((taken.rows, taken.rejects.len()), (given.rows, given.rejects.len()));
    }
    refused(&taken)
}

fn part(part: &tidegate_protocol::ids::PartId) {
    for name in [&part.full, &part.short] {
        stored(name.as_bytes(), 512);
        harmless(name);
    }
}

fn external(kind: &str, name: &str) {
    stored(kind.as_bytes(), NAME);
    stored(name.as_bytes(), 1024);
}

fn position(given: &w::Position, redactor: &w::Redactor) -> Met {
    let taken = w::position_from_wit(given.clone(), redactor);
    if let Ok(taken) = &taken {
        same(given, &w::position_to_wit(taken));
        stored(&taken.token, 64 << 10);
        taken.last.iter().for_each(part);
    }
    refused(&taken)
}

fn orphans(given: w::OrphanPage) -> Met {
    let count = given.orphans.len();
    let taken = w::orphans_from_wit(given);
    if let Ok(taken) = &taken {
        assert_eq!(taken.orphans.len(), count);
        assert!(taken.next.as_ref().is_none_or(|next| next.len() <= 64 << 10));
        for orphan in &taken.orphans {
            assert!(orphan.short.len() <= 512 && orphan.resource.name.len() <= 1024);
        }
    }
    refused(&taken)
}

fn resource(given: &w::External, redactor: &w::Redactor) -> Met {
    let taken = w::stored_external(given.clone(), redactor);
    if let Ok(taken) = &taken {
        same(given, &w::external_to_wit(taken));
        external(&taken.kind, &taken.name);
    }
    refused(&taken)
}

/// Values of the interface's types out of an input.
impl Input<'_> {
    /// A byte and a piece; from 192 on the byte says how often the piece is there, up to 64 times, so that limits come
    /// within reach.
    fn bytes(&mut self) -> Vec<u8> {
        let times = usize::from(self.byte().saturating_sub(191).max(1));
        self.piece().unwrap_or_default().repeat(times)
    }

    fn string(&mut self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    fn yes(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    fn small(&mut self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.yes().then(|| value(self))
    }

    /// Up to 200 values; 255 is one empty value more than a list may hold.
    fn list<T: Clone>(&mut self, mut value: impl FnMut(&mut Self) -> T) -> Vec<T> {
        match self.byte() {
            255 => vec![value(&mut Input(&[])); 100_001],
            count => (0..count.min(200)).map(|_| value(self)).collect(),
        }
    }

    fn run_id(&mut self) -> w::RunId {
        w::RunId { number: self.number(), nonce: self.string() }
    }

    fn part(&mut self) -> w::Part {
        w::Part {
            full: self.string(),
            short: self.string(),
            run: self.run_id(),
            epoch: self.number(),
            ordinal: self.small(),
            attempt: self.small(),
        }
    }

    fn external(&mut self) -> w::External {
        w::External { kind: self.string(), name: self.string(), expires_at: self.maybe(Self::number) }
    }

    fn error(&mut self) -> w::Error {
        let kind = match self.byte() % 9 {
            0 => w::ErrorKind::Retryable,
            1 => w::ErrorKind::Permanent,
            2 => w::ErrorKind::BadConfig,
            3 => w::ErrorKind::BadBatch,
            4 => w::ErrorKind::EpochLost,
            5 => w::ErrorKind::Fenced,
            6 => w::ErrorKind::Unsupported,
            7 => w::ErrorKind::Denied,
            _ => w::ErrorKind::Unknown,
        };
        w::Error { kind, code: self.string(), message: self.string() }
    }

    fn outcome(&mut self) -> w::Outcome {
        match self.byte() % 9 {
            0 => w::Outcome::Committed,
            1 => w::Outcome::AlreadyCommitted,
            2 => w::Outcome::NotCommitted,
            3 => w::Outcome::Never,
            4 => w::Outcome::Retry(self.maybe(Self::number)),
            5 => w::Outcome::Fenced,
            6 => w::Outcome::Unsupported,
            7 => w::Outcome::Unknown,
            _ => w::Outcome::Rejected(self.error()),
        }
    }

    fn reject(&mut self) -> w::Reject {
        w::Reject { row: self.number(), code: self.string(), message: self.string() }
    }

    fn prepared(&mut self) -> w::Prepared {
        w::Prepared {
            committable: w::Committable {
                part: self.part(),
                version: self.small(),
                body: self.bytes(),
                rows: self.number(),
                expires_at: self.maybe(Self::number),
            },
            resources: self.list(Self::external),
            state: self.maybe(|input| w::WriterState {
                range: w::KeyRange { first: input.small(), last: input.small() },
                version: input.small(),
                body: input.bytes(),
            }),
            rows: self.number(),
            rejects: self.list(Self::reject),
        }
    }

    fn position(&mut self) -> w::Position {
        w::Position { fence: self.maybe(Self::run_id), last: self.list(Self::part), token: self.bytes() }
    }

    fn orphans(&mut self) -> w::OrphanPage {
        let orphans = self.list(|input| w::Orphan {
            short: input.string(),
            resource: input.external(),
            bytes: input.maybe(Self::number),
        });
        w::OrphanPage { orphans, next: self.maybe(Self::string) }
    }

    fn description(&mut self) -> w::Description {
        w::Description {
            name: self.string(),
            version: self.string(),
            config_schema: self.string(),
            encodings: self.list(|input| match input.byte() % 5 {
                0 => w::Encoding::Raw,
                1 => w::Encoding::JsonLines,
                2 => w::Encoding::Csv,
                3 => w::Encoding::ArrowStream,
                _ => w::Encoding::Files,
            }),
            abilities: self.abilities(),
            committable_versions: self.list(Self::small),
            grants: self.list(|input| w::GrantRequest {
                role: match input.byte() % 3 {
                    0 => w::Role::Writer,
                    1 => w::Role::Committer,
                    _ => w::Role::Janitor,
                },
                kind: input.string(),
                name: input.string(),
                reason: input.string(),
            }),
            needs: self.list(|input| w::Need { budget: input.string(), at_least: input.number() }),
        }
    }

    fn abilities(&mut self) -> w::Abilities {
        w::Abilities {
            staging: self.yes(),
            idempotent_commit: self.yes(),
            marker_retention: self.maybe(Self::number),
            marker_survives_foreign_writers: self.yes(),
            observe: self.yes(),
            fence: self.yes(),
            reconcile: self.yes(),
            atomic_scope: if self.yes() { w::AtomicScope::Sink } else { w::AtomicScope::Participant },
            visibility: match self.byte() % 3 {
                0 => w::Visibility::WholeEpoch,
                1 => w::Visibility::PerParticipant,
                _ => w::Visibility::Early,
            },
            max_open_epochs: self.small(),
            upsert_keys: self.yes(),
            prepared_ttl: self.maybe(Self::number),
            max_idle: self.maybe(Self::number),
            names_per_day: self.maybe(Self::number),
            orphans: match self.byte() % 3 {
                0 => w::Orphans::Listable,
                1 => w::Orphans::DurableIntent,
                _ => w::Orphans::Expires(self.number()),
            },
        }
    }
}
