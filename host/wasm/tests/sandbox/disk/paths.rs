//! H36: no path leads out of a directory.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Desk, Hand};

#[tokio::test]
async fn h36_no_spelling_of_a_path_leads_out() {
    let desk = Desk::new();
    std::fs::write(desk.base.path().join("secret"), "canary").unwrap();
    std::fs::write(desk.at("file"), "inside").unwrap();
    std::fs::create_dir(desk.at("folder")).unwrap();
    for (target, link) in [
        ("/etc/passwd", "absolute"),
        ("../secret", "up"),
        ("/proc/self/fd", "fds"),
        ("/proc/self/root", "root"),
        ("..", "parent"),
        ("folder/../../secret", "round"),
    ] {
        symlink(target, desk.at(link)).unwrap();
    }
    let mut committer = Hand::committer(&desk).await;
    let outside = [
        "/etc/passwd",
        "//etc/passwd",
        "/",
        "..",
        "../secret",
        "folder/../../secret",
        "./../secret",
        "folder/./../../output/file",
        "absolute",
        "up",
        "round",
        "fds/0",
        "root/etc/passwd",
        "parent/secret",
        "/proc/self/fd/0",
    ];
    for path in outside {
        for command in ["follow", "look", "open", "truncate", "create", "stat", "mkdir", "touch"] {
            let answer = committer.does(&format!("{command} {path}")).await;
            let refused = ["not-permitted", "loop", "exist", "not-directory"].contains(&answer.as_str());
            // Of a link itself one may know that it is there.
            let is_link = command == "stat" && !path.contains('/') && answer.parse::<u64>().is_ok();
            assert!(refused || is_link, "{command} {path}: {answer}");
        }
        let follow = committer.does(&format!("follow {path}")).await;
        assert!(["not-permitted", "loop"].contains(&follow.as_str()), "follow {path}: {follow}");
        for answer in [
            committer.does(&format!("rename file {path}/x")).await,
            committer.does(&format!("link file {path}/x")).await,
            committer.does(&format!("rm {path}/passwd")).await,
        ] {
            let refused = ["not-permitted", "not-directory", "loop", "no-entry"].contains(&answer.as_str());
            assert!(refused, "{path}: {answer}");
        }
    }
    assert_eq!(std::fs::read_to_string(desk.base.path().join("secret")).unwrap(), "canary");
    assert_eq!(std::fs::read_to_string(desk.at("file")).unwrap(), "inside");
    assert!(desk.denied("wasi:filesystem/types") >= outside.len() as u64);
}

#[tokio::test]
async fn h36_a_trailing_slash_means_a_folder() {
    let desk = Desk::new();
    let mut committer = Hand::committer(&desk).await;
    assert_eq!(committer.does("create file; mkdir folder/; look folder/; look file/").await, "ok ok ok not-directory");
    assert_eq!(
        committer.does("create new/; rm file/; rename file/ x; link file x/").await,
        "is-directory not-directory not-directory not-directory"
    );
    assert_eq!(committer.does("stat file/; look folder//; look ./folder/.").await, "not-directory ok ok");
}

#[tokio::test]
async fn h36_plugins_make_no_symbolic_links_and_learn_of_no_host_path() {
    let desk = Desk::new();
    symlink("/etc", desk.at("etc")).unwrap();
    symlink("file", desk.at("near")).unwrap();
    let mut committer = Hand::committer(&desk).await;
    assert_eq!(
        committer.does("create file; symlink /etc/passwd a; symlink file b; symlink ../x c").await,
        "ok not-permitted not-permitted not-permitted"
    );
    assert_eq!(
        committer.does("readlink etc; readlink near; link near again").await,
        "not-permitted file not-permitted"
    );
    assert_eq!(committer.does("list .").await, "[etc,file,near]");
    assert_eq!(desk.denied("wasi:filesystem/types"), 5);
}

/// Somebody on the host swaps a folder for a link to one outside, all the time.
#[tokio::test(flavor = "multi_thread")]
async fn h36_a_link_swapped_in_meanwhile_leads_nowhere() {
    let desk = Desk::new();
    let outside = desk.base.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "canary").unwrap();
    std::fs::create_dir(desk.at("real")).unwrap();
    std::fs::write(desk.at("real/file"), "inside").unwrap();
    symlink(&outside, desk.at("evil")).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let swapper = std::thread::spawn({
        let (done, real, evil) = (done.clone(), desk.at("real"), desk.at("evil"));
        move || {
            let (real, evil) = (std::fs::File::open(real.parent().unwrap()).unwrap(), evil);
            let mut swaps = 0u64;
            while !done.load(Ordering::Relaxed) {
                let name = evil.file_name().unwrap();
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(&real, "real", &real, name, flags).unwrap();
                swaps += 1;
            }
            swaps
        }
    });
    let mut committer = Hand::committer(&desk).await;
    let (mut inside, mut refused) = (0, 0);
    let mut rounds = 0;
    while rounds < 300 || ((inside == 0 || refused == 0) && rounds < 100_000) {
        rounds += 1;
        let answer =
            committer.does("look real/file; cat real/file; close real/file; create real/mine; rm real/mine").await;
        assert!(!answer.contains("canary"), "{answer}");
        if answer.contains("inside") {
            inside += 1;
        } else {
            refused += 1;
        }
    }
    done.store(true, Ordering::Relaxed);
    assert!(swapper.join().unwrap() > 0);
    assert!(inside > 0 && refused > 0, "the race never happened: {inside} {refused}");
    let names: Vec<_> = std::fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file"]);
}

#[tokio::test]
async fn h36_nothing_is_linked_or_moved_between_two_directories() {
    let desk = Desk::new();
    let mut committer = Hand::committer(&desk).await;
    assert_eq!(
        committer.does("create file; link file other:file; rename file other:file").await,
        "ok cross-device cross-device"
    );
    assert_eq!(
        committer.does("create other:x; link other:x y; rename other:x y").await,
        "ok cross-device cross-device"
    );
    assert_eq!(
        committer.does("mkdir a; mkdir b; mkdir a/sub; rename a/sub b/sub; rename a/sub a/bus").await,
        "ok ok ok cross-device ok"
    );
}

#[tokio::test]
async fn h36_what_is_no_file_is_not_opened() {
    let desk = Desk::new();
    let fifo = desk.at("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(desk.at("socket")).unwrap();
    let mut committer = Hand::committer(&desk).await;
    // It would wait for its other end for ever.
    assert_eq!(committer.does("look fifo; follow fifo").await, "not-permitted not-permitted");
    assert_ne!(committer.does("open fifo").await, "ok");
    assert_ne!(committer.does("look socket").await, "ok");
}

#[tokio::test]
async fn h36_truncating_is_writing() {
    let desk = Desk::new();
    std::fs::write(desk.at("file"), "inside").unwrap();
    for mut hand in [Hand::writer(&desk).await, Hand::committer(&desk).await, Hand::janitor(&desk).await] {
        let tried =
            hand.does("truncate file; truncate-unwritten file; open file; look file; size file 0; put file x").await;
        assert_eq!(tried, "not-permitted not-permitted not-permitted ok not-permitted not-permitted");
    }
    assert_eq!(std::fs::read_to_string(desk.at("file")).unwrap(), "inside");
    let before = std::fs::metadata(desk.at("file")).unwrap().mtime();
    assert_eq!(Hand::writer(&desk).await.does("touch file").await, "not-permitted");
    assert_eq!(std::fs::metadata(desk.at("file")).unwrap().mtime(), before);
}
