//! A sink plugin that misbehaves. Its configuration is one word, and `observe` does what the word says; the other
//! calls are harmless.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it does what a plugin should not")]

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_sdk::{
    Abilities, AtomicScope, Batch, Committable, Ctx, Description, Encoding, Error, External, GrantRequest, KeyRange,
    Level, Need, Orphans, Outcome, Part, Position, Prepared, Reject, Role, Sink, Visibility, Writer, WriterState,
};

unsafe extern "C" {
    /// The C library's, which asks WASI for random bytes.
    fn getentropy(buffer: *mut u8, len: usize) -> i32;
}

static CALLS: AtomicU64 = AtomicU64::new(0);

/// The sink.
#[derive(Default)]
pub struct Hostile;

impl Sink for Hostile {
    type Writer = HostileWriter;

    fn describe() -> Description {
        let grant = |role, kind, name| GrantRequest { role, kind, name, reason: "for the test" };
        Description {
            name: "hostile".to_owned(),
            version: "1.0.0".to_owned(),
            config_schema: r#"{"type":"object"}"#.to_owned(),
            encodings: vec![Encoding::Raw],
            abilities: Abilities {
                staging: true,
                idempotent_commit: true,
                marker_retention: None,
                marker_survives_foreign_writers: true,
                observe: true,
                fence: false,
                reconcile: false,
                atomic_scope: AtomicScope::Participant,
                visibility: Visibility::PerParticipant,
                max_open_epochs: 0,
                upsert_keys: false,
                prepared_ttl: None,
                max_idle: None,
                names_per_day: None,
                orphans: Orphans::DurableIntent,
            },
            committable_versions: vec![1],
            grants: vec![
                grant(Role::Committer, "dir", "output"),
                grant(Role::Committer, "secret", "token"),
                grant(Role::Writer, "secret", "token"),
            ],
            needs: vec![Need { budget: "connections", at_least: 2 }],
        }
    }

    fn open(&mut self, _: &Ctx, _: KeyRange, _: Vec<WriterState>) -> Result<HostileWriter, Error> {
        Ok(HostileWriter { part: None })
    }

    fn observe(&mut self, ctx: &Ctx) -> Result<Position, Error> {
        misbehave(ctx)
    }

    fn commit(&mut self, ctx: &Ctx, _: &[Part], parts: &[Committable]) -> Result<Vec<Outcome>, Error> {
        break_off(word(ctx));
        match word(ctx) {
            "third" if parts.iter().any(|committable| committable.part.epoch == 3) => panic!("not this one"),
            "third" => return Ok(parts.iter().map(|_| Outcome::Committed).collect()),
            "later" => return Err(Error::retryable("later", "not now")),
            _ => {}
        }
        Ok(vec![Outcome::Committed, Outcome::Retry(Some(u64::MAX)), Outcome::Never])
    }
}

/// Its writer.
pub struct HostileWriter {
    part: Option<Part>,
}

impl Writer for HostileWriter {
    fn begin(&mut self, ctx: &Ctx, part: &Part) -> Result<(), Error> {
        self.part = Some(part.clone());
        let number = ctx.resource_intent(&External { kind: "upload".into(), name: "u".into(), expires_at: None })?;
        ctx.resource_bound(number, "u-1")
    }

    fn write(&mut self, ctx: &Ctx, rows: &Batch) -> Result<Vec<Reject>, Error> {
        if word(ctx) == "burn" {
            let end = std::time::Instant::now() + std::time::Duration::from_millis(5);
            while std::time::Instant::now() < end {
                std::hint::black_box(0);
            }
            return Ok(vec![]);
        }
        let text = String::from_utf8_lossy(&rows.bytes()).into_owned();
        Ok(vec![Reject { row: rows.info().rows, code: "echo".into(), message: text }])
    }

    fn prepare(&mut self, ctx: &Ctx) -> Result<Prepared, Error> {
        break_off(word(ctx));
        let part = self.part.take().ok_or_else(|| Error::permanent("no-part", "begin first"))?;
        let body = match word(ctx) {
            "secret-committable" => ctx.secret("token")?.reveal().into_bytes(),
            "huge-committable" => vec![7; 2 << 20],
            _ => b"body".to_vec(),
        };
        let state = (word(ctx) == "huge-state").then(|| WriterState {
            range: KeyRange { first: 0, last: u32::MAX },
            version: 1,
            body: vec![7; 2 << 20],
        });
        let committable = Committable { part, version: 1, body, rows: 1, expires_at: None };
        Ok(Prepared { committable, resources: vec![], state, rows: 1, rejects: vec![] })
    }
}

