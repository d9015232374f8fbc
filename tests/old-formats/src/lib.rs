//! The folder of everything that a released version has stored: `cases/<what>/v<version>/<case>`, with what must come of
//! it in `expect.json`. A case is never changed; later versions read it or refuse it in words.
//!
//! ```json
//! {"reads": {…}}                                     what is read, at least: more may be there if it is empty
//! {"refuses": {"kind": "Damaged", "words": ["…"]}}   the error's kind, and words that its message holds
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// File that says what must come of a case.
const EXPECTATION: &str = "expect.json";

/// A stored thing.
#[derive(Debug)]
pub struct Case {
    /// Version of the format in which it is written.
    pub version: u32,
    /// Its folder.
    pub dir: PathBuf,
}

/// What came of a case.
pub type Found = Result<Value, Refused>;

/// It was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What the caller should do, as the error's kind is called.
    pub kind: String,
    /// The message for a person.
    pub message: String,
}

/// Where all cases are.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

/// Names of the folders in `dir`, in order. Anything else in it is an error.
pub fn folders(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            return Err(io::Error::other(format!("{} is no folder of cases", entry.path().display())));
        }
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// All cases of one stored thing, each version at least with one that is read and one that is refused.
///
/// # Errors
/// Says which folder is not as it should be, or which version is missing.
pub fn cases(what: &str, versions: impl IntoIterator<Item = u32>) -> Result<Vec<Case>, String> {
    let dir = root().join(what);
    let words = |error: io::Error| format!("{}: {error}", dir.display());
    let mut found = Vec::new();
    let mut there = BTreeSet::new();
    for folder in folders(&dir).map_err(words)? {
        let version = folder.strip_prefix('v').and_then(|number| number.parse().ok());
        let version: u32 = version.ok_or_else(|| format!("{what}/{folder} is not called v<version>"))?;
        there.insert(version);
        let names = folders(&dir.join(&folder)).map_err(words)?;
        found.extend(names.iter().map(|name| Case { version, dir: dir.join(&folder).join(name) }));
    }
    let known: BTreeSet<u32> = versions.into_iter().collect();
    if known != there {
        return Err(format!("the program knows versions {known:?} of {what}, and cases are kept of {there:?}"));
    }
    Ok(found)
}

/// Goes through cases of one stored thing and compares what comes of each with what must.
///
/// # Errors
/// All cases of which something else came, each with what.
pub fn check(
    what: &str,
    versions: impl IntoIterator<Item = u32>,
    mut read: impl FnMut(&Case) -> Found,
) -> Result<usize, String> {
    let cases = cases(what, versions)?;
    let mut wrong = Vec::new();
    let mut met: BTreeMap<u32, [usize; 2]> = BTreeMap::new();
    for case in &cases {
        let found = read(case);
        met.entry(case.version).or_default()[usize::from(found.is_err())] += 1;
        if let Err(why) = compare(case, &found) {
            wrong.push(format!("{}: {why}", case.dir.display()));
        }
    }
    let lacking = met.iter().filter(|(_, met)| met.contains(&0)).map(|(version, _)| version);
    wrong.extend(lacking.map(|version| format!("{what}/v{version} has not both a case that is read and one refused")));
    if wrong.is_empty() { Ok(cases.len()) } else { Err(wrong.join("\n")) }
}

/// Whether expectations that are missing are to be written down, for a person to judge.
pub fn writes_expectations() -> bool {
    std::env::var_os("TIDEGATE_WRITE_EXPECTATIONS").is_some()
}

