//! What is decided after which faults, with a clock that stands still until it is set.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_protocol::plugin::{ErrorKind, PluginError};

use super::*;

const A: &str = "sha256:a";
const B: &str = "sha256:b";

#[derive(Debug, Default)]
struct Hand(AtomicU64);

impl Hand {
    fn forward(&self, span: Duration) {
        self.0.fetch_add(span.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Time for Hand {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn unix_ms(&self) -> u64 {
        1_000_000 + self.0.load(Ordering::SeqCst)
    }
}

fn quarantine() -> (Quarantine, Arc<Hand>) {
    let hand = Arc::new(Hand::default());
    (Quarantine::new(FaultRules::default(), hand.clone()), hand)
}

fn trap() -> CallFault {
    CallFault::new("p 1", Call::Commit, FaultKind::Trap, "unreachable")
}

/// Fails as soon as it may, until there is no instance any more; what it waited for.
fn until_refused(quarantine: &Quarantine, hand: &Hand, digest: &str) -> (Vec<u128>, Quarantined) {
    let mut waits = Vec::new();
    for _ in 0..100 {
        match quarantine.enter("t", digest) {
            Entry::Free => quarantine.fault("t", digest, &trap(), false),
            Entry::Later(left) => {
                waits.push(left.as_millis());
                hand.forward(left);
            }
            Entry::Trial => panic!("on trial before it was refused"),
            Entry::Refused(quarantined) => return (waits, quarantined),
        }
    }
    panic!("never refused")
}

#[test]
fn the_next_instance_waits_longer_after_each_fault_and_then_there_is_none() {
    let (quarantine, hand) = quarantine();
    let (waits, refused) = until_refused(&quarantine, &hand, A);
    assert_eq!(waits, [100, 200, 400, 800]);
    assert_eq!((refused.faults, refused.since_ms), (5, 1_001_500));
    assert_eq!(refused.trial_in, Some(Duration::from_secs(30)));
    let words = refused.to_string();
    assert!(words.starts_with("5 faults, the last: commit trapped: unreachable"), "{words}");
    assert!(words.contains("tried in 30 s") && words.contains("lifted"), "{words}");
    assert_eq!(quarantine.list("t"), [refused]);
}

#[test]
fn waits_are_bounded() {
    let rules = FaultRules { max_faults: 40, ..FaultRules::default() };
    let hand = Arc::new(Hand::default());
    let (waits, _) = until_refused(&Quarantine::new(rules, hand.clone()), &hand, A);
    assert_eq!((waits.len(), waits.iter().max()), (39, Some(&5000)));
}

#[test]
fn another_file_is_free_at_once() {
    let (quarantine, hand) = quarantine();
    until_refused(&quarantine, &hand, A);
    assert_eq!(quarantine.enter("t", B), Entry::Free);
    assert!(matches!(quarantine.enter("t", A), Entry::Refused(_)));
}

#[test]
fn faults_that_lie_far_apart_hold_nothing_back() {
    let (quarantine, hand) = quarantine();
    for _ in 0..50 {
        assert_eq!(quarantine.enter("t", A), Entry::Free);
        quarantine.fault("t", A, &trap(), false);
        hand.forward(Duration::from_secs(600));
    }
    assert_eq!(quarantine.list("t"), []);
}

#[test]
fn one_trial_decides_and_the_cool_down_doubles_while_it_fails() {
    let (quarantine, hand) = quarantine();
    until_refused(&quarantine, &hand, A);
    for seconds in [30, 60, 120, 240] {
        hand.forward(Duration::from_secs(seconds) - Duration::from_millis(1));
        assert!(matches!(quarantine.enter("t", A), Entry::Refused(_)), "not before {seconds} s");
        hand.forward(Duration::from_millis(1));
        assert_eq!(quarantine.enter("t", A), Entry::Trial);
        let Entry::Refused(meanwhile) = quarantine.enter("t", A) else { panic!("one at a time") };
        assert_eq!(meanwhile.trial_in, None);
        quarantine.fault("t", A, &trap(), true);
    }
    assert_eq!(quarantine.list("t")[0].since_ms, 1_001_500, "since the first");
}

#[test]
fn a_trial_that_answers_is_probation() {
    let (quarantine, hand) = quarantine();
    until_refused(&quarantine, &hand, A);
    hand.forward(Duration::from_secs(30));
    assert_eq!(quarantine.enter("t", A), Entry::Trial);
    quarantine.answered(A);
    assert_eq!([(); 3].map(|()| quarantine.enter("t", A)), [Entry::Free, Entry::Free, Entry::Free]);
    quarantine.fault("t", A, &trap(), false);
    let Entry::Refused(again) = quarantine.enter("t", A) else { panic!("the first fault is the last") };
    assert_eq!(again.trial_in, Some(Duration::from_secs(60)), "longer than the first time");
}

#[test]
fn probation_ends_with_the_window() {
    let (quarantine, hand) = quarantine();
    until_refused(&quarantine, &hand, A);
    hand.forward(Duration::from_secs(30));
    assert_eq!(quarantine.enter("t", A), Entry::Trial);
    quarantine.answered(A);
    hand.forward(Duration::from_secs(600));
    let (waits, again) = until_refused(&quarantine, &hand, A);
    assert_eq!((waits.len(), again.trial_in), (4, Some(Duration::from_secs(30))), "as if nothing had been");
}

#[test]
fn a_trial_that_says_nothing_is_followed_by_another() {
    let (quarantine, hand) = quarantine();
    until_refused(&quarantine, &hand, A);
    hand.forward(Duration::from_secs(30));
    assert_eq!(quarantine.enter("t", A), Entry::Trial);
    quarantine.silent(A);
    let Entry::Refused(refused) = quarantine.enter("t", A) else { panic!("not at once") };
    hand.forward(refused.trial_in.unwrap());
    assert_eq!(quarantine.enter("t", A), Entry::Trial);
}

#[test]
fn a_person_lifts_it_and_everybody_who_listens_hears() {
    let (quarantine, hand) = quarantine();
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let ear = heard.clone();
    let word = |change: &QuarantineChange| match change {
        QuarantineChange::Began(quarantined) => format!("began {}", quarantined.plugin),
        QuarantineChange::Passed { .. } => "passed".to_owned(),
        QuarantineChange::Lifted { .. } => "lifted".to_owned(),
    };
    let number = quarantine.subscribe(Box::new(move |change| ear.lock().unwrap().push(word(change))));
    assert!(!quarantine.lift(A), "there is none");
    until_refused(&quarantine, &hand, A);
    assert!(quarantine.lift(A) && !quarantine.lift(A));
    assert_eq!(quarantine.enter("t", A), Entry::Free);
    until_refused(&quarantine, &hand, A);
    hand.forward(Duration::from_secs(30));
    assert_eq!(quarantine.enter("t", A), Entry::Trial);
    quarantine.answered(A);
    quarantine.unsubscribe(number);
    assert!(matches!(quarantine.list("t")[..], []));
    quarantine.fault("t", A, &trap(), false);
    assert_eq!(*heard.lock().unwrap(), ["began p 1", "lifted", "began p 1", "passed"]);
}

#[test]
fn only_what_speaks_of_the_plugin_counts() {
    let of = |call, kind: FaultKind| CallFault::new("p 1", call, kind, "");
    let error = |kind| FaultKind::Error(PluginError { kind, code: "c".into(), message: "m".into() });
    for kind in [FaultKind::Trap, FaultKind::Budget("memory"), FaultKind::Timeout, FaultKind::Malformed] {
        assert!(counts(&of(Call::Write, kind.clone())) && counts(&of(Call::Instantiate, kind)));
    }
    assert!(counts(&of(Call::Write, FaultKind::Host)), "it panicked with the plugin on the stack");
    assert!(!counts(&of(Call::Instantiate, FaultKind::Host)), "there was no instance");
    assert!(!counts(&of(Call::Instantiate, FaultKind::Budget("instances")).blamed_on(Blame::Host)));
    assert!(!counts(&of(Call::Commit, FaultKind::Timeout).blamed_on(Blame::Destination)));
    for kind in
        [error(ErrorKind::Retryable), error(ErrorKind::Unsupported), FaultKind::AnswerLost, FaultKind::Quarantined]
    {
        assert!(!counts(&of(Call::Commit, kind)));
    }
}