/// `{"do":"word"}` without a JSON parser.
fn word(ctx: &Ctx) -> &str {
    ctx.config_json.split('"').nth(3).unwrap_or_default()
}

fn position(token: impl Into<Vec<u8>>) -> Result<Position, Error> {
    Ok(Position { fence: None, last: vec![], token: token.into() })
}

/// Every way not to answer.
fn break_off(word: &str) {
    match word {
        "panic" => panic!("nobody expects this"),
        "abort" => std::process::abort(),
        "exit" => std::process::exit(0),
        "exit-1" => std::process::exit(1),
        "unreachable" => unreachable(),
        _ => {}
    }
}

#[cfg(target_arch = "wasm32")]
fn unreachable() -> ! {
    core::arch::wasm32::unreachable()
}

#[cfg(not(target_arch = "wasm32"))]
fn unreachable() -> ! {
    std::process::abort()
}

/// What instructions come to that a compiler once got wrong; operands that it cannot know beside ones that it can.
#[cfg(target_arch = "wasm32")]
#[target_feature(enable = "simd128")]
fn vectors(at: *mut f64) -> String {
    use core::arch::wasm32::*;
    use std::hint::black_box;
    // SAFETY: the last eight bytes of a page that was added for this and is nobody else's.
    let (splat, signed) = unsafe {
        at.write_volatile(-2.0);
        (f64x2_splat(*at), 1.5f64.copysign(*at))
    };
    let bytes = black_box(u8x16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    let swizzled = i8x16_swizzle(bytes, u8x16(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 255, 16));
    let same = v128_bitselect(bytes, bytes, black_box(i64x2_splat(0x0f0f)));
    let shifted = i64x2_shr(i64x2(-8, i64::MIN), 1);
    let all = i64x2_shr(black_box(i64x2(-8, i64::MIN)), 63);
    let chosen = if black_box(true) { bytes } else { swizzled };
    format!(
        "{} {} {signed} {:x} {:x} {:x} {} {} {} {:x} {}",
        f64x2_extract_lane::<0>(splat),
        f64x2_extract_lane::<1>(splat),
        u64x2_extract_lane::<0>(swizzled),
        u64x2_extract_lane::<1>(swizzled),
        u64x2_extract_lane::<1>(same),
        i64x2_extract_lane::<0>(shifted),
        i64x2_extract_lane::<1>(shifted),
        i64x2_extract_lane::<0>(all) + i64x2_extract_lane::<1>(all),
        u64x2_extract_lane::<0>(chosen),
        black_box(-7i64) / 2 + i64::from(black_box(-1i32) / 3),
    )
}

#[cfg(target_arch = "wasm32")]
fn instructions() -> String {
    let page = core::arch::wasm32::memory_grow(0, 1);
    vectors(((page + 1) * 65_536 - 8) as *mut f64)
}

#[cfg(not(target_arch = "wasm32"))]
fn instructions() -> String {
    String::new()
}

#[cfg(target_arch = "wasm32")]
fn end_of_memory() -> usize {
    core::arch::wasm32::memory_size(0) * 65_536
}

#[cfg(not(target_arch = "wasm32"))]
fn end_of_memory() -> usize {
    usize::MAX
}

/// Where there is no memory.
fn read_at(address: usize) -> u8 {
    // SAFETY: there is no memory there, so this ends the instance before anything is read.
    unsafe { std::ptr::read_volatile(std::hint::black_box(address) as *const u8) }
}

fn misbehave(ctx: &Ctx) -> Result<Position, Error> {
    match word(ctx) {
        "loop" => loop {
            std::hint::black_box(0);
        },
        "hog" => {
            let mut kept = Vec::new();
            loop {
                kept.push(std::hint::black_box(vec![1u8; 1 << 20]));
            }
        }
        "recurse" => position(vec![recurse(1) as u8]),
        "exit" => std::process::exit(0),
        "panic" => panic!("nobody expects this"),
        "nap" => {
            std::thread::sleep(std::time::Duration::from_secs(3600));
            position("awake")
        }
        "century" => {
            std::thread::sleep(std::time::Duration::from_secs(100 * 365 * 86_400));
            position("awake")
        }
        "tiny-naps" => loop {
            std::thread::sleep(std::time::Duration::from_nanos(1));
        },
        // Where the clocks stand, and by how much they were seen to move at once.
        "time" => {
            let (now, start) = (std::time::SystemTime::now(), std::time::Instant::now());
            let moved = loop {
                let moved = start.elapsed();
                if !moved.is_zero() {
                    break moved;
                }
            };
            let now = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            // As std shows it: seconds and nanoseconds, with words between.
            let shown = format!("{start:?}");
            let unit = if shown.contains("ms") {
                1e6
            } else if shown.contains("ns") {
                1.0
            } else {
                1e9
            };
            let digits: String = shown.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
            let start = (digits.parse::<f64>().unwrap_or(f64::MAX) * unit) as u64;
            position(format!("{} {} {start}", now.subsec_nanos() % 1_000_000, moved.as_nanos() % 1_000_000))
        }
        "naps" => {
            for _ in 0..50 {
                std::thread::sleep(std::time::Duration::from_millis(15));
            }
            position("rested")
        }
        "flood" => {
            for i in 0..100_000 {
                println!("line {i}");
            }
            position("flooded")
        }
        "forge" => {
            println!("one\x1b[2J\u{202e}two\r\nthree");
            print!("{}", "x".repeat(10_000));
            std::io::stdout().flush().ok();
            position("forged")
        }
        "calls" => loop {
            ctx.counter_add("calls", &[], 1);
        },
        "clocks" => loop {
            std::hint::black_box(std::time::Instant::now());
        },
        "handles" => loop {
            std::mem::forget(ctx.dir("output")?.open_dir("."));
        },
        "secret" => {
            let value = ctx.secret("token")?.reveal();
            ctx.log(Level::Info, &format!("the token is {value}"), &[("token".into(), value.clone())]);
            println!("printed {value}");
            ctx.counter_add("tokens", &[("token".into(), value.clone())], 1);
            Err(Error::permanent(value.clone(), format!("refused {value}")))
        }
        "ungranted" => {
            let secret = ctx.secret("other").err().map(|e| format!("{:?}", e.kind));
            let dir = ctx.dir("elsewhere").is_err();
            position(format!("{secret:?} {dir}"))
        }
        "ambient" => {
            let env = std::env::vars().count();
            let args = std::env::args().count();
            let mut line = String::new();
            let stdin = std::io::stdin().read_line(&mut line).unwrap_or(0);
            let tcp = std::net::TcpStream::connect(("127.0.0.1", 1)).unwrap_err().kind();
            let dns = std::net::TcpStream::connect("localhost:1").is_err();
            let file = std::fs::read("/etc/passwd").is_err();
            let up = std::fs::read("output/../../../../etc/passwd").is_err();
            position(format!("env={env} args={args} stdin={stdin} tcp={tcp:?} dns={dns} file={file} up={up}"))
        }
        "instructions" => position(instructions()),
        "beyond" => position(vec![read_at(end_of_memory())]),
        "far-beyond" => position(vec![read_at(usize::MAX)]),
        "big-answer" => position(vec![0; 100 << 20]),
        "long-error" => Err(Error::permanent("code\n", format!("line\nbreak {}", "y".repeat(1 << 20)))),
        "entropy" => {
            let mut bytes = [0u8; 256];
            loop {
                // SAFETY: it fills the 256 bytes that it is given.
                if unsafe { getentropy(bytes.as_mut_ptr(), bytes.len()) } != 0 {
                    return position("no entropy");
                }
            }
        }
        "names" => {
            for name in ["a", "b", "c", "d"] {
                ctx.counter_add(name, &[], 1);
            }
            position("named")
        }
        "count" => position(format!("{}", CALLS.fetch_add(1, Ordering::Relaxed))),
        "random" => {
            // Seeded from WASI's random numbers, per instance.
            use std::hash::{BuildHasher, Hasher};
            position(format!("{}", std::collections::hash_map::RandomState::new().build_hasher().finish()))
        }
        _ => position("harmless"),
    }
}

/// Keeps nothing in linear memory, so that it is the engine's stack that runs out.
fn recurse(n: u64) -> u64 {
    CALLS.store(if n == u64::MAX { 0 } else { recurse(n + 1) }, Ordering::Relaxed);
    CALLS.load(Ordering::Relaxed)
}

tidegate_sdk::export!(Hostile);
