//! What a plugin asks for, compared with what an operator grants: the one place where that is done, for every kind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tidegate_protocol::plugin::{Description, GrantRequest, Role};

/// What can be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GrantKind {
    /// A directory.
    Dir,
    /// A host and port to connect to.
    Tcp,
    /// Requests to one service.
    Http,
    /// A value that nobody else may see.
    Secret,
}

impl GrantKind {
    /// All of them.
    pub const ALL: [GrantKind; 4] = [Self::Dir, Self::Tcp, Self::Http, Self::Secret];

    /// Its name in the interface.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dir => "dir",
            Self::Tcp => "tcp",
            Self::Http => "http",
            Self::Secret => "secret",
        }
    }

    /// Its table below the sink's in a pipeline file.
    pub fn table(self) -> &'static str {
        match self {
            Self::Dir => "dirs",
            Self::Tcp => "tcp",
            Self::Http => "http",
            Self::Secret => "secrets",
        }
    }

    /// The kind of that name in the interface.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The kind without which an import is of no use; `None`: it needs none.
    pub fn of_import(import: &str) -> Option<Self> {
        let interface = import.split_once('@').map_or(import, |(interface, _)| interface);
        match interface {
            "tidegate:sink/tcp" => Some(Self::Tcp),
            "tidegate:sink/secrets" => Some(Self::Secret),
            _ if interface.starts_with("wasi:sockets/") => Some(Self::Tcp),
            _ if interface.starts_with("wasi:http/") => Some(Self::Http),
            _ if interface.starts_with("wasi:filesystem/") => Some(Self::Dir),
            _ => None,
        }
    }
}

impl fmt::Display for GrantKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Names of what an operator grants, by kind.
#[derive(Debug, Clone, Default)]
pub struct GrantedNames(BTreeMap<GrantKind, BTreeSet<String>>);

impl GrantedNames {
    /// And these, of one kind.
    #[must_use]
    pub fn with<'a>(mut self, kind: GrantKind, names: impl IntoIterator<Item = &'a String>) -> Self {
        self.0.entry(kind).or_default().extend(names.into_iter().cloned());
        self
    }

    fn of(&self, kind: GrantKind) -> impl Iterator<Item = &String> {
        self.0.get(&kind).into_iter().flatten()
    }
}

/// Something in which plugin and operator do not agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantProblem {
    /// The plugin asks for something that no host of this version can grant.
    NoSuchKind {
        /// Its word for the kind.
        kind: String,
        /// Its name for it.
        name: String,
    },
    /// The plugin asks for it, and it is not granted.
    Missing {
        /// Of what kind.
        kind: GrantKind,
        /// The plugin's name for it.
        name: String,
        /// The roles that need it.
        roles: Vec<Role>,
        /// Why, in the plugin's words.
        reason: String,
    },
    /// It is granted, and the plugin does not ask for it.
    NotAsked {
        /// Of what kind.
        kind: GrantKind,
        /// The operator's name for it.
        name: String,
        /// What the plugin asks for of that kind.
        asked: Vec<String>,
    },
}

impl fmt::Display for GrantProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchKind { kind, name } => {
                write!(f, "asks for {kind} `{name}`, and there is nothing of that kind to be granted here")
            }
            Self::Missing { kind, name, roles, reason } => {
                let roles: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
                write!(f, "asks for the {kind} `{name}` as {}: {reason}", roles.join(", "))
            }
            Self::NotAsked { kind, name, .. } => write!(f, "does not ask for a {kind} `{name}`"),
        }
    }
}

/// Everything in which they do not agree: what is missing first, in the plugin's order. Empty: they do.
pub fn compare_grants(description: &Description, given: &GrantedNames) -> Vec<GrantProblem> {
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    let same = |a: &GrantRequest, b: &GrantRequest| (&a.kind, &a.name) == (&b.kind, &b.name);
    let missing = |request: &GrantRequest| {
        let (kind, name) = (request.kind.clone(), request.name.clone());
        let Some(kind) = GrantKind::parse(&kind) else { return Some(GrantProblem::NoSuchKind { kind, name }) };
        if given.of(kind).any(|given| *given == name) {
            return None;
        }
        let roles = description.grants.iter().filter(|other| same(other, request)).map(|other| other.role).collect();
        Some(GrantProblem::Missing { kind, name, roles, reason: request.reason.clone() })
    };
    let mut problems: Vec<_> = description
        .grants
        .iter()
        .filter(|request| seen.insert((&request.kind, &request.name)))
        .filter_map(missing)
        .collect();
    for kind in GrantKind::ALL {
        let asked: BTreeSet<&String> =
            description.grants.iter().filter(|request| request.kind == kind.as_str()).map(|r| &r.name).collect();
        let extra = given.of(kind).filter(|name| !asked.contains(name));
        problems.extend(extra.map(|name| GrantProblem::NotAsked {
            kind,
            name: name.clone(),
            asked: asked.iter().map(|name| (*name).clone()).collect(),
        }));
    }
    problems
}

