//! The test operator: counts rows per key and hands on, at each barrier, the new totals of the keys that it saw.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidegate_pipeline::operator::{Operator, OperatorError, OperatorSnapshot, OperatorState, OperatorTask};
use tidegate_pipeline::source::key::KeyExtractor;
use tidegate_protocol::ids::KeyRange;
use tidegate_protocol::plugin::{Batch, Encoding};

pub(crate) struct CountPerKey;

#[derive(Default)]
struct Counting {
    totals: BTreeMap<String, u64>,
    touched: BTreeSet<String>,
    watermark: Option<i64>,
}

fn key_of(row: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(row).expect("test rows are JSON");
    value["key"].as_str().expect("test rows have a key").to_owned()
}

fn hash_of(key: &str) -> u32 {
    KeyExtractor::new("key").point(format!(r#"{{"key":"{key}"}}"#).as_bytes()).expect("an object")
}

impl Operator for CountPerKey {
    fn open(&self, range: KeyRange, restored: &[OperatorState]) -> Result<Box<dyn OperatorTask>, OperatorError> {
        let mut counting = Counting::default();
        for state in restored {
            let totals: BTreeMap<String, u64> =
                serde_json::from_slice(&state.state).map_err(|e| OperatorError { message: e.to_string() })?;
            for (key, total) in totals {
                let hash = hash_of(&key);
                if range.first <= hash && hash <= range.last {
                    counting.totals.insert(key, total);
                }
            }
            counting.watermark = counting.watermark.max(state.watermark);
            assert!(state.timers.iter().all(|(_, key)| key.as_ref() == b"timer"), "timers come back");
        }
        Ok(Box::new(counting))
    }
}

impl OperatorTask for Counting {
    fn process(&mut self, rows: &Batch) -> Result<Vec<Batch>, OperatorError> {
        for row in rows.bytes.split_inclusive(|b| *b == b'\n') {
            let key = key_of(row);
            *self.totals.entry(key.clone()).or_default() += 1;
            self.touched.insert(key);
        }
        Ok(vec![])
    }

    fn watermark(&mut self, watermark: i64) -> Result<Vec<Batch>, OperatorError> {
        self.watermark = Some(watermark);
        Ok(vec![])
    }

    fn barrier(&mut self) -> Result<(Vec<Batch>, OperatorSnapshot), OperatorError> {
        let mut bytes = String::new();
        let rows = self.touched.len() as u64;
        for key in std::mem::take(&mut self.touched) {
            bytes.push_str(&format!("{{\"key\":\"{key}\",\"total\":{}}}\n", self.totals[&key]));
        }
        let out = Batch::new(Bytes::from(bytes), rows, Encoding::JsonLines);
        let state = serde_json::to_vec(&self.totals).map_err(|e| OperatorError { message: e.to_string() })?;
        let timers = vec![(self.watermark.unwrap_or(0) + 1, Bytes::from_static(b"timer"))];
        Ok((vec![out], OperatorSnapshot { version: 1, state: Bytes::from(state), timers }))
    }
}
