//! Opens the tasks of a run from what was restored: the columns of rows first, since sinks are shaped by them; then
//! writers, since they can refuse; sources last.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_columns::{ColumnsError, Schema};
use tidegate_protocol::event::{Restored, TaskFailure};
use tidegate_protocol::ids::{Epoch, KeyRange, SinkId, SourceId};
use tidegate_protocol::plugin::{Call, CallFault, Encoding, WriterState};
use tidegate_protocol::record::{OperatorCut, SourceCut};
use tokio::sync::{mpsc, watch};

use crate::clock::Clock;
use crate::dead_letter::LetterIds;
use crate::driver::{Announcements, Report};
use crate::exchange::{Inputs, Message, Output, channel};
use crate::log::{Blocking, LogHandle};
use crate::operator::{OperatorEntry, OperatorState};
use crate::router::Router;
use crate::source::known::KnownColumns;
use crate::source::{ColumnsPlan, Reader, SourceError};
use crate::spec::{Pipeline, Route, SinkEntry, SourceEntry, find_schema};
use crate::tasks::actor::{SinkHandle, timed};
use crate::tasks::growth::Growth;
use crate::tasks::operator::OperatorSubtask;
use crate::tasks::shaper::Shaper;
use crate::tasks::sink::SinkTask;
use crate::tasks::source::{Cut, SourceTask};

/// What is needed to open the tasks.
pub(crate) struct OpenTasks {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) restored: Restored,
    pub(crate) report: Report,
    pub(crate) log: LogHandle,
    pub(crate) blocking: Blocking,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) hold: watch::Receiver<bool>,
    pub(crate) injected: watch::Receiver<Epoch>,
}

/// Tasks that are ready and not yet running.
pub(crate) struct Opened {
    pub(crate) sources: Vec<SourceTask>,
    pub(crate) cuts: Vec<mpsc::UnboundedSender<Cut>>,
    pub(crate) operators: Vec<OperatorSubtask>,
    pub(crate) sinks: Vec<SinkTask>,
}

/// All channels into the subtasks of one step.
struct Step {
    receivers: Vec<Vec<mpsc::Receiver<Message>>>,
    feeders: usize,
    bytes: usize,
}

impl Step {
    fn new(subtasks: u32, bytes: usize) -> Self {
        Self { receivers: (0..subtasks).map(|_| Vec::new()).collect(), feeders: 0, bytes }
    }

    /// A router for one more task that feeds this step.
    fn feed(&mut self, route: &Route, encoding: Option<Encoding>) -> Router {
        let outputs: Vec<Output> = self
            .receivers
            .iter_mut()
            .map(|receivers| {
                let (output, receiver) = channel(self.bytes);
                receivers.push(receiver);
                output
            })
            .collect();
        self.feeders += 1;
        Router::new(outputs, route, encoding, self.feeders)
    }

    fn into_inputs(self, first_epoch: Epoch) -> Vec<Inputs> {
        self.receivers.into_iter().map(|receivers| Inputs::new(receivers, first_epoch)).collect()
    }
}

