//! Steps past the SDK, without its care.

#[cfg(target_family = "wasm")]
pub(crate) use wasm::take;

#[cfg(not(target_family = "wasm"))]
pub(crate) fn take(step: &crate::steps::Step) -> String {
    format!("{} {} in the sandbox only", step.act, step.count)
}

#[cfg(target_family = "wasm")]
mod wasm {
    use tidegate_sdk::guest::bindings::wasi::http::outgoing_handler;
    use tidegate_sdk::guest::bindings::wasi::http::types::{Fields, OutgoingBody, OutgoingRequest, Scheme};

    use crate::steps::Step;

    pub(crate) fn take(step: &Step) -> String {
        match step.act.as_str() {
            "append-many" => append_many(step),
            "big-value" => format!("{:?}", Fields::new().append("x-big", &vec![b'x'; step.count])),
            "fields-many" => {
                let held: Vec<_> = (0..step.count).map(|_| full_fields()).collect();
                held.len().to_string()
            }
            "fields-empty" => (0..step.count).map(|_| Fields::new()).collect::<Vec<_>>().len().to_string(),
            "empty-writes" => empty_writes(step),
            "bare-drop" => bare_drop(step),
            "drop-futures" => drop_futures(step),
            "send-many" => send_many(step),
            _ => format!("no such step: {}", step.act),
        }
    }

    fn append_many(step: &Step) -> String {
        let fields = Fields::new();
        for _ in 0..step.count {
            if let Err(error) = fields.append("x-many", step.body.as_bytes()) {
                return format!("{error:?}");
            }
        }
        "appended".to_owned()
    }

    fn full_fields() -> Fields {
        let fields = Fields::new();
        fields.append("x-full", &vec![b'x'; 60_000]).expect("it fits");
        fields
    }

    fn outgoing(step: &Step) -> OutgoingRequest {
        let fields = Fields::new();
        for (name, value) in &step.headers {
            fields.append(name, value.as_bytes()).expect("allowed");
        }
        let request = OutgoingRequest::new(fields);
        let (scheme, rest) = step.url.split_once("://").expect("a URL");
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
        request.set_scheme(Some(&scheme)).expect("one");
        request.set_authority(Some(authority)).expect("one");
        request.set_path_with_query(Some(path)).expect("one");
        let method = tidegate_sdk::guest::bindings::wasi::http::types::Method::Post;
        request.set_method(&method).expect("one");
        request
    }

    /// Writes nothing, very often, then one byte.
    fn empty_writes(step: &Step) -> String {
        let request = outgoing(step);
        let body = request.body().expect("once");
        let stream = body.write().expect("once");
        let answer = outgoing_handler::handle(request, None).expect("granted");
        for _ in 0..step.count {
            stream.write(&[]).expect("open");
        }
        stream.blocking_write_and_flush(b"x").expect("open");
        drop(stream);
        OutgoingBody::finish(body, None).expect("open");
        answer.subscribe().block();
        match answer.get() {
            Some(Ok(Ok(head))) => head.status().to_string(),
            other => format!("{:?}", other.map(|answer| answer.map(|answer| answer.map(|_| ())))),
        }
    }

    /// Writes and lets go of the body without finishing it, but of nothing else, and waits for what comes of it.
    fn bare_drop(step: &Step) -> String {
        let request = outgoing(step);
        let body = request.body().expect("once");
        let stream = body.write().expect("once");
        let answer = outgoing_handler::handle(request, None).expect("granted");
        stream.blocking_write_and_flush(step.body.as_bytes()).expect("open");
        drop(stream);
        drop(body);
        answer.subscribe().block();
        match answer.get() {
            Some(Ok(Ok(head))) => head.status().to_string(),
            Some(Ok(Err(code))) => format!("{code:?}"),
            _ => "nothing".to_owned(),
        }
    }

    /// Sends requests and lets go of the answers before they can come.
    fn drop_futures(step: &Step) -> String {
        for _ in 0..step.count {
            drop(outgoing_handler::handle(outgoing(step), None).expect("granted"));
        }
        "dropped".to_owned()
    }

    /// Sends requests and keeps the answers to come.
    fn send_many(step: &Step) -> String {
        let held: Vec<_> =
            (0..step.count).map(|_| outgoing_handler::handle(outgoing(step), None).expect("granted")).collect();
        for answer in &held {
            answer.subscribe().block();
        }
        held.len().to_string()
    }
}
