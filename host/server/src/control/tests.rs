use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::*;

struct Place {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

/// A directory whose path is far longer than a socket's may be.
fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d".repeat(120)).join("e".repeat(120));
    std::fs::create_dir_all(&path).unwrap();
    Place { _dir: dir, path }
}

fn connect(dir: &Path) -> Stream {
    let (_dir, path) = at(dir).unwrap();
    let stream = Stream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn create(name: &str) -> Ask {
    Ask::SavepointCreate { name: name.to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_user_may_open_the_socket_and_a_stale_one_is_replaced() {
    let place = place();
    // As a killed process leaves it: a name that nobody listens behind.
    let (_dir, path) = at(&place.path).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(matches!(ask(&place.path, &create("a"), soon()).unwrap(), Asked::Nobody));
    let listening = Listening::begin(&place.path, Control::default(), Plugins::default()).unwrap();
    let mode = std::fs::metadata(place.path.join(NAME)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    listening.end().await;
    assert!(!place.path.join(NAME).exists());
    assert!(matches!(ask(&place.path, &create("a"), soon()).unwrap(), Asked::Nobody));
}

#[tokio::test]
async fn something_else_of_that_name_is_left_alone() {
    let place = place();
    std::fs::write(place.path.join(NAME), "mine").unwrap();
    let error = Listening::begin(&place.path, Control::default(), Plugins::default()).err().unwrap();
    assert!(error.to_string().contains(NAME));
    assert_eq!(std::fs::read_to_string(place.path.join(NAME)).unwrap(), "mine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_a_request_is_refused_and_hurts_nobody() {
    let place = place();
    let listening = Listening::begin(&place.path, Control::default(), Plugins::default()).unwrap();
    let dir = place.path.clone();
    let told = tokio::task::spawn_blocking(move || {
        let say = |bytes: &[u8]| {
            let mut stream = connect(&dir);
            // A client that is refused early may find the connection closed.
            let _ = stream.write_all(bytes);
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer);
            answer
        };
        [
            say(b"not json\n"),
            say(b"{\"version\":2,\"ask\":\"savepoint-create\",\"name\":\"a\"}\n"),
            say(b"{\"version\":1,\"ask\":\"shut-down\"}\n"),
            say(&vec![b'x'; 4 * LONGEST]),
        ]
    });
    for answer in told.await.unwrap() {
        // Too long a line may be cut off before the answer could be read; all others hear why.
        assert!(answer.is_empty() || answer.contains("\"why\":\"request\""), "{answer}");
    }
    // Clients that hold all places and say nothing: the next one is turned away, and heard when they are gone.
    let dir = place.path.clone();
    let crowded = tokio::task::spawn_blocking(move || {
        let silent: Vec<Stream> = (0..CLIENTS).map(|_| connect(&dir)).collect();
        let mut turned_away = String::new();
        let _ = connect(&dir).read_to_string(&mut turned_away);
        drop(silent);
        let heard = || {
            let mut stream = connect(&dir);
            let mut answer = String::new();
            let _ = stream.write_all(b"?\n").and_then(|()| stream.read_to_string(&mut answer).map(|_| ()));
            answer
        };
        let heard = (0..10_000).map(|_| heard()).find(|answer| !answer.is_empty());
        (turned_away, heard)
    });
    let (turned_away, heard) = crowded.await.unwrap();
    assert_eq!(turned_away, "");
    assert!(heard.is_some_and(|answer| answer.contains("\"why\":\"request\"")));
    listening.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_nobody_carries_out_is_withdrawn_in_time() {
    let place = place();
    let listening = Listening::begin(&place.path, Control::default(), Plugins::default()).unwrap();
    let dir = place.path.clone();
    let asked = tokio::task::spawn_blocking(move || ask(&dir, &create("a"), Instant::now()).unwrap());
    let withdrawn = |said: &Said| matches!(said, Said::Refused { why: Why::Withdrawn, .. });
    match asked.await.unwrap() {
        Asked::Silent | Asked::Lost => {}
        Asked::Answered(said) => assert!(withdrawn(&said), "{said:?}"),
        Asked::Nobody => panic!("somebody listens"),
    }
    listening.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_read_so_late_that_it_is_withdrawn_already_is_not_begun() {
    let place = place();
    let listening = Listening::begin(&place.path, Control::default(), Plugins::default()).unwrap();
    let dir = place.path.clone();
    // As a process finds it that was stopped meanwhile: both lines at once.
    let late = tokio::task::spawn_blocking(move || {
        let mut stream = connect(&dir);
        let lines = [line(create("a")), b"withdraw\n".to_vec()].concat();
        stream.write_all(&lines).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    // Nobody carries requests out here: had it begun, the answer would not come.
    assert!(late.await.unwrap().contains("\"why\":\"withdrawn\""));
    listening.end().await;
}
