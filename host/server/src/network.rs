//! Places in the network granted to plugins: what goes into the seal, and whether they can be used.

use serde_json::{Map, Value, json};
use tidegate_protocol::ids::SinkId;
use tidegate_wasm::TlsStart;

use crate::config::{
    AuthSection, HttpSection, PipelineFile, Problem, SecretSource, SinkSection, TcpSection, TrustSection, of_sink,
};

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

/// As written: addresses, credentials by reference, and files by their paths. Nothing of what is in the files.
pub(crate) fn bound_services(section: &SinkSection) -> Map<String, Value> {
    section.http.iter().map(|(name, service)| (name.clone(), bound_service(service))).collect()
}

fn bound_service(service: &HttpSection) -> Value {
    let mut bound = Map::new();
    // For messages about changes, as for places.
    bound.insert("address".to_owned(), service.url.clone().into());
    bound.extend(bound_trust(&service.trust));
    let auth: Map<String, Value> =
        service.auth.secrets().into_iter().map(|(key, secret)| (key.to_owned(), secret.bound())).collect();
    let spoken = match &service.auth {
        AuthSection::None | AuthSection::Bearer(_) => Map::new(),
        AuthSection::Basic(user, _) => Map::from_iter([("user".to_owned(), json!(user))]),
        AuthSection::SigV4 { service, region, .. } => {
            Map::from_iter([("service".to_owned(), json!(service)), ("region".to_owned(), json!(region))])
        }
    };
    let auth: Map<_, _> = auth.into_iter().chain(spoken).collect();
    if !auth.is_empty() {
        bound.insert("auth".to_owned(), Value::Object(auth));
    }
    if service.http2_only {
        bound.insert("http2".to_owned(), "only".into());
    }
    if !service.allow.is_empty() {
        bound.insert("allow".to_owned(), service.allow.iter().map(ToString::to_string).collect());
    }
    Value::Object(bound)
}

/// Places whose files TLS cannot use. Nothing is looked up and nobody is called.
pub(crate) fn unusable(file: &PipelineFile, id: &SinkId, section: &SinkSection) -> Vec<Problem> {
    let problem = |(name, place): (&String, &TcpSection)| {
        let problem = place.grant().check().err()?;
        let message = format!("sink `{id}`: the place granted as `{name}` cannot be used: {problem}");
        let hint = "put the files there, readable for this user, or change the grant";
        Some(Problem::new(file.places.at(&of_sink(id, &["tcp", name])), message, vec![hint.to_owned()]))
    };
    let services = section.http.iter().flat_map(|(name, service)| unusable_service(file, id, name, service));
    section.tcp.iter().filter_map(problem).chain(services).collect()
}

/// What is wrong with one service: files that TLS cannot use, and credentials that are not there.
fn unusable_service(file: &PipelineFile, id: &SinkId, name: &str, service: &HttpSection) -> Vec<Problem> {
    let problem = |detail: String, hint: &str| {
        let message = format!("sink `{id}`: the service granted as `{name}` cannot be used: {detail}");
        Problem::new(file.places.at(&of_sink(id, &["http", name])), message, vec![hint.to_owned()])
    };
    let files = service.grant().check().err();
    let files = files.map(|detail| problem(detail, "put the files there, readable for this user, or change the grant"));
    let secrets = service.auth.secrets().into_iter().filter_map(|(key, source)| match source {
        SecretSource::Env(variable) if std::env::var_os(variable).is_none() => Some(problem(
            format!("the environment has no variable {variable} for its `{key}`"),
            "set it for this process",
        )),
        SecretSource::File { path, .. } if !path.is_file() => Some(problem(
            format!("there is no file {} for its `{key}`", path.display()),
            "put the secret there, readable for this user",
        )),
        SecretSource::Env(_) | SecretSource::File { .. } => None,
    });
    files.into_iter().chain(secrets).collect()
}