/// Imports that are of no use without a grant of a kind that the plugin asks for nothing of: every use of them is denied.
/// Languages with a runtime of their own import whatever that runtime knows.
pub fn imports_not_asked_for<'a>(imports: &'a [String], description: &Description) -> Vec<(&'a str, GrantKind)> {
    let asked = |kind: GrantKind| description.grants.iter().any(|request| request.kind == kind.as_str());
    let lone = |import: &'a String| {
        let kind = GrantKind::of_import(import).filter(|kind| !asked(*kind))?;
        Some((import.as_str(), kind))
    };
    imports.iter().filter_map(lone).collect()
}

/// Requests of kinds for which the plugin imports nothing with which it could use them.
pub fn requests_not_imported<'a>(imports: &[String], description: &'a Description) -> Vec<&'a GrantRequest> {
    let imported: BTreeSet<&str> =
        imports.iter().filter_map(|import| GrantKind::of_import(import)).map(GrantKind::as_str).collect();
    description.grants.iter().filter(|request| !imported.contains(request.kind.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_protocol::plugin::{Abilities, AtomicScope, Encoding, Orphans, Visibility};

    use super::*;

    fn description(grants: &[(Role, &str, &str)]) -> Description {
        let request = |(role, kind, name): &(Role, &str, &str)| GrantRequest {
            role: *role,
            kind: (*kind).to_owned(),
            name: (*name).to_owned(),
            reason: "rows go there".to_owned(),
        };
        Description {
            name: "p".into(),
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

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn every_kind_is_compared_in_both_directions() {
        use Role::{Committer, Writer};
        for kind in GrantKind::ALL {
            let asks = description(&[(Writer, kind.as_str(), "a"), (Committer, kind.as_str(), "a")]);
            assert_eq!(compare_grants(&asks, &GrantedNames::default().with(kind, &names(&["a"]))), []);
            let problems = compare_grants(&asks, &GrantedNames::default().with(kind, &names(&["b"])));
            let [missing, extra] = &problems[..] else { panic!("{problems:?}") };
            assert_eq!(missing.to_string(), format!("asks for the {kind} `a` as writer, committer: rows go there"));
            assert_eq!(*extra, GrantProblem::NotAsked { kind, name: "b".into(), asked: names(&["a"]) });
            // The same name of another kind is another thing.
            let other = GrantKind::ALL.into_iter().find(|other| *other != kind).unwrap();
            assert_eq!(compare_grants(&asks, &GrantedNames::default().with(other, &names(&["a"]))).len(), 2);
        }
    }

    #[test]
    fn a_kind_that_nobody_knows_cannot_be_granted() {
        let problems = compare_grants(&description(&[(Role::Writer, "udp", "a")]), &GrantedNames::default());
        assert_eq!(problems, [GrantProblem::NoSuchKind { kind: "udp".into(), name: "a".into() }]);
    }

    #[test]
    fn imports_and_requests_are_held_against_each_other() {
        let imports = names(&[
            "tidegate:sink/log@0.1.0",
            "tidegate:sink/secrets@0.1.0",
            "wasi:filesystem/types@0.2.0",
            "wasi:io/streams@0.2.0",
            "wasi:sockets/tcp@0.2.3",
            "wasi:sockets/udp@0.2.3",
        ]);
        let asks = description(&[(Role::Writer, "dir", "a"), (Role::Writer, "http", "b")]);
        let lone: Vec<_> = imports_not_asked_for(&imports, &asks);
        assert_eq!(
            lone,
            [
                ("tidegate:sink/secrets@0.1.0", GrantKind::Secret),
                ("wasi:sockets/tcp@0.2.3", GrantKind::Tcp),
                ("wasi:sockets/udp@0.2.3", GrantKind::Tcp),
            ]
        );
        let idle: Vec<_> = requests_not_imported(&imports, &asks).into_iter().map(|r| r.name.as_str()).collect();
        assert_eq!(idle, ["b"]);
    }
}
