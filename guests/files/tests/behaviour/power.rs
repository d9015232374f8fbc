//! Power cuts: what a disk may have kept of the calls so far, then recovery.
//!
//! The model is stricter than most file systems: without a flush of its directory any name may be there or not, each
//! by itself, both halves of a rename too; without a flush of the file its content may be whole, cut, torn between
//! what it was and what it became, or missing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tidegate_sdk::fs::ErrorKind;
use tidegate_sdk::native::{FsOp, Probe, Rows};
use tidegate_sdk::{Encoding, KeyRange, Outcome, Sink, Writer};
use tidegate_sink_files::Files;

use super::World;
use crate::world::{HASH, Op, io_error, parts, recording, run};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Dir,
    File(usize),
}

#[derive(Debug, Clone, Default)]
struct Content {
    written: Vec<u8>,
    flushed: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Default)]
struct Names {
    flushed: BTreeMap<PathBuf, Node>,
    current: BTreeMap<PathBuf, Node>,
    pending: Vec<(PathBuf, Option<Node>)>,
}

#[derive(Debug, Clone, Default)]
struct Disk {
    contents: Vec<Content>,
    dirs: BTreeMap<PathBuf, Names>,
}

impl Disk {
    fn names(&mut self, path: &Path) -> &mut Names {
        self.dirs.entry(path.parent().expect("below the root").to_owned()).or_default()
    }

    fn node(&mut self, path: &Path) -> Option<Node> {
        self.names(path).current.get(path).copied()
    }

    fn set(&mut self, path: &Path, node: Option<Node>) {
        let names = self.names(path);
        names.pending.push((path.to_owned(), node));
        match node {
            Some(node) => names.current.insert(path.to_owned(), node),
            None => names.current.remove(path),
        };
    }

    fn content(&mut self, path: &Path) -> &mut Content {
        let Some(Node::File(index)) = self.node(path) else { panic!("{} is no file", path.display()) };
        &mut self.contents[index]
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::CreateDir(path) => self.set(path, Some(Node::Dir)),
            // A call that found the name taken.
            Op::Create(path) if self.node(path).is_some() => {}
            Op::Create(path) => {
                self.contents.push(Content::default());
                let node = Node::File(self.contents.len() - 1);
                self.set(path, Some(node));
            }
            Op::Write(path, at, bytes) => {
                let written = &mut self.content(path).written;
                let at = usize::try_from(*at).expect("a small file");
                written.resize(written.len().max(at + bytes.len()), 0);
                written[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Op::SyncFile(path) => {
                let content = self.content(path);
                content.flushed = Some(content.written.clone());
            }
            Op::SyncDir(path) => {
                let names = self.dirs.entry(path.clone()).or_default();
                names.flushed = names.current.clone();
                names.pending.clear();
            }
            Op::Rename(from, to) => {
                if let Some(node) = self.node(from) {
                    self.set(to, Some(node));
                    self.set(from, None);
                }
            }
            Op::Link(from, to) => {
                if let (Some(node), None) = (self.node(from), self.node(to)) {
                    self.set(to, Some(node));
                }
            }
            Op::Remove(path) => {
                if self.node(path).is_some() {
                    self.set(path, None);
                }
            }
            Op::Look => {}
        }
    }

    /// Writes what a power cut now could leave, as `choose` picks among `n` possibilities.
    fn image(&self, from: &Path, to: &Path, choose: &mut impl FnMut(u64) -> u64) {
        let contents: Vec<Vec<u8>> = self
            .contents
            .iter()
            .map(|content| match (&content.flushed, choose(3)) {
                (Some(flushed), _) if *flushed == content.written => flushed.clone(),
                (_, 0) => content.written.clone(),
                // Cut; or torn, where a file was written over.
                (flushed, 1) => {
                    let half = content.written.len() / 2;
                    let rest = flushed.as_ref().and_then(|flushed| flushed.get(half..)).unwrap_or_default();
                    [&content.written[..half], rest].concat()
                }
                (flushed, _) => flushed.clone().unwrap_or_default(),
            })
            .collect();
        let mut linked: BTreeMap<usize, PathBuf> = BTreeMap::new();
        let mut waiting = vec![from.to_owned()];
        while let Some(dir) = waiting.pop() {
            let Some(names) = self.dirs.get(&dir) else { continue };
            let mut kept = names.flushed.clone();
            for (path, node) in &names.pending {
                if choose(2) == 0 {
                    match node {
                        Some(node) => kept.insert(path.clone(), *node),
                        None => kept.remove(path),
                    };
                }
            }
            for (path, node) in kept {
                let target = to.join(path.strip_prefix(from).expect("below the root"));
                match node {
                    Node::Dir => {
                        fs::create_dir(&target).expect("new directory");
                        waiting.push(path);
                    }
                    Node::File(index) => match linked.get(&index) {
                        Some(first) => fs::hard_link(first, &target).expect("link"),
                        None => {
                            fs::write(&target, &contents[index]).expect("write");
                            linked.insert(index, target);
                        }
                    },
                }
            }
        }
    }
}

/// xorshift: the same images every time.
fn chooser(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |n| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) % n
    }
}