fn compare(case: &Case, found: &Found) -> Result<(), String> {
    let file = case.dir.join(EXPECTATION);
    if !file.exists() && writes_expectations() {
        let text = serde_json::to_string_pretty(&expectation(found)).map_err(|error| error.to_string())?;
        fs::write(&file, text + "\n").map_err(|error| error.to_string())?;
    }
    let text = fs::read(&file).map_err(|error| {
        format!(
            "{EXPECTATION}: {error}; without it nothing is checked. TIDEGATE_WRITE_EXPECTATIONS=1 writes down what comes \
             of it today, for you to judge"
        )
    })?;
    let expected: Value = serde_json::from_slice(&text).map_err(|error| format!("{EXPECTATION}: {error}"))?;
    let fields: Vec<&String> = expected.as_object().map(|map| map.keys().collect()).unwrap_or_default();
    match (fields.iter().map(|field| field.as_str()).collect::<Vec<_>>().as_slice(), found) {
        (["reads"], Ok(found)) => covers(&expected["reads"], found, "it"),
        (["refuses"], Err(refused)) => refused_as(&expected["refuses"], refused),
        (["reads"], Err(refused)) => Err(format!("it must be read, and was refused ({})", refused.message)),
        (["refuses"], Ok(_)) => Err("it must be refused, and was read".to_owned()),
        _ => Err(format!("{EXPECTATION} has {fields:?}, expected `reads` or `refuses`")),
    }
}

fn expectation(found: &Found) -> Value {
    match found {
        Ok(value) => json!({ "reads": value }),
        Err(refused) => json!({ "refuses": { "kind": refused.kind, "words": [refused.message] } }),
    }
}

fn refused_as(expected: &Value, refused: &Refused) -> Result<(), String> {
    if expected["kind"] != refused.kind.as_str() {
        return Err(format!("refused as {}, expected as {}", refused.kind, expected["kind"]));
    }
    let words = expected["words"].as_array().filter(|words| !words.is_empty()).ok_or("`words` names none")?;
    for word in words {
        let word = word.as_str().filter(|word| word.len() > 3).ok_or("a word is a text of more than three letters")?;
        if !refused.message.contains(word) {
            return Err(format!("refused with the words `{}`, which lack `{word}`", refused.message));
        }
    }
    Ok(())
}

/// Whether `found` says all that `expected` says. Fields that came later may be there if they say nothing.
fn covers(expected: &Value, found: &Value, place: &str) -> Result<(), String> {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            for (key, value) in expected {
                let found = found.get(key).ok_or_else(|| format!("{place}.{key} is not there"))?;
                covers(value, found, &format!("{place}.{key}"))?;
            }
            let more = found.iter().find(|(key, value)| !expected.contains_key(*key) && !is_empty(value));
            more.map_or(Ok(()), |(key, value)| Err(format!("{place}.{key} is {value}, and was never stored")))
        }
        (Value::Array(expected), Value::Array(found)) => {
            if expected.len() != found.len() {
                return Err(format!("{place} has {} entries, expected {}", found.len(), expected.len()));
            }
            let mut pairs = expected.iter().zip(found).enumerate();
            pairs.try_for_each(|(at, (expected, found))| covers(expected, found, &format!("{place}[{at}]")))
        }
        _ if expected == found => Ok(()),
        _ => Err(format!("{place} is {found}, expected {expected}")),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) => false,
    }
}

/// A value with its long byte strings, which JSON spells as numbers, as digests.
pub fn without_long_bytes(value: Value) -> Value {
    match value {
        Value::Array(list) => {
            let byte = |value: &Value| value.as_u64().and_then(|number| u8::try_from(number).ok());
            match list.iter().map(byte).collect::<Option<Vec<u8>>>() {
                Some(bytes) if bytes.len() >= 32 => json!({ "bytes": bytes.len(), "sha256": sha256(&bytes) }),
                _ => list.into_iter().map(without_long_bytes).collect(),
            }
        }
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, without_long_bytes(value))).collect(),
        other => other,
    }
}

/// SHA-256 in hex.
pub fn sha256(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(bytes))
}

/// All files below a directory with their contents; only names where something cannot be read.
///
/// # Errors
/// The directory cannot be read.
pub fn tree(dir: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let (mut found, mut waiting) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap_or(&path).to_string_lossy().into_owned();
                found.insert(name, fs::read(&path)?);
            }
        }
    }
    Ok(found)
}

/// Copies a case's files, without its expectation, to where they may be changed.
///
/// # Errors
/// The system refused.
pub fn copy(case: &Case, to: &Path) -> io::Result<()> {
    for (name, bytes) in tree(&case.dir)?.into_iter().filter(|(name, _)| name != EXPECTATION) {
        let path = to.join(name);
        fs::create_dir_all(path.parent().unwrap_or(to))?;
        fs::write(path, bytes)?;
    }
    Ok(())
}
