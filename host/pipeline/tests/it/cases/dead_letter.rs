//! Rows that cannot be read, and rows that a sink does not take (P12).

use tidegate_protocol::event::{End, TaskFailure};
use tidegate_store::MemoryLog;

use super::support::{pipeline, run_to_end, sink};
use crate::destination::Destination;
use crate::lines::Lines;

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
    for (place, word) in [("write", r#""n":17,"#), ("prepare", r#""n":23,"#), ("batch", r#""n":41,"#)] {
        let (destination, dead, log) = (Destination::default(), Destination::default(), MemoryLog::default());
        match place {
            "write" => destination.lock().rejects_in_write = vec![word],
            "prepare" => destination.lock().rejects_in_prepare = vec![word],
            _ => destination.lock().bad_batch = vec![word],
        }
        let lines = Lines::new(2, 60);
        let mut with = pipeline(lines.clone(), 2, vec![sink("out", destination.plugin(), 2)]);
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