const EPOCHS: u64 = 10;

#[test]
fn every_sealed_epoch_survives_a_power_cut_at_any_step_of_its_commit() {
    let world = World::new();
    let (probe, ops) = recording();
    let (one, two) = (run(1), run(2));
    let ctx = world.ctx_with(&one, 1, Some(probe));
    let mut files = Files::default();
    files.fence(&ctx, &Default::default()).expect("fences");
    let mut sealed = Vec::new();
    let mut marks = Vec::new();
    let mut previous = Vec::new();
    // So many that names of slots, which most commits do not flush, are flushed in the middle of it.
    for epoch in 1..=EPOCHS {
        let stage = |ordinal, rows| world.prepare(&ctx, &one, epoch, ordinal, rows).expect("stages").committable;
        let committables = vec![stage(0, 3), stage(1, 2)];
        sealed.push(committables.clone());
        marks.push(ops.lock().expect("not poisoned").len());
        let outcomes = files.commit(&ctx, &previous, &committables).expect("answers");
        assert_eq!(outcomes, [Outcome::Committed, Outcome::Committed]);
        previous = parts(&committables);
    }
    let ops = ops.lock().expect("not poisoned").clone();

    let (mut images, mut decided, mut undecided) = (0, 0, 0);
    let mut disk = Disk::default();
    for (index, op) in ops.iter().enumerate() {
        disk.apply(op);
        // The newest epoch that is sealed at this point, and all that were committed before it.
        let Some(newest) = marks.iter().rposition(|&mark| mark <= index) else { continue };
        // At the first commits every way that it can go, later some.
        for seed in 0..if newest < 2 { 12 } else { 3 } {
            let image = World::new();
            let mut choose = chooser(index as u64 * 100 + seed);
            // 0 and 1: nothing, or all, of what was not flushed.
            match seed {
                0 => disk.image(world.path(), image.path(), &mut |n| n - 1),
                1 => disk.image(world.path(), image.path(), &mut |_| 0),
                _ => disk.image(world.path(), image.path(), &mut choose),
            }
            images += 1;
            let position = image.observe(&two);
            let at = position.last.first().map_or(0, |part| part.epoch);
            let newest_epoch = newest as u64 + 1;
            assert!(at == newest_epoch || at + 1 == newest_epoch, "step {index} seed {seed}: stands at {at}");
            if at == newest_epoch {
                decided += 1
            } else {
                undecided += 1
            }
            // No row is visible before its epoch is decided, durably.
            let own = |path: &String| path.rsplit('/').next().expect("a name").to_owned();
            let visible = image.published().iter().map(own).collect::<Vec<_>>();
            let ahead = visible.iter().filter(|name| name[..20].parse::<u64>().expect("an epoch") > at).count();
            assert_eq!(ahead, 0, "step {index} seed {seed}: rows visible before the decision");
            image.logged_rows();

            Files::default().fence(&image.ctx(&two, 1), &position).expect("fences");
            let before = newest.checked_sub(1).map(|before| parts(&sealed[before])).unwrap_or_default();
            let done = Files::default().commit(&image.ctx(&two, 1), &before, &sealed[newest]).expect("answers");
            let fine = |o: &Outcome| matches!(o, Outcome::Committed | Outcome::AlreadyCommitted);
            assert!(done.iter().all(fine), "step {index} seed {seed}: {done:?}");
            let expected: Vec<_> = (1..=newest_epoch).map(|epoch| (1, epoch)).collect();
            image.assert_visible(&expected);
        }
    }
    assert!(images >= 500 && decided >= 100 && undecided >= 100, "{images} images, {decided} and {undecided}");
}

/// Records calls; from this one on the process is dead, and none is made.
fn recording_until(dead_from: usize) -> (Probe, Arc<Mutex<Vec<Op>>>) {
    let (record, ops) = recording();
    let made = ops.clone();
    let probe = move |op: FsOp<'_>| {
        let dead = made.lock().expect("not poisoned").len() >= dead_from;
        if dead { Err(io_error(ErrorKind::Other)) } else { record(op) }
    };
    (Arc::new(probe), ops)
}

fn taken(ops: &Arc<Mutex<Vec<Op>>>) -> Vec<Op> {
    std::mem::take(&mut *ops.lock().expect("not poisoned"))
}

