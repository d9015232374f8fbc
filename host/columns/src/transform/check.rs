//! What an expression may not hold: told from its text, where the words for it are best known.

use std::ops::ControlFlow;

use datafusion_expr::planner::ContextProvider;
use datafusion_sql::sqlparser::ast::{BinaryOperator, Expr, Function, Query, Value, Visit, Visitor};

use super::functions::Functions;

/// How deep an expression may be nested; a chain of `n` operators is nested `n` deep. The passes over it, and its
/// evaluation, recurse.
const MAX_DEPTH: usize = 256;

/// Functions that see many rows. A list for better words only: none of them is known to the planner.
const AGGREGATES: [&str; 24] = [
    "approx_distinct",
    "approx_median",
    "array_agg",
    "avg",
    "bool_and",
    "bool_or",
    "count",
    "first_value",
    "grouping",
    "last_value",
    "max",
    "mean",
    "median",
    "min",
    "nth_value",
    "rank",
    "row_number",
    "stddev",
    "string_agg",
    "sum",
    "total",
    "var",
    "variance",
    "var_pop",
];

/// Refuses what no expression may hold.
pub(super) fn check(expr: &Expr) -> Result<(), String> {
    match expr.visit(&mut Check { depth: 0 }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(message) => Err(message),
    }
}

struct Check {
    depth: usize,
}

impl Visitor for Check {
    type Break = String;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        ControlFlow::Break(format!("({query}) is a subquery; a transform sees one row at a time, and no tables"))
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return ControlFlow::Break(format!(
                "it is nested more than {MAX_DEPTH} deep; many alternatives for one column are shorter as column IN (…)"
            ));
        }
        match expr {
            Expr::Function(function) => check_function(function),
            Expr::BinaryOp { op: BinaryOperator::BitwiseXor, .. } => ControlFlow::Break(
                "`^` is a power in some dialects of SQL and exclusive or in others; write power(a, b), or (a | b) - (a & b)"
                    .to_owned(),
            ),
            Expr::Value(value) => match &value.value {
                Value::Placeholder(name) => ControlFlow::Break(format!(
                    "{name} is a parameter, and there is nothing that gives it a value; write the value itself"
                )),
                _ => ControlFlow::Continue(()),
            },
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, _expr: &Expr) -> ControlFlow<String> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}

fn check_function(function: &Function) -> ControlFlow<String> {
    let name = function.name.to_string();
    if function.over.is_some() {
        return ControlFlow::Break(format!(
            "{name} OVER (…) is a window function: it looks at many rows, and a transform sees one row at a time"
        ));
    }
    if AGGREGATES.iter().any(|a| a.eq_ignore_ascii_case(&name)) {
        return ControlFlow::Break(format!(
            "{name}(…) is an aggregate: it looks at many rows, and a transform sees one row at a time"
        ));
    }
    let functions = Functions::get();
    if functions.get_function_meta(&name).is_none() {
        let near =
            functions.udf_names().into_iter().min_by_key(|n| strsim::damerau_levenshtein(n, &name.to_lowercase()));
        let near = near.map(|n| format!("; the nearest is {n}()")).unwrap_or_default();
        return ControlFlow::Break(format!("there is no function {name}(){near}"));
    }
    ControlFlow::Continue(())
}
