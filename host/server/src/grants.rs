//! What a sink's section grants, against what its plugin asks for, in the words of the pipeline file: which key is
//! missing, which one nobody asks for, and what was perhaps meant.

use tidegate_protocol::ids::SinkId;
use tidegate_protocol::plugin::Description;
use tidegate_wasm::{GrantKind, GrantProblem, GrantedNames, compare_grants};

use crate::config::{PipelineFile, Problem, SecretSource, SinkSection, of_sink, suggest};
use crate::network;

/// Names of what the section grants.
fn given(section: &SinkSection) -> GrantedNames {
    GrantedNames::default()
        .with(GrantKind::Dir, section.dirs.keys())
        .with(GrantKind::Tcp, section.tcp.keys())
        .with(GrantKind::Http, section.http.keys())
        .with(GrantKind::Secret, section.secrets.keys())
}

/// What a person writes to grant something of a kind.
fn example(kind: GrantKind, name: &str, id: &SinkId) -> String {
    let table = of_sink(id, &[kind.table()]).join(".");
    match kind {
        GrantKind::Dir => format!("add {name} = \"PATH\" to [{table}]"),
        GrantKind::Secret => format!("add {name} = {{ env = \"NAME\" }} to [{table}]"),
        GrantKind::Tcp => format!("add [{table}.{name}] with address = \"HOST:PORT\" and tls = \"at-once\""),
        GrantKind::Http => format!("add [{table}.{name}] with url = \"https://HOST/\""),
    }
}

/// Everything in which operator and plugin do not mean the same, and every secret that is not there.
pub(crate) fn check(
    file: &PipelineFile,
    id: &SinkId,
    section: &SinkSection,
    description: &Description,
) -> Vec<Problem> {
    let plugin = &description.name;
    let say = |keys: &[&str], problem: String, hint: String| {
        Problem::new(file.places.at(&of_sink(id, keys)), format!("sink `{id}`: {problem}"), vec![hint])
    };
    let problems = compare_grants(description, &given(section)).into_iter().map(|problem| {
        let words = format!("the plugin {plugin} {problem}");
        match problem {
            GrantProblem::NoSuchKind { .. } => {
                say(&["plugin"], words, "use another version of tidegate, or of the plugin".to_owned())
            }
            GrantProblem::Missing { kind, name, .. } => say(&[kind.table()], words, example(kind, &name, id)),
            GrantProblem::NotAsked { kind, name, asked } => {
                let asked: Vec<_> = asked.iter().map(String::as_str).collect();
                let hint = if asked.is_empty() { format!("it asks for no {kind}") } else { suggest(&name, &asked) };
                say(&[kind.table(), &name], words, hint)
            }
        }
    });
    let mut problems: Vec<_> = problems.collect();
    for (name, source) in &section.secrets {
        match source {
            SecretSource::Env(variable) if std::env::var_os(variable).is_none() => {
                let problem = format!("the secret `{name}` is not there: the environment has no variable {variable}");
                problems.push(say(&["secrets", name], problem, "set it for this process".to_owned()));
            }
            SecretSource::File { path, .. } => {
                if let Err(error) = tidegate_wasm::open_file(path) {
                    let problem = format!("the secret `{name}` cannot be read from {}: {error}", path.display());
                    let hint = "put the secret there, readable for this user";
                    problems.push(say(&["secrets", name], problem, hint.to_owned()));
                }
            }
            SecretSource::Env(_) => {}
        }
    }
    problems.extend(network::unusable(file, id, section));
    problems
}

#[cfg(test)]
mod tests {
    use tidegate_protocol::plugin::{Abilities, AtomicScope, Encoding, GrantRequest, Orphans, Role, Visibility};

    use super::*;

    fn asking(grants: &[(&str, &str)]) -> Description {
        let request = |(kind, name): &(&str, &str)| GrantRequest {
            role: Role::Writer,
            kind: (*kind).to_owned(),
            name: (*name).to_owned(),
            reason: "rows go there".to_owned(),
        };
        Description {
            name: "pg".into(),
            version: "1".into(),
            config_schema: "{}".into(),
            encodings: vec![Encoding::Raw],
            abilities: Abilities {
                staging: true,
                idempotent_commit: true,
                marker_retention: None,
                marker_survives_foreign_writers: true,
                observe: true,
                fence: true,
                reconcile: true,
                atomic_scope: AtomicScope::Participant,
                visibility: Visibility::PerParticipant,
                max_open_epochs: 1,
                upsert_keys: false,
                prepared_ttl: None,
                max_idle: None,
                names_per_day: None,
                orphans: Orphans::Listable,
            },
            committable_versions: vec![1],
            grants: grants.iter().map(request).collect(),
            needs: vec![],
        }
    }

    /// All problems of a sink with these tables, a line each, with their hints.
    fn said(tables: &str, grants: &[(&str, &str)]) -> Vec<String> {
        let text = format!(
            "[pipeline]\nname = \"p\"\nstate = \"s\"\n[sources.g]\nkind = \"generate\"\n[sinks.out]\nplugin = \
             \"x.wasm\"\n{tables}"
        );
        let file = crate::config::parse(&text, "p.toml".as_ref(), "/b".as_ref()).unwrap();
        let (id, section) = file.sinks.first_key_value().unwrap();
        let problems = check(&file, id, section, &asking(grants));
        problems.into_iter().map(|problem| format!("{} / {}", problem.message, problem.hints.join(" / "))).collect()
    }

    #[test]
    fn what_is_missing_is_told_with_the_key_to_add_for_every_kind() {
        let asks = [("dir", "staging"), ("tcp", "server"), ("http", "api"), ("secret", "password")];
        assert_eq!(
            said("", &asks),
            [
                "sink `out`: the plugin pg asks for the dir `staging` as writer: rows go there / add staging = \"PATH\" to \
                 [sinks.out.dirs]",
                "sink `out`: the plugin pg asks for the tcp `server` as writer: rows go there / add [sinks.out.tcp.server] \
                 with address = \"HOST:PORT\" and tls = \"at-once\"",
                "sink `out`: the plugin pg asks for the http `api` as writer: rows go there / add [sinks.out.http.api] with \
                 url = \"https://HOST/\"",
                "sink `out`: the plugin pg asks for the secret `password` as writer: rows go there / add password = { env \
                 = \"NAME\" } to [sinks.out.secrets]",
            ]
        );
    }

    #[test]
    fn what_nobody_asks_for_is_told_with_the_nearest_name() {
        let tables = "[sinks.out.dirs]\nstagign = \"x\"\n";
        let said = said(tables, &[("dir", "staging")]);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[1].ends_with("does not ask for a dir `stagign` / did you mean `staging`?"), "{said:?}");
    }
}