pub(crate) async fn open_tasks(open: OpenTasks) -> Result<Opened, TaskFailure> {
    let OpenTasks { pipeline, restored, report, log, blocking, clock, hold, injected } = open;
    let settings = &pipeline.settings;
    let channel_bytes = pipeline.pace.bytes(settings.channel_bytes);
    let first_epoch = restored.first_epoch;
    let mut operator_steps: Vec<Step> =
        pipeline.operators.iter().map(|entry| Step::new(entry.subtasks, channel_bytes)).collect();
    let mut sink_steps: BTreeMap<SinkId, Step> = pipeline
        .sinks
        .iter()
        .chain(&pipeline.dead_letter)
        .map(|entry| (entry.id.clone(), Step::new(entry.subtasks, channel_bytes)))
        .collect();

    let schemas = find_schemas(&pipeline, &restored, blocking).await?;

    // Wire from the front: whoever feeds a step takes a router of it.
    let mut wiring = Wiring { pipeline: &pipeline, operators: &mut operator_steps, sinks: &mut sink_steps };
    let mut source_routers = Vec::new();
    for entry in &pipeline.sources {
        for _ in 0..entry.tasks {
            source_routers.push((wiring.behind_source(entry), wiring.dead_letters()));
        }
    }
    let mut operator_routers = Vec::new();
    for (index, entry) in pipeline.operators.iter().enumerate() {
        for _ in 0..entry.subtasks {
            operator_routers.push(wiring.behind_operator(index));
        }
    }
    let mut reject_routers = Vec::new();
    for entry in &pipeline.sinks {
        for _ in 0..entry.subtasks {
            reject_routers.push(wiring.dead_letters());
        }
    }

    let mut sinks = Vec::new();
    let mut reject_routers = reject_routers.into_iter();
    for entry in pipeline.sinks.iter().chain(&pipeline.dead_letter) {
        let step = sink_steps.remove(&entry.id).unwrap_or_else(|| Step::new(entry.subtasks, channel_bytes));
        let states = restored.writers.get(&entry.id).map_or(&[][..], Vec::as_slice);
        for (ordinal, inputs) in (0u32..).zip(step.into_inputs(first_epoch)) {
            let dead_letter = reject_routers.next().flatten();
            let shaper = open_shaper(&pipeline, entry, &schemas)
                .map_err(|error| TaskFailure::Shape { sink: entry.id.clone(), message: error.message })?;
            let injected = injected.clone();
            let place =
                SinkPlace { entry, ordinal, inputs, dead_letter, states, shaper, blocking, clock: &clock, injected };
            sinks.push(open_sink(&pipeline, &restored, &report, place).await?);
        }
    }

    let mut operators = Vec::new();
    let mut operator_routers = operator_routers.into_iter();
    for (entry, step) in pipeline.operators.iter().zip(operator_steps) {
        let states = load_states(&log, entry, restored.operators.get(&entry.id)).await?;
        for (task, inputs) in (0u32..).zip(step.into_inputs(first_epoch)) {
            let range = KeyRange::split(entry.subtasks)[task as usize];
            let mine: Vec<OperatorState> = states.iter().filter(|state| state.range.overlaps(range)).cloned().collect();
            let operator = entry
                .operator
                .open(range, &mine)
                .map_err(|error| TaskFailure::Host(format!("operator `{}`: {error}", entry.id)))?;
            operators.push(OperatorSubtask {
                id: entry.id.clone(),
                task,
                range,
                operator,
                inputs: inputs.resumed(mine.iter().map(|state| state.watermark).min().flatten()),
                next: operator_routers.next().unwrap_or_default(),
                log: log.clone(),
                report: report.clone(),
            });
        }
    }

    let mut sources = Vec::new();
    let mut cuts = Vec::new();
    let mut source_routers = source_routers.into_iter();
    for entry in &pipeline.sources {
        let before = restored.sources.get(&entry.id);
        load_positions(&log, entry, before).await?;
        let columns = schemas.get(&entry.id);
        let readers = open_readers(entry, columns.map(KnownColumns::schema), before, blocking).await?;
        for (task, reader) in (0u32..).zip(readers) {
            let (next, dead_letter) = source_routers.next().unwrap_or_default();
            let (cut, orders) = mpsc::unbounded_channel();
            cuts.push(cut);
            sources.push(SourceTask {
                source: entry.id.clone(),
                task,
                reader,
                restored: before.map(|before| before.partitions.clone()).unwrap_or_default(),
                encoding: entry.encoding,
                columns: columns.cloned(),
                names: None,
                batch_bytes: pipeline.pace.bytes(settings.batch_bytes),
                on_bad_row: entry.on_bad_row,
                origins: entry.origins.clone(),
                first_epoch,
                cuts: orders,
                hold: hold.clone(),
                next,
                dead_letter,
                letter_ids: LetterIds::of_source(&pipeline.id, restored.run, &entry.id, task),
                report: report.clone(),
            });
        }
    }
    Ok(Opened { sources, cuts, operators, sinks })
}

/// Hands out routers into the next step.
struct Wiring<'a> {
    pipeline: &'a Pipeline,
    operators: &'a mut [Step],
    sinks: &'a mut BTreeMap<SinkId, Step>,
}

