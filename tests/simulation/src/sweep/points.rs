//! The failure points of a two-phase-commit sink host, each with how it is recognised in what happened.
//!
//! A point has one form for every way in which it can be met: as a crash, as an error, as a timeout, as a race. Each form
//! must be hit.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_protocol::plugin::{Call, ErrorKind};

use super::effect::{Between, Category, DiskOp, Mode, Phase, Said, What};
use super::trace::{Appended, Fact, Kind, Loss, Stage};
use super::view::View;

/// A failure point.
pub(crate) struct Point {
    /// `F1` to `F54`, and `N1` to `N3` for the interruptions that are known by name.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) what: &'static str,
    pub(crate) forms: Vec<Form>,
}

/// One way of meeting it.
pub(crate) struct Form {
    pub(crate) category: Category,
    /// What tells it from the other forms of the same category; often nothing.
    pub(crate) label: &'static str,
    meets: fn(&View<'_>) -> bool,
}

const C: Category = Category::Crash;
const E: Category = Category::Error;
const T: Category = Category::Timeout;
const R: Category = Category::Race;

fn point(name: &'static str, what: &'static str, categories: &[Category], meets: fn(&View<'_>) -> bool) -> Point {
    let forms = categories.iter().map(|category| Form { category: *category, label: "", meets }).collect();
    Point { name, what, forms }
}

impl Point {
    fn and(mut self, category: Category, label: &'static str, meets: fn(&View<'_>) -> bool) -> Self {
        self.forms.push(Form { category, label, meets });
        self
    }
}

const NO: &[Category] = &[];

/// All points, in order.
pub(crate) fn points() -> Vec<Point> {
    let mut all = prepare_points();
    all.extend(store_points());
    all.extend(commit_points());
    all.extend(recovery_points());
    all.extend(named_points());
    all
}

fn before(phase: Phase) -> bool {
    phase == Phase::Before
}

fn after(phase: Phase) -> bool {
    phase == Phase::After
}

fn middle(phase: Phase) -> bool {
    matches!(phase, Phase::Middle(_))
}

fn prepare_points() -> Vec<Point> {
    vec![
        point("F1", "barrier received, nothing written", &[C, E, T], |v| v.cutting().is_some_and(|e| v.unwritten(e))),
        point("F2", "in the middle of a write", &[C, E, T], |v| v.is_call(Call::Write, middle)),
        point("F3", "before prepare", &[C, E, T], |v| v.is_call(Call::Prepare, before)),
        point("F4", "in prepare, nothing staged yet", &[C, E, T], |v| v.is_call(Call::Prepare, middle)),
        point("F5", "staged, answer not returned", &[C, E, T], |v| v.is_call(Call::Prepare, after)),
        point("F6", "answer received, not recorded", &[C, E, T], |v| {
            v.cutting().is_some_and(|e| {
                let (answered, open) = v.prepared(e);
                answered > 0 && open == 0
            })
        }),
        point("F7", "k of n participants prepared", &[C, E, T], |v| {
            v.cutting().is_some_and(|e| {
                let (answered, _) = v.prepared(e);
                answered > 0 && answered < v.begun(e)
            })
        }),
        point("F8", "trap right after staging", NO, |_| false)
            .and(E, "trap", |v| v.is_call(Call::Prepare, after) && v.mode == Mode::Trap),
        point("F9", "deadline passed here, work finishes there later", &[C, T], |v| {
            v.late(Call::Prepare).any(|_| true) || v.late(Call::Commit).any(|_| true)
        }),
        point("F10", "empty epoch", &[C, E], |v| v.cutting().is_some_and(|e| v.empty.contains(&e))),
        point("F11", "malformed or duplicate committable", NO, |_| false)
            .and(E, "malformed", |v| matches!(v.mode, Mode::Malformed(super::effect::Break::Count)))
            .and(E, "duplicate", |v| {
                v.is_call(Call::Prepare, before) && v.mode == Mode::Malformed(super::effect::Break::Foreign)
            }),
        point("F12", "idle partition", &[C, E, T], |v| v.idle_partition()),
    ]
}

fn torn(v: &View<'_>, fits: fn(usize) -> bool) -> bool {
    let losses = v.later().iter().filter_map(|fact| if let Fact::Image(losses) = fact { Some(losses) } else { None });
    losses.flatten().any(|loss| matches!(loss, Loss::Torn { at, of } if *at > 0 && at < of && fits(*at)))
}

fn store_points() -> Vec<Point> {
    vec![
        point("F13", "before the temporary file", &[C, E], |v| v.is_disk(DiskOp::Create)),
        point("F14", "torn write at every 512 B and 4 KiB", NO, |_| false)
            .and(C, "512 B", |v| torn(v, |at| at % 8 != 0))
            .and(C, "4 KiB", |v| torn(v, |at| at % 8 == 0))
            .and(E, "", |v| v.is_disk(DiskOp::Write)),
        point("F15", "before fsync", &[C], |v| v.is_disk(DiskOp::Flush)),
        point("F16", "fsync answers EIO", NO, |_| false)
            .and(E, "", |v| v.is_disk(DiskOp::Flush) && v.mode == Mode::Eio)
            .and(C, "then the power goes", |v| v.is_disk(DiskOp::Flush) && v.mode == Mode::EioThenPower),
        point("F17", "before the rename", &[C, E], |v| v.is_disk(DiskOp::Rename)),
        point("F18", "before the directory's fsync", &[C, E], |v| v.is_disk(DiskOp::FlushFolder)),
        point("F19", "rename kept, contents lost", &[C], |v| v.changed(Between::Hollow)),
        point("F20", "disk full", NO, |_| false)
            .and(E, "disk", |v| v.mode == Mode::Full && matches!(v.what, What::Disk { .. }))
            .and(E, "log elsewhere", |v| v.mode == Mode::Full && matches!(v.what, What::Log { .. })),
        point("F21", "newest record corrupt", &[C], |v| v.changed(Between::Corrupt)),
        point("F22", "stale read", NO, |_| false).and(E, "", |v| matches!(v.mode, Mode::Stale(_)) && v.left_out()),
        point("F23", "conditional put applied, answer lost, then \"already exists\" for our own object", NO, |_| false)
            .and(E, "taken by us", |v| v.mode == Mode::TakenByUs)
            .and(T, "", |v| v.mode == Mode::AnswerLost),
        point("F24", "a listing misses a fresh object", NO, |_| false)
            .and(E, "directory", |v| v.mode == Mode::Miss && matches!(v.what, What::Look { list: true, .. }))
            .and(E, "log elsewhere", |v| matches!(v.mode, Mode::Gap(_)) && v.left_out())
            .and(E, "orphans", |v| v.mode == Mode::Miss && v.is_call(Call::ListOrphans, before)),
        point("F25", "appended log cut between records", NO, |_| false)
            .and(C, "shorter", |v| v.changed(Between::Cut))
            .and(C, "never written", |v| v.changed(Between::Forgotten)),
        point("F26", "garbage collection interrupted", &[C, E, T], |v| v.retiring())
            .and(C, "in the release", |v| v.is_call(Call::Release, |_| true))
            .and(C, "in the removal of a segment", |v| {
                v.retiring() && matches!(v.what, What::Disk { op: DiskOp::Remove, path, .. } if path.ends_with(".log"))
            }),
    ]
}

fn says(v: &View<'_>, kind: ErrorKind, said: Said) -> bool {
    v.is_call(Call::Commit, before) && (v.mode == Mode::Says(kind) || v.mode == Mode::Outcome(said))
}

fn part_way(v: &View<'_>) -> bool {
    v.is_call(Call::Commit, middle)
}

fn commit_points() -> Vec<Point> {
    vec![
        point("F27", "decided, nothing sent", &[C, E, T], |v| v.sealed_not_sent()),
        point("F28", "k of n committed", &[C, E, T], part_way),
        point("F29", "applied, answer lost", &[C, E, T], |v| v.is_call(Call::Commit, after)),
        point("F30", "retryable, permanent and unknown errors", NO, |_| false)
            .and(E, "retryable", |v| says(v, ErrorKind::Retryable, Said::Retry))
            .and(E, "permanent", |v| says(v, ErrorKind::Permanent, Said::Rejected))
            .and(E, "unknown", |v| says(v, ErrorKind::Unknown, Said::Unknown)),
        point("F31", "trap or budget spent in the middle of commit", NO, |_| false)
            .and(E, "trap", |v| part_way(v) && v.mode == Mode::Trap)
            .and(E, "budget", |v| part_way(v) && matches!(v.mode, Mode::Budget(_))),
        point("F32", "late commit from an older generation", &[C, T], |v| {
            v.late(Call::Commit).any(|(at, site)| site.run.is_some() && site.run < v.newest_run(at))
        }),
        point("F33", "late abandon meets newer staging", &[C, T], |v| {
            v.late(Call::Abandon).any(|(at, site)| {
                v.calls(Call::Prepare).any(|(there, _, other, stage)| {
                    there < at && stage == Stage::Done(true) && other.run > site.parts.first().map(|part| part.run)
                })
            })
        }),
        point("F34", "the destination expired the transaction", &[C], |v| {
            v.changed(Between::Downtime) && v.later().iter().any(|fact| matches!(fact, Fact::Blocked { .. }))
        }),
        point("F35", "outcome not durable", &[C, E], |v| v.outcome_not_recorded()),
        point("F36", "cleanup not done", NO, |_| false)
            .and(C, "staged", |v| v.staged_not_sealed())
            .and(C, "in abandon", |v| v.is_call(Call::Abandon, |_| true))
            .and(E, "in abandon", |v| v.is_call(Call::Abandon, |_| true))
            .and(T, "in abandon", |v| v.is_call(Call::Abandon, |_| true)),
        point("F37", "the same commit twice at once", NO, |_| false)
            .and(R, "copied on the way", |v| v.mode == Mode::Twice && v.is_call(Call::Commit, before))
            .and(R, "two hosts", |v| {
                v.mode == Mode::Pause
                    && v.calls(Call::Commit).any(|(_, host, site, _)| {
                        v.calls(Call::Commit).any(|(_, other, again, stage)| {
                            other != host && stage == Stage::Arrived && again.parts == site.parts
                        })
                    })
            }),
        point("F38", "overlapping epochs", &[C, E, T], |v| v.overlapping()),
        point("F39", "credentials changed between prepare and commit", NO, |_| false)
            .and(C, "", |v| v.changed(Between::Denied) && v.sealed_not_committed(1))
            .and(E, "", |v| matches!(v.mode, Mode::DeniedFor(_)) && v.is_call(Call::Commit, before)),
        point("F40", "plugin upgraded with commits pending", NO, |_| false)
            .and(C, "readable", |v| v.changed(Between::Upgrade) && v.sealed_not_committed(1))
            .and(C, "unreadable", |v| v.changed(Between::UpgradeBlind) && v.sealed_not_committed(1)),
    ]
}

fn recovery_points() -> Vec<Point> {
    vec![
        point("F41", "abandon of something never prepared, twice, or after the decision", NO, |_| false)
            .and(C, "never prepared", |v| v.abandons().iter().any(|(at, part)| !v.was_prepared(part, *at)))
            .and(C, "twice", |v| {
                let parts = v.abandons();
                parts.iter().any(|(at, part)| parts.iter().any(|(other, same)| other > at && same == part))
            })
            .and(E, "twice", |v| {
                let parts = v.abandons();
                parts.iter().any(|(at, part)| parts.iter().any(|(other, same)| other > at && same == part))
            })
            .and(T, "after the decision", |v| v.abandons().iter().any(|(at, part)| v.seal_before(part.epoch.0, *at))),
        point("F42", "crash during recovery, twice nested", NO, |_| false).and(C, "once", |v| kills(v) >= 2).and(
            C,
            "twice",
            |v| kills(v) >= 3,
        ),
        point("F43", "rescale, up and down", NO, |_| false).and(C, "up", |v| v.changed(Between::Rescale(3))).and(
            C,
            "down",
            |v| v.changed(Between::Rescale(1)),
        ),
        point("F44", "source offset or watermark goes backwards", NO, |_| false)
            .and(C, "offset", |v| {
                v.changed(Between::SourceBehind)
                    && v.later().iter().any(|fact| matches!(fact, Fact::SourceOpened { ok: false, .. }))
            })
            .and(C, "watermark", watermark_falls)
            .and(E, "watermark", watermark_falls),
        point("F45", "zombie host wakes after its lease", NO, |_| false).and(R, "", |v| {
            v.mode == Mode::Pause && {
                let woke = v.facts.iter().position(|fact| matches!(fact, Fact::Woke(_)));
                woke.is_some_and(|woke| v.facts[v.at..woke].iter().any(|fact| matches!(fact, Fact::Opened(..))))
            }
        }),
        point("F46", "two hosts start at once", NO, |_| false)
            .and(R, "", |v| {
                let opens = |fact: &&Fact| matches!(fact, Fact::Append { kind: Kind::Open, stage: None, .. });
                matches!(v.mode, Mode::Together(_)) && v.facts.iter().filter(opens).count() >= 2
            })
            .and(R, "both want the slot", |v| {
                let taken =
                    |fact: &Fact| matches!(fact, Fact::Append { kind: Kind::Open, stage: Some(Appended::Taken), .. });
                matches!(v.mode, Mode::Together(_)) && v.facts.iter().any(taken)
            }),
        point("F47", "clock jumps", NO, |_| false)
            .and(C, "back, while dead", |v| v.changed(Between::ClockBack))
            .and(E, "back", |v| matches!(v.mode, Mode::Clock(hours) if hours < 0))
            .and(E, "ahead", |v| matches!(v.mode, Mode::Clock(hours) if hours > 0)),
        point("F48", "one-way or half-open network", NO, |_| false)
            .and(T, "answers are lost", |v| matches!(v.mode, Mode::Deaf(_)))
            .and(T, "requests are lost", |v| matches!(v.mode, Mode::Mute(_))),
        point("F49", "call cancelled in flight", NO, |_| false)
            .and(T, "", dropped)
            .and(E, "another failed", |v| !matches!(v.mode, Mode::Panic | Mode::Clock(_)) && dropped(v))
            .and(C, "", |v| matches!(v.what, What::Call { .. })),
        point("F50", "out of memory, SIGKILL, panic in a host import", NO, |_| false)
            .and(C, "killed", |v| v.mode == Mode::Kill(Between::Nothing))
            .and(E, "out of memory", |v| v.mode == Mode::Budget("memory"))
            .and(E, "panic", |v| v.mode == Mode::Panic),
        point("F51", "plugin answers \"ok\" without doing it", NO, |_| false)
            .and(E, "prepare", |v| v.mode == Mode::Lie && v.is_call(Call::Prepare, before))
            .and(E, "commit", |v| v.mode == Mode::Lie && v.is_call(Call::Commit, before))
            .and(E, "fence", |v| v.mode == Mode::Lie && v.is_call(Call::Fence, before))
            .and(E, "abandon", |v| v.mode == Mode::Lie && v.is_call(Call::Abandon, before))
            .and(E, "release", |v| v.mode == Mode::Lie && v.is_call(Call::Release, before)),
        point("F52", "poison row", &[C, E, T], |v| v.has_rejects()),
        point("F53", "one tenant's storage fails", NO, |_| false)
            .and(E, "failed", |v| neighbour_finishes(v) && v.mode == Mode::Eio)
            .and(E, "full", |v| neighbour_finishes(v) && v.mode == Mode::Full),
        point("F54", "orphan sweeper races a slow prepare", &[C, E, T], |v| v.sweep_meets_prepare()),
    ]
}

fn kills(v: &View<'_>) -> usize {
    v.facts.iter().filter(|fact| matches!(fact, Fact::Killed(_))).count()
}

fn watermark_falls(v: &View<'_>) -> bool {
    let mut highest = BTreeMap::new();
    v.facts.iter().any(|fact| match fact {
        Fact::Read { task, watermark: Some(watermark), .. } => {
            let known = highest.entry(*task).or_insert(*watermark);
            let falls = watermark < known;
            *known = (*known).max(*watermark);
            falls
        }
        _ => false,
    })
}

/// A call other than the disturbed one was given up by a host that lives; for a timeout, the disturbed one too.
fn dropped(v: &View<'_>) -> bool {
    let of_host = |fact: &Fact| matches!(fact, Fact::Call { stage: Stage::Dropped, .. });
    v.later().iter().any(of_host)
}

fn neighbour_finishes(v: &View<'_>) -> bool {
    let What::Disk { tenant, .. } = v.what else { return false };
    let ended: BTreeSet<usize> = v
        .later()
        .iter()
        .take_while(|fact| !matches!(fact, Fact::Life(_)))
        .filter_map(|fact| match fact {
            Fact::Append { tenant, kind: Kind::Finished, stage: Some(Appended::Created), .. } => Some(*tenant),
            _ => None,
        })
        .collect();
    ended.iter().any(|other| other != tenant)
}

fn named_points() -> Vec<Point> {
    vec![
        point("N1", "interrupted before the sink's commit", &[C, E, T], |v| v.is_call(Call::Commit, before)),
        point("N2", "interrupted after commit, before its acknowledgement", &[C, E, T], |v| {
            v.is_call(Call::Commit, after)
        }),
        point("N3", "interrupted between two destinations' commits", &[C, E, T], |v| v.between_sinks()),
    ]
}

/// How often each form of each point was met.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hits(pub(crate) BTreeMap<(&'static str, Category, &'static str), u64>);

impl Hits {
    /// Takes in an execution. `image` alone: what hangs on what a power cut left.
    pub(crate) fn count(&mut self, points: &[Point], view: &View<'_>, image_only: bool) {
        let category = view.category();
        for point in points.iter().filter(|point| !image_only || point.name == "F14") {
            for form in point.forms.iter().filter(|form| form.category == category) {
                if (form.meets)(view) {
                    *self.0.entry((point.name, form.category, form.label)).or_default() += 1;
                }
            }
        }
    }

    pub(crate) fn add(&mut self, other: &Hits) {
        for (key, hits) in &other.0 {
            *self.0.entry(*key).or_default() += hits;
        }
    }

    pub(crate) fn of(&self, point: &Point, form: &Form) -> u64 {
        self.0.get(&(point.name, form.category, form.label)).copied().unwrap_or(0)
    }

    /// The form that was met least.
    pub(crate) fn least(&self, points: &[Point]) -> u64 {
        let all = points.iter().flat_map(|point| point.forms.iter().map(|form| self.of(point, form)));
        all.min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_every_failure_point_once() {
        let names: Vec<&str> = points().iter().map(|point| point.name).filter(|name| name.starts_with('F')).collect();
        let wanted: Vec<String> = (1..=54).map(|number| format!("F{number}")).collect();
        assert_eq!(names, wanted);
        assert!(points().iter().all(|point| !point.forms.is_empty()), "a point that cannot be met is no point");
    }

    #[test]
    fn forms_of_one_point_are_told_apart() {
        for point in points() {
            let forms: BTreeSet<_> = point.forms.iter().map(|form| (form.category, form.label)).collect();
            assert_eq!(forms.len(), point.forms.len(), "{}", point.name);
        }
    }
}
