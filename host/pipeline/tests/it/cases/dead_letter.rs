//! Rows that cannot be read, and rows that a sink does not take (P12).

use tidegate_columns::transform::TransformOptions;
use tidegate_protocol::event::{End, TaskFailure};
use tidegate_store::MemoryLog;

use crate::destination::Destination;
use crate::lines::Lines;
use crate::support::{pipeline, run_to_end, sink};

fn letters(destination: &Destination) -> Vec<serde_json::Value> {
    destination.rows().iter().map(|row| serde_json::from_str(row).expect("dead letters are JSON")).collect()
}

#[tokio::test(start_paused = true)]
async fn bad_rows_go_to_the_dead_letter_sink_with_file_line_and_reason() {
    let (destination, dead, log) = (Destination::default(), Destination::default(), MemoryLog::default());
    let lines = Lines::of(&[r#"{"n":1}"#, "!bad", r#"{"n":2}"#]);
    let mut with = pipeline(lines.clone(), 1, vec![sink("out", destination.plugin(), 1)]);
    with.dead_letter = Some(sink("dead", dead.plugin(), 1));
    let report = run_to_end(with, &log).await;
    assert_eq!(report.end, End::Finished);
    assert_eq!(destination.rows(), lines.expected());
    let letters = letters(&dead);
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0]["file"], "p0");
    assert_eq!(letters[0]["line"], 2);
    assert_eq!(letters[0]["reason"], "marked bad");
    assert_eq!(letters[0]["row"], "!bad");
    assert_eq!(report.progress.rows_dead_lettered, 1);
}

#[tokio::test(start_paused = true)]
async fn f52_without_a_dead_letter_sink_a_bad_row_stops_the_pipeline_and_is_named() {
    let (destination, log) = (Destination::default(), MemoryLog::default());
    let lines = Lines::of(&[r#"{"n":1}"#, "!bad"]);
    let report = run_to_end(pipeline(lines, 1, vec![sink("out", destination.plugin(), 1)]), &log).await;
    let End::Failed(TaskFailure::BadRow { message }) = report.end else { panic!("{:?}", report.end) };
    assert!(message.contains("p0, line 2") && message.contains("marked bad"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn rows_rejected_in_write_prepare_or_as_a_bad_batch_all_arrive_as_dead_letters() {
    let places = [("write", r#""n":17,"#), ("prepare", r#""n":23,"#), ("batch", r#""n":41,"#)];
    for (columns, (place, word)) in [None, Some(Lines::columns())].into_iter().flat_map(|columns| {
        let each = move |place| (columns.clone(), place);
        places.into_iter().map(each)
    }) {
        let (destination, dead, log) = (Destination::default(), Destination::default(), MemoryLog::default());
        match place {
            "write" => destination.lock().rejects_in_write = vec![word],
            "prepare" => destination.lock().rejects_in_prepare = vec![word],
            _ => destination.lock().bad_batch = vec![word],
        }
        let lines = Lines::new(2, 60);
        let mut with = pipeline(lines.clone(), 2, vec![sink("out", destination.plugin(), 2)]);
        with.sources[0].columns = columns;
        with.dead_letter = Some(sink("dead", dead.plugin(), 1));
        let report = run_to_end(with, &log).await;
        assert_eq!(report.end, End::Finished, "{place}");
        let (rejected, taken): (Vec<_>, Vec<_>) = lines.expected().into_iter().partition(|row| row.contains(word));
        assert_eq!(destination.rows(), taken, "{place}");
        let mut dead_rows: Vec<_> =
            letters(&dead).iter().map(|letter| letter["row"].as_str().expect("a row").to_owned()).collect();
        dead_rows.sort();
        assert_eq!(dead_rows, rejected, "{place}");
        assert_eq!(rejected.len(), 2, "{place}: one in each partition");
    }
}

/// Each sink is found to reject rows there by a run that ends for it; such runs are not fruitless tries.
#[tokio::test(start_paused = true)]
async fn many_sinks_that_reject_rows_in_prepare_are_learned_of_within_one_try() {
    let (dead, log) = (Destination::default(), MemoryLog::default());
    let destinations: Vec<Destination> = (0..3).map(|_| Destination::default()).collect();
    let sinks = destinations.iter().enumerate().map(|(number, destination)| {
        destination.lock().rejects_in_prepare = vec![r#""n":3,"#];
        sink(&format!("out-{number}"), destination.plugin(), 1)
    });
    let lines = Lines::new(1, 10);
    let mut with = pipeline(lines.clone(), 1, sinks.collect());
    with.dead_letter = Some(sink("dead", dead.plugin(), 1));
    with.settings.restarts = 1;
    let report = run_to_end(with, &log).await;
    assert_eq!(report.end, End::Finished);
    assert_eq!(letters(&dead).len(), 3);
    assert!(destinations.iter().all(|destination| destination.rows().len() == 9));
}

#[tokio::test(start_paused = true)]
async fn rows_filtered_not_transformed_and_rejected_by_the_plugin_are_told_apart() {
    for place in ["write", "prepare", "batch"] {
        let word = r#""n":17,"#;
        let (destination, dead, log) = (Destination::default(), Destination::default(), MemoryLog::default());
        match place {
            "write" => destination.lock().rejects_in_write = vec![word],
            "prepare" => destination.lock().rejects_in_prepare = vec![word],
            _ => destination.lock().bad_batch = vec![word],
        }
        let lines = Lines::new(2, 60);
        let mut out = sink("out", destination.plugin(), 2);
        out.shape.transform = Some(TransformOptions {
            filter: Some("n % 10 <> 3".into()),
            add: vec![("inverse".into(), "100 / (n - 40)".into())],
            drop: vec!["inverse".into()],
            ..TransformOptions::default()
        });
        let mut with = pipeline(lines.clone(), 2, vec![out]);
        with.sources[0].columns = Some(Lines::columns());
        with.dead_letter = Some(sink("dead", dead.plugin(), 1));
        let report = run_to_end(with, &log).await;
        assert_eq!(report.end, End::Finished, "{place}");
        let number = |row: &str| serde_json::from_str::<serde_json::Value>(row).expect("JSON")["n"].as_u64();
        let taken =
            lines.expected().into_iter().filter(|row| number(row).is_some_and(|n| n % 10 != 3 && n != 40 && n != 17));
        assert_eq!(destination.rows(), taken.collect::<Vec<_>>(), "{place}");
        let mut letters: Vec<_> = letters(&dead)
            .iter()
            .map(|letter| {
                let text = |key: &str| letter[key].as_str().expect(key).to_owned();
                (number(&text("row")), text("code") == "transform")
            })
            .collect();
        letters.sort();
        let both = |n, transform| [(Some(n), transform), (Some(n), transform)];
        assert_eq!(letters, [both(17, false), both(40, true)].concat(), "{place}");
        assert_eq!((report.progress.rows_filtered, report.progress.rows_dead_lettered), (12, 4), "{place}");
    }
}
