//! What the person does who runs a pipeline: resolves blocked epochs, through the log, as `tidegate resolve` does.

use tidegate_pipeline::clock::Clock as _;
use tidegate_protocol::event::AppendResult;
use tidegate_protocol::history::History;
use tidegate_protocol::ids::{EpochRef, PipelineId, SinkId};
use tidegate_protocol::record::{Body, Choice, Decision, Record};

use crate::crash::Crash;
use crate::store::SimStore;
use crate::world::World;

/// Puts a decision into the log while no host runs. False if the log does not take it.
pub fn decide(world: &World, store: &SimStore, pipeline: &PipelineId, id: &str, choice: Choice) -> bool {
    let host = Crash::new();
    let Ok(mut log) = store.open(&host, pipeline) else { return false };
    let Ok(records) = log.read_all() else { return false };
    let Ok(mut history) = History::fold(&records) else { return false };
    let Some(run) = history.newest_run() else { return false };
    let decision = Decision { id: id.to_owned(), by: "a person".into(), choice };
    let record = Record {
        slot: history.next_slot(),
        run,
        written_at: world.now_ms(),
        outcomes: vec![],
        body: Body::Decision(decision),
    };
    history.check(&record).is_ok() && log.append(&record) == AppendResult::Created
}

/// Decides what becomes of a blocked epoch: sent again, or its rows given up.
pub fn resolve(
    world: &World,
    store: &SimStore,
    pipeline: &PipelineId,
    id: &str,
    (sink, of): (&SinkId, EpochRef),
    retry: bool,
) -> bool {
    let sink = sink.clone();
    let choice = if retry { Choice::Retry { sink, of } } else { Choice::GiveUp { sink, of } };
    decide(world, store, pipeline, id, choice)
}

/// What the log means now, as somebody who looks into it sees it.
pub fn look(store: &SimStore, pipeline: &PipelineId) -> Option<History> {
    let mut log = store.open(&Crash::new(), pipeline).ok()?;
    History::fold(&log.read_all().ok()?).ok()
}
