//! Places in the network granted to plugins: what goes into the seal, and whether they can be used.

use serde_json::{Map, Value, json};
use tidegate_protocol::ids::SinkId;
use tidegate_wasm::TlsStart;

use crate::config::{PipelineFile, Problem, SinkSection, TcpSection, TrustSection, of_sink};

/// As written: addresses, and files by their paths. Nothing of what is in the files.
pub(crate) fn bound(section: &SinkSection) -> Map<String, Value> {
    section.tcp.iter().map(|(name, place)| (name.clone(), bound_place(place))).collect()
}

fn bound_place(place: &TcpSection) -> Value {
    let mut bound = Map::new();
    bound.insert("address".to_owned(), format!("{}:{}", place.host, place.port).into());
    let tls = match place.tls {
        TlsStart::Off => "off",
        TlsStart::AtOnce => "at-once",
        TlsStart::WhenAsked => "when-asked",
    };
    bound.insert("tls".to_owned(), tls.into());
    bound.extend(bound_trust(&place.trust));
    if !place.allow.is_empty() {
        bound.insert("allow".to_owned(), place.allow.iter().map(ToString::to_string).collect());
    }
    Value::Object(bound)
}

/// What is there of it.
pub(crate) fn bound_trust(trust: &TrustSection) -> Map<String, Value> {
    let client = trust.client.as_ref();
    let values = [
        ("roots", trust.roots.as_ref().map(|roots| json!(roots.written))),
        ("client-cert", client.map(|(chain, _)| json!(chain.written))),
        ("client-key", client.map(|(_, key)| json!(key.written))),
        ("server-name", trust.server_name.as_ref().map(|name| json!(name))),
    ];
    values.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// Places whose files TLS cannot use. Nothing is looked up and nobody is called.
pub(crate) fn unusable(file: &PipelineFile, id: &SinkId, section: &SinkSection) -> Vec<Problem> {
    let problem = |(name, place): (&String, &TcpSection)| {
        let problem = place.grant().check().err()?;
        let message = format!("sink `{id}`: the place granted as `{name}` cannot be used: {problem}");
        let hint = "put the files there, readable for this user, or change the grant";
        Some(Problem::new(file.places.at(&of_sink(id, &["tcp", name])), message, vec![hint.to_owned()]))
    };
    section.tcp.iter().filter_map(problem).collect()
}
