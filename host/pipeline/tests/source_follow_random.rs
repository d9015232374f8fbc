//! Very many short lives of a log directory: whatever happens in it, and wherever it is looked at, left and come back
//! to, no row comes twice, and none is missing but those that were taken away, which is told.
//!
//! `TIDEGATE_LIVES=20000` makes more of them, `TIDEGATE_FIRST=5000` others; `TIDEGATE_SEED=17` shows what happens in one.

#[allow(dead_code, reason = "each test file uses its part")]
mod source_support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use source_support::followed::{Followed, is_root};
use source_support::lives::{Amid, Dice, Log, Short, Step, clip, name};
use source_support::told;
use tidegate_pipeline::source::files::{FollowOptions, Format, Moment, OnLostRows};
use tidegate_pipeline::source::{Read, SourceError};

/// Time between two looks, in some lives.
const POLL: Duration = Duration::from_millis(60);

/// Lives in one run of the test.
const LIVES: u64 = 800;

/// A directory, and a reader that comes and goes.
struct Life {
    dice: Dice,
    followed: Followed,
    logs: Vec<Log>,
    rows: u64,
    width: u64,
    /// Rotated files that are kept, about.
    keep: u64,
    clock: u64,
    /// Which rows were written into each file, by inode.
    content: BTreeMap<u64, BTreeSet<String>>,
    written: BTreeSet<String>,
    /// Rows that were taken away, and have to be told of if they are missing.
    taken: BTreeSet<String>,
    /// Rows of which nobody can know.
    unknown: BTreeSet<String>,
    /// A part of a line was taken away. To a reader that did not look into it, it may have been lines.
    torn_taken: bool,
    /// What was truncated out of files, without a copy or before anything was read of the log.
    truncated: Vec<BTreeSet<String>>,
    /// What was truncated when the copy, by inode, lacked a part of it.
    short: BTreeMap<u64, Short>,
    /// Inodes are not given again while these are open.
    kept: Vec<File>,
    up: bool,
    cut: (usize, BTreeMap<String, String>),
    /// The error with which it ended, if it did.
    ended: Option<SourceError>,
    trace: bool,
    /// No pattern matches the name of the hard link.
    hard_is_unmatched: bool,
    amid: Amid,
    /// Nothing happens any more.
    still: bool,
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let pattern = *dice.pick(&["app.log", "app.log*", "*", "*.log*"]);
        let stop = dice.one_in(2);
        let tasks = 1 + dice.roll(2) as u32;
        // In most of them each call looks at the directories; in the others there are glances in between.
        let poll = if seed % 5 == 4 { POLL } else { Duration::ZERO };
        let mut followed = Followed::with(pattern, Format::Raw, |options| {
            let on_lost_rows = if stop { OnLostRows::Stop } else { OnLostRows::Warn };
            options.follow = Some(FollowOptions { poll, on_lost_rows });
        });
        followed.tasks = tasks;
        followed.as_nobody = is_root();
        followed.most_bytes = *dice.pick(&[1, 60, 200, 1 << 20]);
        let names: &[&str] =
            if pattern.starts_with('*') && dice.one_in(2) { &["app.log", "b.log"] } else { &["app.log"] };
        let logs = names.iter().map(|name| Log { name, ..Log::default() }).collect();
        let width = *dice.pick(&[0, 0, 3, 40, 1500]);
        let keep = *dice.pick(&[1, 2, 3]);
        let trace = std::env::var_os("TIDEGATE_SEED").is_some();
        if trace {
            told::show(&format!("seed {seed}: {pattern}, stop {stop}, {tasks} tasks, {} bytes", followed.most_bytes));
        }
        let amid = Amid::new(&mut followed);
        let mut life = Self {
            amid,
            dice,
            followed,
            logs,
            rows: 0,
            width,
            keep,
            clock: 1_000_000,
            content: BTreeMap::new(),
            written: BTreeSet::new(),
            taken: BTreeSet::new(),
            unknown: BTreeSet::new(),
            torn_taken: false,
            truncated: Vec::new(),
            short: BTreeMap::new(),
            kept: Vec::new(),
            up: false,
            cut: Default::default(),
            ended: None,
            trace,
            hard_is_unmatched: !pattern.starts_with('*'),
            still: false,
        };
        for log in 0..life.logs.len() {
            life.create(log);
        }
        life
    }

    fn say(&self, what: &str) {
        if self.trace {
            told::show(what);
        }
    }

    fn path(&self, log: usize, number: u64) -> PathBuf {
        self.followed.dir.path().join(name(self.logs[log].name, number))
    }

    /// Time goes on with every change, so that none is at the same time as another.
    fn touch(&mut self, file: &File) {
        self.clock += 1;
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(self.clock)).unwrap();
    }

    fn create(&mut self, log: usize) {
        let file = File::create(self.path(log, 0)).unwrap();
        self.touch(&file);
        self.kept.push(file);
    }

    fn append(&mut self, log: usize, number: u64, text: &str, row: Option<&str>) {
        self.say(&format!("    {} << {}", name(self.logs[log].name, number), clip(text)));
        let mut file = OpenOptions::new().append(true).open(self.path(log, number)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        self.touch(&file);
        if let Some(row) = row {
            let inode = file.metadata().unwrap().ino();
            self.content.entry(inode).or_default().insert(row.to_owned());
            self.written.insert(row.to_owned());
            self.write_to_copy(inode, &self.path(log, number), row);
        }
    }

    /// What is written to a copy that lacks rows which were read cannot be told from these.
    fn write_to_copy(&mut self, inode: u64, path: &Path, row: &str) {
        let Some(short) = self.short.get(&inode) else { return };
        let rows: BTreeSet<&[u8]> = self.followed.rows.iter().map(String::as_bytes).collect();
        let lines = short.original.split_inclusive(|byte| *byte == b'\n');
        let read = lines.take_while(|line| rows.contains(&line[..line.len() - 1])).map(<[u8]>::len).sum();
        if read <= short.length {
            return;
        }
        match short.tells(&fs::read(path).unwrap(), read) {
            true => self.taken.insert(row.to_owned()),
            false => self.unknown.insert(row.to_owned()),
        };
    }

    fn next_row(&mut self, log: usize) -> String {
        self.rows += 1;
        let width = self.dice.roll(self.width + 1) as usize;
        // A copy that is shorter than 32 bytes tells nothing of itself.
        format!("{} row {:04} {:y<22}{}", &self.logs[log].name[..1], self.rows, "", "x".repeat(width))
    }

    fn write(&mut self, log: usize, number: u64) {
        if number == 0
            && let Some((rest, row)) = self.logs[log].torn.take()
        {
            return self.append(log, number, &format!("{rest}\n"), Some(&row));
        }
        for _ in 0..1 + self.dice.roll(4) {
            let row = self.next_row(log);
            if self.dice.one_in(8) && number == 0 && self.logs[log].todo.is_empty() {
                let at = 1 + self.dice.roll(row.len() as u64) as usize;
                self.append(log, number, &row[..at], None);
                self.logs[log].torn = Some((row[at..].to_owned(), row));
                return;
            }
            self.append(log, number, &format!("{row}\n"), Some(&row));
        }
    }

    /// The largest number that a rotated file of this log has.
    fn last(&self, log: usize) -> u64 {
        (1..20).take_while(|number| self.path(log, *number).exists()).count() as u64
    }

    fn rotate(&mut self, log: usize) {
        if let Some((rest, row)) = self.logs[log].torn.take() {
            self.append(log, 0, &format!("{rest}\n"), Some(&row));
        }
        let last = self.last(log);
        let mut steps = Vec::new();
        if last >= self.keep && self.dice.one_in(2) {
            steps.push(Step::Delete(last));
        }
        let last = if steps.is_empty() { last } else { last - 1 };
        steps.extend((1..=last).rev().map(Step::Rename));
        if self.dice.one_in(2) {
            steps.extend([Step::Rename(0), Step::Create]);
        } else {
            steps.push(Step::CopyBegin);
            if self.dice.one_in(2) {
                steps.push(Step::Copy(1 + self.dice.roll(80) as usize));
            }
            steps.extend([Step::Copy(usize::MAX), Step::Truncate]);
        }
        steps.reverse();
        self.logs[log].todo = steps;
    }

    /// Rows that are in no file any more.
    fn take_away(&mut self, inode: u64) {
        let rows = self.content.remove(&inode).unwrap_or_default();
        let elsewhere = |row: &&String| !self.content.values().any(|content| content.contains(*row));
        let gone: Vec<String> = rows.iter().filter(elsewhere).cloned().collect();
        self.taken.extend(gone);
    }

    fn step(&mut self, log: usize) {
        let Some(step) = self.logs[log].todo.pop() else { return };
        self.say(&format!("    {}: {step:?}", self.logs[log].name));
        match step {
            Step::Rename(number) => {
                fs::rename(self.path(log, number), self.path(log, number + 1)).unwrap();
                self.logs[log].late = number == 0 && self.dice.one_in(2);
            }
            Step::Create => self.create(log),
            Step::CopyBegin => {
                let file = File::create(self.path(log, 1)).unwrap();
                self.touch(&file);
                self.kept.push(file);
            }
            Step::Copy(most) => {
                let from = fs::read(self.path(log, 0)).unwrap();
                let copy = OpenOptions::new().append(true).open(self.path(log, 1)).unwrap();
                let there = copy.metadata().unwrap().len();
                let rest = &from[there as usize..];
                copy.write_all_at(&rest[..rest.len().min(most)], there).unwrap();
                self.touch(&copy);
                if most == usize::MAX {
                    let inode = fs::metadata(self.path(log, 0)).unwrap().ino();
                    let content = self.content.get(&inode).cloned().unwrap_or_default();
                    self.content.insert(copy.metadata().unwrap().ino(), content);
                }
            }
            Step::Truncate => {
                let (original, length) =
                    (fs::read(self.path(log, 0)).unwrap(), fs::read(self.path(log, 1)).unwrap().len());
                let copy = fs::metadata(self.path(log, 1)).unwrap().ino();
                if length < original.len() {
                    self.short.insert(copy, Short { original, length });
                }
                let file = OpenOptions::new().write(true).open(self.path(log, 0)).unwrap();
                file.set_len(0).unwrap();
                self.touch(&file);
                let inode = file.metadata().unwrap().ino();
                let copied = self.content.get(&copy).cloned();
                let rows = self.content.remove(&inode).unwrap_or_default();
                let copied = copied.unwrap_or_default();
                self.unknown.extend(rows.difference(&copied).cloned());
                // Of a log that a checkpoint knows its copies are known, whether anybody had seen what is in them.
                let log = &self.logs[log].name[..1];
                if !self.followed.rows[..self.cut.0].iter().any(|row| row.starts_with(log)) {
                    self.truncated.push(rows);
                    self.excuse();
                }
            }
            Step::Delete(number) => self.delete(log, number),
        }
    }

    fn delete(&mut self, log: usize, number: u64) {
        let path = self.path(log, number);
        let data = fs::metadata(&path).unwrap();
        fs::remove_file(path).unwrap();
        if data.nlink() == 1 {
            self.take_away(data.ino());
        } else if self.hard_is_unmatched && !self.cut.1.values().any(|known| known.contains(&data.ino().to_string())) {
            // Left is a name that is neither matched nor a rotated one, of a file that no checkpoint knew.
            let rows = self.content.get(&data.ino()).cloned().unwrap_or_default();
            self.unknown.extend(rows);
        }
    }

    /// Something else than rotation.
    fn link(&mut self, log: usize) {
        let (file, dir) = (self.path(log, 0), self.followed.dir.path().to_owned());
        let (soft, hard) = (dir.join("latest.log"), dir.join("hard.log"));
        match self.dice.roll(6) {
            4 if self.followed.as_nobody => {
                let number = self.dice.roll(3);
                self.lock(log, number, 0o000);
            }
            5 => (0..3).for_each(|number| self.lock(log, number, 0o644)),
            0 if !hard.exists() && file.exists() => {
                self.say("    hard link");
                fs::hard_link(file, hard).unwrap();
            }
            1 if hard.exists() => {
                self.say("    hard link goes");
                let data = fs::metadata(&hard).unwrap();
                fs::remove_file(hard).unwrap();
                if data.nlink() == 1 {
                    self.take_away(data.ino());
                }
            }
            2 if fs::symlink_metadata(&soft).is_err() => {
                self.say("    symbolic link");
                std::os::unix::fs::symlink(self.logs[log].name, soft).unwrap();
            }
            3 if fs::symlink_metadata(&soft).is_ok() => {
                self.say("    symbolic link goes");
                fs::remove_file(soft).unwrap();
            }
            _ => {}
        }
    }

    /// Lets the reader read a file, or not.
    fn lock(&mut self, log: usize, number: u64, mode: u32) {
        let path = self.path(log, number);
        if path.exists() {
            self.say(&format!("    {} has mode {mode:o}", name(self.logs[log].name, number)));
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    fn clear(&mut self, log: usize) {
        let path = self.path(log, 0);
        if !self.logs[log].todo.is_empty() || !path.exists() {
            return;
        }
        self.say(&format!("    {} is cleared", self.logs[log].name));
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(0).unwrap();
        self.touch(&file);
        self.torn_taken |= self.logs[log].torn.take().is_some();
        let inode = file.metadata().unwrap().ino();
        let rows = self.content.get(&inode).cloned().unwrap_or_default();
        self.truncated.push(rows);
        self.excuse();
        self.take_away(inode);
    }

    /// Something happens in the directory.
    fn happen(&mut self) {
        let log = self.dice.roll(self.logs.len() as u64) as usize;
        let there = self.path(log, 0).exists();
        match self.dice.roll(20) {
            0..8 if there => self.write(log, 0),
            8..11 if self.logs[log].late && self.path(log, 1).exists() => {
                let number = self.logs[log].todo.iter().all(|step| *step == Step::Create);
                if number {
                    self.write(log, 1);
                }
            }
            11..18 if !self.logs[log].todo.is_empty() => self.step(log),
            11..14 if there => self.rotate(log),
            18 => self.link(log),
            19 if self.dice.one_in(10) => self.clear(log),
            _ => {}
        }
    }

    /// The reader does something. Whether it lives.
    fn read(&mut self) -> bool {
        if !self.up {
            return true;
        }
        let task = self.dice.roll(u64::from(self.followed.tasks)) as usize;
        if self.call(task).is_none() {
            return false;
        }
        if self.dice.one_in(3) {
            self.say("  checkpoint");
            self.checkpoint();
        }
        true
    }

    /// Whether anything came; nothing if it ended.
    fn call(&mut self, task: usize) -> Option<bool> {
        let before = self.followed.rows.len();
        let read = self.read_amid(task);
        match self.followed.came(task, read) {
            Ok(more) => {
                if self.trace && more {
                    let rows: Vec<&str> = self.followed.rows[before..].iter().map(|row| clip(row)).collect();
                    told::show(&format!("  task {task} reads {rows:?}"));
                }
                Some(more)
            }
            Err(error) => {
                self.say(&format!("        stops: {error}"));
                self.ended = Some(error);
                None
            }
        }
    }

    /// A call, in the middle of which something may happen.
    fn read_amid(&mut self, task: usize) -> Result<Read, SourceError> {
        let mut reader = self.followed.readers.remove(task);
        let (runtime, most_bytes) = (Arc::clone(&self.followed.runtime), self.followed.most_bytes);
        self.followed.act_as_reader();
        let read = runtime.block_on(async {
            let mut read = reader.next(most_bytes);
            loop {
                tokio::select! {
                    biased;
                    Some(moment) = self.amid.moments.recv() => self.happen_amid(moment),
                    read = &mut read => return read,
                }
            }
        });
        self.followed.act_as_writer();
        self.followed.readers.insert(task, reader);
        read
    }

    /// A start, in the middle of which something may happen.
    fn open_amid(&mut self) -> Result<(), SourceError> {
        self.followed.readers.clear();
        let (opening, done) = (self.followed.opening(), self.amid.done.clone());
        self.followed.act_as_reader();
        let opened = std::thread::spawn(move || {
            let opened = opening();
            let _ = done.send(None);
            opened
        });
        while let Some(Some(moment)) = self.amid.moments.blocking_recv() {
            self.happen_amid(Some(moment));
        }
        self.followed.act_as_writer();
        self.followed.opened(opened.join().unwrap())
    }

    fn happen_amid(&mut self, moment: Option<Moment>) {
        self.followed.act_as_writer();
        if self.dice.one_in(6) && !self.still {
            self.say(&format!("      amid: {moment:?}"));
            (0..1 + self.dice.roll(8)).for_each(|_| self.happen());
        }
        self.followed.act_as_reader();
        self.amid.go_on.send(()).unwrap();
    }

    fn checkpoint(&mut self) {
        self.cut = (self.followed.rows.len(), self.followed.positions.clone());
    }

    fn die(&mut self) {
        self.say(&format!("  dies; rows {}", self.cut.0));
        self.followed.readers.clear();
        self.followed.rows.truncate(self.cut.0);
        self.followed.positions.clone_from(&self.cut.1);
        self.up = false;
    }

    /// Of what was truncated, and of which nothing had been read at the checkpoint, nobody can know.
    fn excuse(&mut self) {
        let read: BTreeSet<&String> = self.followed.rows.iter().collect();
        for rows in self.truncated.iter().filter(|rows| rows.iter().all(|row| !read.contains(row))) {
            self.unknown.extend(rows.iter().cloned());
        }
    }

    /// Whether it comes up.
    fn come_up(&mut self) -> bool {
        self.say("  starts");
        self.excuse();
        if let Err(error) = self.open_amid() {
            self.say(&format!("        does not start: {error}; {:#?}", self.followed.positions));
            self.ended = Some(error);
            return false;
        }
        self.up = true;
        true
    }

    /// Everything that can be read. Whether it lives.
    fn read_all(&mut self) -> bool {
        for looks in [70, 2] {
            let mut quiet = 0;
            while quiet < looks {
                quiet += 1;
                self.followed.runtime.block_on(tokio::time::advance(POLL));
                for task in 0..self.followed.tasks as usize {
                    match self.call(task) {
                        Some(true) => quiet = 0,
                        Some(false) => {}
                        None => return false,
                    }
                }
            }
            self.checkpoint();
            self.die();
            if !self.come_up() {
                return false;
            }
        }
        true
    }

    fn live(&mut self) {
        // What is there at the first checkpoint is known from then on.
        if !self.come_up() {
            return;
        }
        self.checkpoint();
        for _ in 0..15 + self.dice.roll(60) {
            for _ in 0..self.dice.roll(4) {
                self.happen();
            }
            let lives = match (self.dice.roll(12), self.up) {
                (0, true) => {
                    self.die();
                    true
                }
                (0..4, false) => self.come_up(),
                _ => self.read(),
            };
            if !lives {
                return;
            }
        }
        self.still = true;
        for log in 0..self.logs.len() {
            while !self.logs[log].todo.is_empty() {
                self.step(log);
            }
            self.write(log, 0);
            (0..10).for_each(|number| self.lock(log, number, 0o644));
            let hard = self.followed.dir.path().join("hard.log");
            if hard.exists() {
                fs::set_permissions(hard, fs::Permissions::from_mode(0o644)).unwrap();
            }
        }
        if self.up || self.come_up() {
            self.read_all();
        }
    }

    fn judge(&self, seed: u64, told: &[String]) -> Result<(), String> {
        let mut read = BTreeMap::new();
        for row in &self.followed.rows {
            *read.entry(row.clone()).or_insert(0) += 1;
        }
        let twice: Vec<&str> = read.iter().filter(|(_, times)| **times > 1).map(|(row, _)| clip(row)).collect();
        if !twice.is_empty() {
            return Err(format!("seed {seed}: twice: {twice:?}"));
        }
        let foreign: Vec<&str> = read.keys().filter(|row| !self.written.contains(*row)).map(|row| clip(row)).collect();
        if !foreign.is_empty() {
            return Err(format!("seed {seed}: never written: {foreign:?}"));
        }
        if let Some(error) = &self.ended {
            return match self.taken.is_empty() && self.unknown.is_empty() && !self.torn_taken {
                true => Err(format!("seed {seed}: nothing was taken away, but: {error}")),
                false => Ok(()),
            };
        }
        let missing: Vec<&String> = self.written.iter().filter(|row| !read.contains_key(*row)).collect();
        let lost: Vec<&str> = missing
            .iter()
            .filter(|row| !self.taken.contains(**row) && !self.unknown.contains(**row))
            .map(|row| clip(row))
            .collect();
        if !lost.is_empty() {
            return Err(format!("seed {seed}: lost: {lost:?}"));
        }
        let untold = missing.iter().any(|row| self.taken.contains(*row) && !self.unknown.contains(*row))
            && !told.iter().any(|text| text.contains("lost"));
        match untold {
            true => Err(format!(
                "seed {seed}: lost and not told: {:?}",
                missing.iter().map(|row| clip(row)).collect::<Vec<_>>()
            )),
            false => Ok(()),
        }
    }
}

#[test]
fn in_no_life_a_row_comes_twice_or_is_lost_in_silence() {
    told::listen();
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("TIDEGATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("TIDEGATE_FIRST").unwrap_or(0);
            first..first + number("TIDEGATE_LIVES").unwrap_or(LIVES)
        }
    };
    let (mut problems, mut rows, mut stopped, mut missed) = (Vec::new(), 0, 0, 0);
    for seed in seeds {
        let mut life = Life::new(seed);
        life.live();
        let told = told::take();
        problems.extend(life.judge(seed, &told).err());
        rows += life.followed.rows.len();
        stopped += u64::from(life.ended.is_some());
        missed += life.written.len() - life.followed.rows.len().min(life.written.len());
    }
    told::show(&format!("{rows} rows read, {missed} not, {stopped} lives ended in a stop"));
    assert!(problems.is_empty(), "{} lives: {:#?}", problems.len(), &problems[..problems.len().min(40)]);
}