impl Wiring<'_> {
    fn behind_source(&mut self, source: &SourceEntry) -> Vec<Router> {
        match self.pipeline.operators.first() {
            Some(first) => vec![self.operators[0].feed(&first.route, None)],
            None => self
                .pipeline
                .sinks
                .iter()
                .filter(|sink| sink.sources.as_ref().is_none_or(|sources| sources.contains(&source.id)))
                .filter_map(|sink| feed_sink(self.sinks, sink))
                .collect(),
        }
    }

    fn behind_operator(&mut self, index: usize) -> Vec<Router> {
        match self.pipeline.operators.get(index + 1) {
            Some(next) => vec![self.operators[index + 1].feed(&next.route, None)],
            None => self.pipeline.sinks.iter().filter_map(|sink| feed_sink(self.sinks, sink)).collect(),
        }
    }

    fn dead_letters(&mut self) -> Option<Router> {
        self.pipeline.dead_letter.as_ref().and_then(|sink| feed_sink(self.sinks, sink))
    }
}

fn feed_sink(steps: &mut BTreeMap<SinkId, Step>, sink: &SinkEntry) -> Option<Router> {
    // Rows on their way into whole files keep the encoding that they have.
    let encoding = (sink.encoding != Encoding::Files).then_some(sink.encoding);
    steps.get_mut(&sink.id).map(|step| step.feed(&sink.route, encoding))
}

/// One participant's place in the graph.
struct SinkPlace<'a> {
    entry: &'a SinkEntry,
    ordinal: u32,
    inputs: Inputs,
    dead_letter: Option<Router>,
    states: &'a [WriterState],
    shaper: Shaper,
    blocking: Blocking,
    clock: &'a Arc<dyn Clock>,
    injected: watch::Receiver<Epoch>,
}

async fn open_sink(
    pipeline: &Arc<Pipeline>,
    restored: &Restored,
    report: &Report,
    place: SinkPlace<'_>,
) -> Result<SinkTask, TaskFailure> {
    let SinkPlace { entry, ordinal, inputs, dead_letter, states, shaper, blocking, clock, injected } = place;
    let handle = SinkHandle::new(pipeline, entry, report.clone());
    let lost = |fault: CallFault| TaskFailure::Plugin(entry.id.clone(), fault);
    let callee = handle.callee();
    let limit = pipeline.settings.call_timeout;
    let range = KeyRange::split(entry.subtasks)[ordinal as usize];
    let mine: Vec<WriterState> = states.iter().filter(|state| state.range.overlaps(range)).cloned().collect();
    let ctx = handle.ctx(restored.run, Arc::clone(&handle.config), 1);
    let announcements = Arc::new(Announcements { sink: entry.id.clone(), report: report.clone() });
    let mut writer =
        timed(&callee, Call::Instantiate, limit, entry.plugin.writer(announcements)).await.map_err(lost)?;
    timed(&callee, Call::Open, limit, writer.open(&ctx, range, &mine)).await.map_err(lost)?;
    Ok(SinkTask {
        pipeline: Arc::clone(pipeline),
        sink: entry.id.clone(),
        ordinal,
        plugin: callee,
        writer,
        ctx,
        inputs,
        shaper: Some(Box::new(shaper)),
        blocking,
        clock: Arc::clone(clock),
        first_epoch: restored.first_epoch,
        injected,
        pace: pipeline.pace.step(),
        dead_letter,
        letter_ids: LetterIds::of_sink(&pipeline.id, restored.run, &entry.id, ordinal),
        call_timeout: limit,
        reject_window: pipeline.settings.reject_window,
        rejects_in_prepare: pipeline.rejects_in_prepare.of(&entry.id),
        growth: Growth::default(),
        report: report.clone(),
    })
}

async fn load_states(
    log: &LogHandle,
    entry: &OperatorEntry,
    cuts: Option<&Vec<OperatorCut>>,
) -> Result<Vec<OperatorState>, TaskFailure> {
    let mut states = Vec::new();
    for cut in cuts.into_iter().flatten() {
        let state = log
            .get_state(cut.state.clone())
            .await
            .map_err(|error| TaskFailure::Host(format!("state of operator `{}`: {error}", entry.id)))?;
        states.push(OperatorState {
            range: cut.range,
            version: cut.version,
            state,
            timers: cut.timers.clone(),
            watermark: cut.watermark,
        });
    }
    Ok(states)
}