#[test]
fn a_power_cut_in_the_repeat_of_a_commit_that_a_crash_cut_short_keeps_the_order_of_things() {
    let (mut images, mut crashes) = (0, 0);
    for dead_from in 0..200 {
        let world = World::new();
        let (one, two) = (run(1), run(2));
        let (probe, staging) = recording();
        let ctx = world.ctx_with(&one, 1, Some(probe));
        Files::default().fence(&ctx, &Default::default()).expect("fences");
        let stage = |ordinal, rows| world.prepare(&ctx, &one, 1, ordinal, rows).expect("stages").committable;
        let committables = [stage(0, 3), stage(1, 2)];
        let mut disk = Disk::default();
        taken(&staging).iter().for_each(|op| disk.apply(op));

        let (probe, first) = recording_until(dead_from);
        let done = Files::default().commit(&world.ctx_with(&one, 1, Some(probe)), &[], &committables).is_ok();
        taken(&first).iter().for_each(|op| disk.apply(op));
        let (probe, second) = recording();
        Files::default().commit(&world.ctx_with(&one, 2, Some(probe)), &[], &committables).expect("answers");
        for (index, op) in taken(&second).iter().enumerate() {
            disk.apply(op);
            for seed in 0..2 {
                let image = World::new();
                let mut choose = chooser((dead_from * 1000 + index * 10) as u64 + seed);
                disk.image(world.path(), image.path(), &mut choose);
                images += 1;
                let visible = !image.plain_rows().is_empty();
                let position = image.observe(&two);
                assert!(!visible || !position.last.is_empty(), "dead from {dead_from}, step {index}: undecided rows");
                image.logged_rows();
                Files::default().fence(&image.ctx(&two, 1), &position).expect("fences");
                Files::default().commit(&image.ctx(&two, 1), &[], &committables).expect("answers");
                image.assert_visible(&[(1, 1)]);
            }
        }
        if done {
            break;
        }
        crashes += 1;
    }
    assert!((10..199).contains(&crashes) && images >= 300, "{crashes} crashes, {images} images");
}

/// A world with one committed epoch, in which `call` died right before it linked its entry to a slot. Answers with the
/// names and contents of what it wrote in the register.
fn written_and_not_linked(call: impl Fn(&World, Probe)) -> (World, Vec<(String, Vec<u8>)>) {
    let world = World::new();
    world.commit_epoch(&run(1), 1, &[]);
    let before = world.register();
    let register = world.path().join(format!("_tidegate/{HASH}/register"));
    let slot = register.join(format!("{:020}", 2));
    let dead = Mutex::new(false);
    let probe = move |op: FsOp<'_>| {
        let mut dead = dead.lock().expect("not poisoned");
        *dead |= matches!(op, FsOp::Link(_, to) if to == slot);
        if *dead { Err(io_error(ErrorKind::Other)) } else { Ok(()) }
    };
    call(&world, Arc::new(probe));
    let made = world.register().into_iter().filter(|name| !before.contains(name));
    let written = made.map(|name| (name.clone(), fs::read(register.join(&name)).expect("reads")));
    let written = written.filter(|(_, bytes)| !bytes.trim_ascii().is_empty()).collect();
    (world, written)
}

#[test]
fn f46_of_a_commit_and_a_fence_whose_slot_a_power_cut_took_the_commit_counts() {
    let (one, two, three) = (run(1), run(2), run(3));
    let (world, epoch) = written_and_not_linked(|world, probe| {
        let committables = world.stage_epoch(&one, 2);
        let ctx = world.ctx_with(&one, 1, Some(probe));
        Files::default().commit(&ctx, &[world.part(&one, 1, 0)], &committables).expect_err("dead");
    });
    let (_, fence) = written_and_not_linked(|world, probe| {
        let expected = world.observe(&two);
        Files::default().fence(&world.ctx_with(&two, 1, Some(probe)), &expected).expect_err("dead");
    });
    assert_eq!((epoch.len(), fence.len()), (1, 1));
    for (name, bytes) in &fence {
        fs::write(world.path().join(format!("_tidegate/{HASH}/register/{name}")), bytes).expect("writes");
    }
    let position = world.observe(&three);
    assert_eq!((position.fence, position.last[0].epoch), (Some(one.clone()), 2));
    world.assert_visible(&[(1, 1)]);
    let position = world.fence(&three);
    assert_eq!((position.fence, position.last[0].epoch), (Some(three.clone()), 2));
    world.assert_visible(&[(1, 1), (1, 2)]);
    // The other one is never the newest again.
    world.commit_epoch(&three, 3, &position.last);
    assert_eq!(world.observe(&three).last[0].epoch, 3);
}

