//! The types of what a plugin exports, compared with the interface before anything of it is instantiated. The generated
//! bindings look for the names alone at that time, and compare types only after the plugin's own start functions ran.

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{ComponentNamedList, InstancePre, Lift, Lower, Resource};
use wasmtime::error::Context as _;

use crate::bindings::exported::{janitor, plugin, writer};
use crate::bindings::imported::types as w;
use crate::host::State;
use crate::host::rows::HostBatch;
use crate::screen::export_name;

type Answer<T> = (Result<T, w::Error>,);

/// Compares every function of the four exported interfaces. The error names the first that differs.
pub(crate) fn check(pre: &InstancePre<State>) -> wasmtime::Result<()> {
    let of = |interface| Export { pre, interface };
    of("plugin").takes::<(), (plugin::Description,)>("describe")?;

    let writer = of("writer");
    writer.takes::<(&w::Ctx, w::KeyRange, &[w::WriterState]), Answer<()>>("open")?;
    writer.takes::<(&w::Ctx, &w::Part), Answer<()>>("begin")?;
    writer.takes::<(&w::Ctx, Resource<HostBatch>), Answer<Vec<w::Reject>>>("write")?;
    writer.takes::<(&w::Ctx,), Answer<writer::Prepared>>("prepare")?;

    let committer = of("committer");
    committer.takes::<(&w::Ctx,), Answer<w::Position>>("observe")?;
    committer.takes::<(&w::Ctx, &w::Position), Answer<w::Position>>("fence")?;
    committer.takes::<(&w::Ctx, &[w::Part], &[w::Committable]), Answer<Vec<w::Outcome>>>("commit")?;
    committer.takes::<(&w::Ctx, &[w::Committable]), Answer<Vec<w::Outcome>>>("reconcile")?;

    let janitor = of("janitor");
    janitor.takes::<(&w::Ctx, &[janitor::Unsealed]), Answer<Vec<w::Outcome>>>("abandon")?;
    janitor.takes::<(&w::Ctx, &[w::External]), Answer<Vec<w::Outcome>>>("release")?;
    janitor.takes::<(&w::Ctx, &str, Option<&str>), Answer<janitor::OrphanPage>>("list-orphans")
}

struct Export<'a> {
    pre: &'a InstancePre<State>,
    interface: &'static str,
}

impl Export<'_> {
    fn takes<Params, Return>(&self, function: &str) -> wasmtime::Result<()>
    where
        Params: ComponentNamedList + Lower,
        Return: ComponentNamedList + Lift,
    {
        let name = export_name(self.interface);
        let component = self.pre.component();
        let instance = component.get_export_index(None, name.as_str());
        let found = instance.and_then(|instance| component.get_export(Some(&instance), function));
        match found {
            Some((ComponentItem::ComponentFunc(found), _)) => found
                .typecheck::<Params, Return>(&self.pre.instance_type())
                .with_context(|| format!("`{function}` of {name} has another type")),
            Some(_) => Err(wasmtime::Error::msg(format!("`{function}` of {name} is not a function"))),
            None => Err(wasmtime::Error::msg(format!("{name} has no `{function}`"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Whoever adds a function to the interface adds its check.
    #[test]
    fn every_function_of_the_exported_interfaces_is_compared() {
        let wit = include_str!("../../../wit/0.1/sink.wit");
        let checks = include_str!("exports.rs");
        let mut declared = BTreeSet::new();
        for interface in ["plugin", "writer", "committer", "janitor"] {
            let (_, body) = wit.split_once(&format!("\ninterface {interface} {{")).unwrap();
            let (body, _) = body.split_once("\n}").unwrap();
            let functions = body.lines().filter_map(|line| line.trim().split_once(": func(")).map(|(name, _)| name);
            declared.extend(functions);
        }
        assert!(declared.len() > 10, "{declared:?}");
        for function in declared {
            assert!(checks.contains(&format!(">(\"{function}\")")), "{function} is not compared");
        }
    }
}
