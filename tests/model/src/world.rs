//! The state of everything, and what can happen next.

use tidegate_protocol::ids::{Epoch, RunId};

use crate::plan::{Budget, Choosing, How, SINKS, Spend, StartKind};

/// Stands for "none" where a number of a pool is expected.
pub const NONE: u32 = u32::MAX;

/// At most so many hosts live at a time.
pub const HOSTS: usize = 3;

/// The state of everything, as numbers of the pools. Two worlds are the same exactly when they are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct World {
    /// The log.
    pub log: u32,
    /// Destinations.
    pub sinks: [u32; SINKS],
    /// Living hosts, oldest first.
    pub hosts: [u32; HOSTS],
    /// What dead hosts had sent.
    pub late: u32,
    /// What may still happen.
    pub budget: Budget,
    /// How the last host ended, if none lives.
    pub over: Over,
}

impl World {
    /// Whether something may happen once more.
    pub fn has(&self, what: Spend) -> bool {
        self.budget[what as usize] > 0
    }

    /// It happens.
    pub fn spend(&mut self, what: Spend) {
        self.budget[what as usize] = self.budget[what as usize].saturating_sub(1);
    }

    /// Numbers of living hosts.
    pub fn living(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let hosts = self.hosts;
        (0..HOSTS).filter(move |at| hosts[*at] != NONE)
    }

    /// Takes a host out.
    pub fn remove_host(&mut self, at: usize) {
        self.hosts.copy_within(at + 1.., at);
        self.hosts[HOSTS - 1] = NONE;
    }
}

/// How the last host ended, while none lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Over {
    /// One lives, or none was started.
    Not,
    /// It died, or ended so that whoever runs it starts it again.
    Again,
    /// Its input ended and everything is committed.
    Finished,
    /// It was asked to stop.
    Stopped,
    /// A person must decide.
    Blocked,
    /// It did not begin.
    Refused,
    /// The same failure would come again.
    Failed,
}

/// A living host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// Its coordinator.
    pub coordinator: u32,
    /// Its graph, as the number of hosts before it.
    pub graph: u8,
    /// How it was started.
    pub kind: StartKind,
    /// Its sources and sinks, once they are open.
    pub tasks: Option<Tasks>,
    /// Effects and events under way, sorted.
    pub bag: Vec<u32>,
    /// It has changed something at a destination.
    pub touched: bool,
}

/// Sources and sinks of a host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tasks {
    /// The run.
    pub run: RunId,
    /// The epoch that is being written.
    pub epoch: Epoch,
    /// Where the source stands.
    pub read: u8,
    /// Rows of the epoch that is being written.
    pub rows: Vec<u8>,
    /// Rows of it that were with an instance which is gone; only if a rule is taken out.
    pub lost: u8,
    /// That all sources ended is told.
    pub ended: bool,
    /// That a barrier is due is told.
    pub due: bool,
    /// A stop was asked for.
    pub stopping: bool,
}

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// An event reaches its coordinator.
    Deliver(usize, u32),
    /// The same, and it will come once more.
    DeliverTwice(usize, u32),
    /// An effect, or a participant's barrier, is carried out.
    Carry(usize, u32, How),
    /// A bundle of rows is read.
    Read(usize),
    /// A barrier is due.
    Due(usize),
    /// All sources ended.
    EndOfInput(usize),
    /// Somebody asks for a stop.
    Stop(usize),
    /// The epoch is lost; which reason.
    Lose(usize, u8),
    /// Somebody asks for a savepoint.
    Savepoint(usize),
    /// Somebody gives it up.
    Forget(usize),
    /// Somebody withdraws what was asked for.
    Withdraw(usize),
    /// A host dies.
    Crash(usize),
    /// A host starts.
    Start(StartKind),
    /// What a dead host had sent arrives.
    Land(u32),
    /// A person decides about the first blocked epoch.
    Decide(Choosing),
    /// The log is put back to its first records.
    RestoreLog(u8),
    /// A destination is put back: its newest commit is gone.
    RestoreDestination(usize),
    /// Another log writes to a destination.
    Stranger(usize),
    /// The power fails.
    PowerCut,
}