#[test]
fn an_entry_of_which_a_power_cut_left_some_sectors_is_never_taken_for_another_one() {
    let one = run(1);
    let (world, written) = written_and_not_linked(|world, probe| {
        let stage = |ordinal| world.stage(&one, 2, ordinal, 1 + u64::from(ordinal % 2));
        let committables: Vec<_> = (0..8).map(stage).collect();
        let ctx = world.ctx_with(&one, 1, Some(probe));
        Files::default().commit(&ctx, &[world.part(&one, 1, 0)], &committables).expect_err("dead");
    });
    let [(name, bytes)] = &written[..] else { panic!("{} entries", written.len()) };
    let path = world.path().join(format!("_tidegate/{HASH}/register/{name}"));
    let sectors = bytes.trim_ascii_end().len().div_ceil(512);
    assert!(sectors >= 4, "{sectors} sectors");
    let mut json = 0;
    for lost in 1..1u32 << sectors.min(12) {
        let mut torn = bytes.clone();
        for sector in (0..sectors).filter(|sector| lost >> sector & 1 == 1) {
            let end = torn.len().min((sector + 1) * 512);
            torn[sector * 512..end].fill(b' ');
        }
        json += u32::from(serde_json::from_slice::<serde_json::Value>(&torn).is_ok());
        fs::write(&path, torn).expect("writes");
        assert_eq!(world.observe(&one).last[0].epoch, 1, "lost: {lost:b}");
    }
    assert!(json > 0, "none of them could have been mistaken");
    fs::write(&path, bytes).expect("writes");
    assert_eq!(world.observe(&one).last[0].epoch, 2);
}

#[test]
fn what_was_prepared_survives_a_power_cut_whoever_made_its_name() {
    let world = World::new();
    let (probe, ops) = recording();
    let one = run(1);
    let ctx = world.ctx_with(&one, 1, Some(probe));
    let range = KeyRange { first: 0, last: u32::MAX };
    let mut writer = Files::default().open(&ctx, range, Vec::new()).expect("opens");
    let mut prepared = Vec::new();
    // The second one takes a name that was made with the first; the fifth jumps over names, and has little data.
    for (epoch, repeats) in [(1, 3000), (2, 3000), (3, 10), (4, 3000), (20, 10), (21, 3000)] {
        writer.begin(&ctx, &world.part(&one, epoch, 0)).expect("begins");
        for third in 0..3 {
            let line =
                format!("{{\"run\":1,\"epoch\":{epoch},\"part\":0,\"row\":{third},\"x\":\"{}\"}}\n", "x".repeat(80));
            let rows = Bytes::from(line.repeat(repeats));
            let rows = Rows { bytes: rows, rows: repeats as u64, encoding: Encoding::JsonLines, schema: 0, file: None };
            writer.write(&ctx, &rows.batch()).expect("writes");
        }
        let committable = writer.prepare(&ctx).expect("prepares").committable;
        prepared.push((ops.lock().expect("not poisoned").len(), committable));
    }
    let ops = ops.lock().expect("not poisoned").clone();
    let mut disk = Disk::default();
    for (index, op) in ops.iter().enumerate() {
        disk.apply(op);
        for seed in 0..2 {
            let image = World::new();
            let mut choose = chooser(index as u64 * 10 + seed);
            disk.image(world.path(), image.path(), &mut |n| if seed == 0 { n - 1 } else { choose(n) });
            image.fence(&one);
            for (_, committable) in prepared.iter().filter(|(at, _)| *at <= index + 1) {
                let part = std::slice::from_ref(committable);
                let outcomes = Files::default().commit(&image.ctx(&one, 1), &[], part).expect("answers");
                assert_eq!(outcomes, [Outcome::Committed], "step {index} seed {seed}: {}", committable.part.short);
            }
        }
    }
}

#[test]
fn an_answer_of_committed_survives_a_power_cut_without_any_recovery() {
    let world = World::new();
    let (probe, ops) = recording();
    let ctx = world.ctx_with(&run(1), 1, Some(probe));
    let stage = |ordinal, rows| world.prepare(&ctx, &run(1), 1, ordinal, rows).expect("stages").committable;
    let committables = [stage(0, 3), stage(1, 2)];
    Files::default().commit(&ctx, &[], &committables).expect("answers");
    let mut disk = Disk::default();
    let ops: Arc<_> = ops;
    ops.lock().expect("not poisoned").iter().for_each(|op| disk.apply(op));
    let image = World::new();
    disk.image(world.path(), image.path(), &mut |n| n - 1);
    image.assert_visible(&[(1, 1)]);
    assert_eq!(image.observe(&run(2)).last, parts(&committables));
}
