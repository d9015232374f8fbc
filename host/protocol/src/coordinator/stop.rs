//! Acknowledging, and coming to an end.

use std::sync::Arc;

use super::{Coordinator, Phase};
use crate::event::{Effect, End, Timer};
use crate::history::SealedEpoch;
use crate::ids::{EpochRef, SinkId};
use crate::record::{Blocked, Body, CutReason, Finished};

impl Coordinator {
    pub(super) fn on_stop_requested(&mut self) {
        self.writing.stopping = true;
        // Nothing of this run is staged or sent yet: there is nothing to bring to an end.
        if matches!(self.phase, Phase::New | Phase::Observing | Phase::Fencing) {
            self.end_with_what_waits(true);
        }
    }

    /// Whoever asked to stop waits: what some tries did not settle is left to the next run.
    pub(super) fn nothing_to_wait_for(&self) -> bool {
        self.lanes.values().all(|lane| lane.at_rest() || (self.writing.stopping && lane.keeps_failing()))
    }

    /// P11: only what every sink has committed, and only when the log says so.
    pub(super) fn go_on_publishing(&mut self) {
        if self.phase != Phase::Running {
            return;
        }
        let line = self.history.line(self.history.newest_seal());
        // Newest first; everything before an epoch that ended at every sink has ended too, since sinks commit in order
        // and a later run begins only behind what is sealed.
        let ended = line.iter().rev().take_while(|epoch| epoch.ended()).last();
        let Some(SealedEpoch { of, seal, .. }) = ended.copied() else { return };
        if self.published == Some(*of) {
            return;
        }
        let (of, sources) = (*of, seal.sources.clone());
        self.published = Some(of);
        Arc::make_mut(&mut self.history).unload_positions(of);
        self.emit(Effect::PublishProgress { of, sources });
    }

    /// Outcomes that found no record to ride on.
    fn flush_when_idle(&mut self) {
        let quiet = !self.unrecorded.is_empty() && self.append.idle() && !self.cutting();
        if quiet && !self.idle_timer && self.phase == Phase::Running && self.alive() {
            self.idle_timer = true;
            self.emit(Effect::Wait { timer: Timer::IdleFlush, millis: self.settings.idle_flush_ms });
        }
    }

    pub(super) fn on_idle_flush(&mut self) {
        self.idle_timer = false;
        if !self.unrecorded.is_empty() && self.append.idle() && !self.cutting() {
            self.record(Body::Outcomes);
        }
    }

    pub(super) fn go_on_stopping(&mut self) {
        self.flush_when_idle();
        if !self.alive() || self.phase != Phase::Running || self.cutting() {
            return;
        }
        if !self.nothing_to_wait_for() || !self.append.idle() {
            return;
        }
        let blocked = self.lanes.values().filter(|lane| lane.blocked().is_some()).count();
        let over = match &self.writing.last_cut {
            Some(_) => true,
            None => self.writing.sources_ended && self.nothing_new_at_end(),
        };
        let left = self.lanes.values().any(|lane| !lane.is_empty());
        if over && !left {
            self.finish_or_stop();
        } else if over {
            self.end_with_what_waits(true);
        } else if blocked > 0 && (blocked == self.lanes.len() || self.full_lane().is_some()) {
            // Everything that can go on has gone on.
            self.end_with_what_waits(false);
        }
    }

    fn finish_or_stop(&mut self) {
        let Some(last) = self.history.newest_seal() else { return self.end(End::Stopped) };
        match self.writing.last_cut {
            Some(CutReason::Stop) => self.end(End::Stopped),
            _ if self.history.finished() == Some(last) => self.end(End::Finished),
            _ => self.record(Body::Finished(Finished { last })),
        }
    }

    /// `wanted`: somebody asked for the end, or the input ended. Then epochs that are merely in doubt are no reason to
    /// call a person: the next run goes on with them.
    pub(super) fn end_with_what_waits(&mut self, wanted: bool) {
        let blocked: Vec<(SinkId, EpochRef, Blocked)> = self
            .lanes
            .iter()
            .filter_map(|(sink, lane)| lane.blocked().map(|(of, reason)| (sink.clone(), of, reason.clone())))
            .collect();
        let waiting: Vec<(SinkId, EpochRef)> =
            self.lanes.iter().flat_map(|(sink, lane)| lane.epochs().map(|of| (sink.clone(), of))).collect();
        let for_a_person = blocked.iter().any(|(_, _, reason)| !matches!(reason, Blocked::TriesSpent(_)));
        self.end(match (wanted, waiting.is_empty()) {
            (_, true) => End::Stopped,
            (true, false) if !for_a_person => End::StoppedInDoubt { waiting },
            _ => End::Blocked { waiting: blocked },
        });
    }

    /// Writes the outcomes that are still in memory, where the log can be written, and ends.
    pub(super) fn go_on_ending(&mut self) {
        let Some(end) = self.ending.clone() else { return };
        if self.append.asked() {
            return;
        }
        let lost = matches!(end, End::Superseded(_) | End::StoreFailed(_));
        let ours = self.run.is_some() && self.history.newest_run() == self.run;
        if !lost && ours && !self.unrecorded.is_empty() {
            self.append.clear_queue();
            self.record(Body::Outcomes);
            self.go_on_appending();
            if self.append.asked() {
                return;
            }
        }
        self.phase = Phase::Ended;
        self.answer_all_requests();
        self.emit(Effect::End(end));
    }
}