/// Pages of positions are read for the checkpoint that the run goes on from, and for no other. The coordinator's history
/// shares them.
async fn load_positions(log: &LogHandle, entry: &SourceEntry, cut: Option<&SourceCut>) -> Result<(), TaskFailure> {
    let Some(cut) = cut.filter(|cut| cut.partitions.missing().next().is_some()) else { return Ok(()) };
    log.load_positions(cut.partitions.clone())
        .await
        .map_err(|error| TaskFailure::Host(format!("positions of source `{}`: {error}", entry.id)))
}

/// The columns of all sources whose rows are typed.
async fn find_schemas(
    pipeline: &Pipeline,
    restored: &Restored,
    blocking: Blocking,
) -> Result<BTreeMap<SourceId, KnownColumns>, TaskFailure> {
    let mut schemas = BTreeMap::new();
    for entry in &pipeline.sources {
        if let Some(options) = &entry.columns {
            let kept = restored.sources.get(&entry.id).and_then(|cut| cut.schema.clone());
            let (source, options) = (Arc::clone(&entry.source), options.clone());
            let inferred = options.declared.is_none();
            let find = move || find_schema(source.as_ref(), &options, kept.as_deref());
            let kept = on_threads(entry, blocking, find).await?;
            schemas.insert(entry.id.clone(), KnownColumns::new(kept, inferred));
        }
    }
    Ok(schemas)
}

/// What the host does with rows before this sink's plugin gets them.
fn open_shaper(
    pipeline: &Pipeline,
    entry: &SinkEntry,
    schemas: &BTreeMap<SourceId, KnownColumns>,
) -> Result<Shaper, ColumnsError> {
    let is_dead_letter = pipeline.dead_letter.as_ref().is_some_and(|sink| sink.id == entry.id);
    // Operators hand on lines, and letters are lines.
    let feeds = |source: &SourceId| {
        pipeline.operators.is_empty()
            && !is_dead_letter
            && entry.sources.as_ref().is_none_or(|sources| sources.contains(source))
    };
    let mine: Vec<_> = schemas
        .iter()
        .filter(|(source, _)| feeds(source))
        .map(|(source, columns)| (source.clone(), columns.schema().clone()))
        .collect();
    Shaper::new(&entry.shape, entry.encoding, &entry.route, entry.subtasks, &mine)
}

async fn open_readers(
    entry: &SourceEntry,
    schema: Option<&Schema>,
    cut: Option<&SourceCut>,
    blocking: Blocking,
) -> Result<Vec<Box<dyn Reader>>, TaskFailure> {
    let source = Arc::clone(&entry.source);
    let cut = cut.cloned();
    let (encoding, tasks) = (entry.encoding, entry.tasks);
    let plan = schema.zip(entry.columns.as_ref()).map(|(schema, options)| ColumnsPlan::new(schema.clone(), options));
    let readers = on_threads(entry, blocking, move || match &plan {
        Some(plan) => source.open_columns(plan, cut.as_ref(), tasks),
        None => source.open(encoding, cut.as_ref(), tasks),
    })
    .await?;
    if readers.len() != tasks as usize {
        let message = format!("source `{}` opened {} readers for {tasks} tasks", entry.id, readers.len());
        return Err(TaskFailure::Host(message));
    }
    Ok(readers)
}

/// Asks a source something that may block.
async fn on_threads<T: Send + 'static>(
    entry: &SourceEntry,
    blocking: Blocking,
    ask: impl FnOnce() -> Result<T, SourceError> + Send + 'static,
) -> Result<T, TaskFailure> {
    let answer = match blocking {
        Blocking::Inline => ask(),
        Blocking::Threads => match tokio::task::spawn_blocking(ask).await {
            Ok(answer) => answer,
            Err(error) => return Err(TaskFailure::Host(format!("source `{}` panicked: {error}", entry.id))),
        },
    };
    answer.map_err(|error| TaskFailure::Source {
        source: entry.id.clone(),
        message: error.to_string(),
        permanent: error.permanent(),
    })
}
