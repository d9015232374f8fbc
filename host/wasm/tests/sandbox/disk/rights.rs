//! What each role may do.

use super::{Desk, Hand};

#[tokio::test]
async fn a_writer_does_as_it_likes_with_what_it_made_and_with_nothing_else() {
    let desk = Desk::new();
    std::fs::write(desk.at("published"), "rows").unwrap();
    let mut writer = Hand::writer(&desk).await;
    assert_eq!(
        writer.does("mkdir staging; create staging/mine; put staging/mine abc; rename staging/mine staging/b").await,
        "ok ok 3 ok"
    );
    assert_eq!(writer.does("open staging/b; write staging/b 3 2; look published; cat published").await, "ok 2 ok rows");
    assert_eq!(
        writer.does("rm published; rename published p2; rename staging/b published").await,
        "not-permitted not-permitted not-permitted"
    );
    assert_eq!(writer.does("link staging/b c; open published").await, "not-permitted not-permitted");

    let mut other = Hand::writer(&desk).await;
    assert_eq!(
        other.does("open staging/b; rm staging/b; rename staging/b x; rmdir staging").await,
        ["not-permitted"; 4].join(" ")
    );
    assert_eq!(other.does("mkdir staging; create staging/b; look staging/b").await, "exist exist ok");
    assert_eq!(writer.does("rm staging/b; rmdir staging").await, "ok ok");
    assert_eq!(std::fs::read_to_string(desk.at("published")).unwrap(), "rows");
}

#[tokio::test]
async fn a_committer_publishes_and_clears_away_and_changes_no_bytes_of_others() {
    let desk = Desk::new();
    let mut writer = Hand::writer(&desk).await;
    assert_eq!(writer.does("create a; put a rows; create b; put b more").await, "ok 4 ok 4");
    let mut committer = Hand::committer(&desk).await;
    assert_eq!(
        committer.does("open a; truncate a; link a published; rename b renamed; rm a").await,
        "not-permitted not-permitted ok ok ok"
    );
    assert_eq!(committer.does("link published renamed; create new; rename new renamed").await, "exist ok ok");
    assert_eq!(std::fs::read_to_string(desk.at("published")).unwrap(), "rows");
    assert_eq!(std::fs::read_to_string(desk.at("renamed")).unwrap(), "");
}

#[tokio::test]
async fn nobody_writes_to_what_is_published() {
    let desk = Desk::new();
    let mut writer = Hand::writer(&desk).await;
    assert_eq!(
        writer.does("create a; put a rows; create b; put b rows; create c; put c rows; close c").await,
        "ok 4 ok 4 ok 4 ok"
    );
    let mut committer = Hand::committer(&desk).await;
    assert_eq!(committer.does("link a pa; rename b pb; link c pc; rm a; rm c").await, "ok ok ok ok ok");
    // It made them, and has two of them open.
    assert_eq!(
        writer.does("put a evil; size a 0; stream a 0 4; append b 4; put b evil").await,
        ["not-permitted"; 5].join(" ")
    );
    assert_eq!(writer.does("open pa; open pb; open pc; rm pc; rename pc c").await, ["not-permitted"; 5].join(" "));
    for name in ["pa", "pb", "pc"] {
        assert_eq!(std::fs::read_to_string(desk.at(name)).unwrap(), "rows");
    }
}

#[tokio::test]
async fn a_janitor_removes_and_makes_nothing() {
    let desk = Desk::new();
    let mut writer = Hand::writer(&desk).await;
    assert_eq!(writer.does("mkdir staging; create staging/a; create b").await, "ok ok ok");
    let mut janitor = Hand::janitor(&desk).await;
    assert_eq!(janitor.does("create x; mkdir y; rename b c; link b c; open b").await, ["not-permitted"; 5].join(" "));
    assert_eq!(janitor.does("list staging; rm staging/a; rmdir staging; rm b; list .").await, "[a] ok ok ok []");
}

#[tokio::test]
async fn folders_are_listed_however_much_is_in_them() {
    let desk = Desk::new();
    for number in 0..3000 {
        std::fs::write(desk.at(&format!("file-{number:04}")), "").unwrap();
    }
    let listed = Hand::janitor(&desk).await.does("list .").await;
    // What is said is cut; what was listed is the guest's.
    assert!(listed.starts_with("[file-0000,file-0001,"), "{listed}");
}
