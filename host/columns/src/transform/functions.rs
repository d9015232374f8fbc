//! What expressions may call: DataFusion's scalar functions, and nothing that needs a session around it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType, Field, FieldRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{DataFusionError, TableReference, plan_datafusion_err};
use datafusion_expr::planner::{ContextProvider, ExprPlanner, TypePlanner};
use datafusion_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, TableSource, WindowUDF};
use datafusion_sql::sqlparser::ast::DataType as SqlType;

use crate::schema::ddl;

/// Everything that the planner asks for.
pub(super) struct Functions {
    scalar: HashMap<String, Arc<ScalarUDF>>,
    planners: Vec<Arc<dyn ExprPlanner>>,
    types: Arc<dyn TypePlanner>,
    options: Arc<ConfigOptions>,
}

impl Functions {
    /// The one set of functions.
    pub(super) fn get() -> &'static Functions {
        static FUNCTIONS: LazyLock<Functions> = LazyLock::new(Functions::new);
        &FUNCTIONS
    }

    fn new() -> Self {
        let all = datafusion_functions::all_default_functions()
            .into_iter()
            .chain(datafusion_functions_nested::all_default_nested_functions());
        let mut scalar = HashMap::new();
        // The version of DataFusion is no property of a row; the others make lists of a length that data decides.
        for function in all.filter(|f| !["version", "range", "generate_series"].contains(&f.name())) {
            for name in function.aliases() {
                scalar.insert(name.clone(), Arc::clone(&function));
            }
            scalar.insert(function.name().to_owned(), function);
        }
        let mut options = ConfigOptions::default();
        // Instants are written in UTC, and read so where a text names no zone.
        options.execution.time_zone = Some("UTC".to_owned());
        Self {
            scalar,
            planners: vec![
                Arc::new(datafusion_functions_nested::planner::NestedFunctionPlanner),
                Arc::new(datafusion_functions_nested::planner::FieldAccessPlanner),
                Arc::new(datafusion_functions::core::planner::CoreFunctionPlanner::default()),
                Arc::new(datafusion_functions::datetime::planner::DatetimeFunctionPlanner),
                Arc::new(datafusion_functions::unicode::planner::UnicodeFunctionPlanner),
            ],
            types: Arc::new(Types),
            options: Arc::new(options),
        }
    }

    /// The options that functions are planned and called with.
    pub(super) fn config(&self) -> &Arc<ConfigOptions> {
        &self.options
    }
}

impl ContextProvider for Functions {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>, DataFusionError> {
        Err(plan_datafusion_err!("there are no tables here, and so no {name}"))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.planners
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::clone(&self.types))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.scalar.get(name).or_else(|| self.scalar.get(&name.to_ascii_lowercase())).cloned()
    }

    fn get_higher_order_meta(&self, _name: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, _name: &str) -> Option<Arc<AggregateUDF>> {
        None
    }

    fn get_window_meta(&self, _name: &str) -> Option<Arc<WindowUDF>> {
        None
    }

    fn get_variable_type(&self, _names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.options
    }

    fn udf_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.scalar.keys().cloned().collect();
        // The nearest of equally near names is always the same.
        names.sort_unstable();
        names
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// SQL types in expressions are those of column lists.
#[derive(Debug)]
struct Types;

impl TypePlanner for Types {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>, DataFusionError> {
        let data_type = ddl::arrow_type(sql_type).map_err(DataFusionError::Plan)?;
        Ok(Some(Arc::new(Field::new("", data_type, true))))
    }
}
