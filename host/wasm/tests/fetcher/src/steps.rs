//! The steps.

use std::io::{Read as _, Write as _};

use serde::Deserialize;
use tidegate_sdk::Error;
use tidegate_sdk::http::{Request, Response, Upload};

use crate::raw;

/// One step.
#[derive(Deserialize)]
pub(crate) struct Step {
    /// What to do.
    #[serde(rename = "do")]
    pub(crate) act: String,
    #[serde(default)]
    pub(crate) method: String,
    #[serde(default)]
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) headers: Vec<(String, String)>,
    #[serde(default)]
    pub(crate) body: String,
    #[serde(default)]
    pub(crate) trailers: Vec<(String, String)>,
    #[serde(default)]
    pub(crate) count: usize,
}

/// What stays between two steps and between two calls.
#[derive(Default)]
pub(crate) struct Held {
    uploads: Vec<Upload>,
    answers: Vec<Response>,
}

impl Held {
    pub(crate) fn take(&mut self, step: &Step) -> String {
        let said = match step.act.as_str() {
            "send" => step.request().send(step.body.as_bytes()).map(|answer| self.show(answer, step)),
            "trailers" => self.with_trailers(step),
            "begin" => step.request().begin().map(|upload| {
                self.uploads.push(upload);
                "begun".to_owned()
            }),
            "write" => self.write(step.body.as_bytes()),
            "write-many" => self.write(&vec![b'x'; step.count]),
            "finish" => self.uploads.pop().ok_or_else(nothing).and_then(Upload::finish).map(|a| self.show(a, step)),
            "drop" => {
                self.uploads.clear();
                self.answers.clear();
                Ok("dropped".to_owned())
            }
            "hold-many" => self.hold_many(step),
            "loop" => loop {
                std::hint::black_box(0);
            },
            "nap" => {
                std::thread::sleep(std::time::Duration::from_secs(3600));
                Ok("awake".to_owned())
            }
            "trap" => panic!("as the step says"),
            _ => Ok(raw::take(step)),
        };
        said.unwrap_or_else(|error| format!("{:?} {}: {}", error.kind, error.code, error.message))
    }

    /// Status, the fields that were asked for, the body.
    fn show(&mut self, mut answer: Response, step: &Step) -> String {
        let mut said = answer.status().to_string();
        for (name, _) in &step.trailers {
            let values: Vec<_> = answer.header(name).iter().map(|v| String::from_utf8_lossy(v).into_owned()).collect();
            said.push_str(&format!(" {name}={}", values.join(",")));
        }
        match step.act.as_str() {
            "hold" => self.answers.push(answer),
            _ => {
                let mut read = Vec::new();
                let end = answer.read_to_end(&mut read).err().map(|error| format!(" lost: {error}"));
                let body = if read.len() > 200 { format!("{} bytes", read.len()) } else { text(&read) };
                said.push_str(&format!(" {body}{}", end.unwrap_or_default()));
            }
        }
        said
    }

    fn with_trailers(&mut self, step: &Step) -> Result<String, Error> {
        let mut upload = step.request().begin()?;
        upload.write_all(step.body.as_bytes()).map_err(tidegate_sdk::tcp::lost)?;
        let trailers: Vec<_> =
            step.trailers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect();
        let answer = upload.finish_with(&trailers)?;
        let status = answer.status();
        let came: Vec<_> = answer.trailers()?.iter().map(|(name, value)| format!("{name}={}", text(value))).collect();
        Ok(format!("{status} {}", came.join(",")))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<String, Error> {
        let upload = self.uploads.last_mut().ok_or_else(nothing)?;
        upload.write_all(bytes).map_err(tidegate_sdk::tcp::lost)?;
        Ok("written".to_owned())
    }

    fn hold_many(&mut self, step: &Step) -> Result<String, Error> {
        for _ in 0..step.count {
            self.answers.push(step.request().send(b"")?);
        }
        Ok(self.answers.len().to_string())
    }
}

fn nothing() -> Error {
    Error::permanent("nothing", "nothing was begun")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Step {
    fn request(&self) -> Request {
        let method = if self.method.is_empty() { "GET" } else { &self.method };
        let start = Request::new(method, &self.url);
        self.headers.iter().fold(start, |request, (name, value)| request.header(name, value.as_bytes()))
    }
}
