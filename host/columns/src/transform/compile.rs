//! From the text of an expression to something that can be evaluated over a batch.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Decimal128Type, Decimal256Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch, cast::AsArray};
use arrow_cast::display::array_value_to_string;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, DataFusionError, ScalarValue, SchemaError, plan_datafusion_err};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::expr::BinaryExpr as LogicalBinary;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::simplify::SimplifyContext;
use datafusion_expr::{Cast, Expr, ExprSchemable, Operator, Volatility};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use datafusion_physical_expr::expressions::BinaryExpr;
use datafusion_physical_expr::utils::collect_columns;
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion_sql::planner::{ParserOptions, PlannerContext, SqlToRel};
use datafusion_sql::sqlparser::ast::{
    CastKind, DataType as SqlType, ExactNumberInfo, Expr as SqlExpr, Value, visit_expressions_mut,
};

use super::check::check;
use super::functions::Functions;
use crate::schema::ddl::{self, TypeName};
use crate::schema::unknown_column;
use crate::sql;

/// Longest text or list that a function like `lpad` may make, in characters or items.
const MAX_LENGTH: i128 = 65_536;

/// Functions whose second argument says how long their result is.
const LENGTH_FUNCTIONS: [&str; 5] = ["repeat", "lpad", "rpad", "array_repeat", "array_resize"];

/// Compiles expressions over one set of columns.
pub(super) struct Compiler {
    schema: Arc<DFSchema>,
}

/// An expression with the type of its values.
pub(super) struct Compiled {
    expr: Arc<dyn PhysicalExpr>,
    data_type: DataType,
    nullable: bool,
}

/// An expression as it was read.
pub(super) struct Parsed {
    expr: SqlExpr,
    /// The name behind `AS`, or that of the column if the expression is nothing else.
    pub(super) name: Option<String>,
}

impl Compiler {
    /// For the columns of a schema.
    pub(super) fn new(schema: &arrow_schema::Schema) -> Result<Self, String> {
        let schema = DFSchema::try_from(schema.clone()).map_err(|e| plain(&e))?;
        Ok(Self { schema: Arc::new(schema) })
    }

    /// Compiles an expression.
    pub(super) fn compile(&self, parsed: Parsed) -> Result<Compiled, String> {
        self.finish(self.plan(parsed)?)
    }

    /// Compiles a column's cast to another type.
    pub(super) fn compile_cast(&self, column: &str, data_type: DataType) -> Result<Compiled, String> {
        let column = Expr::Column(datafusion_common::Column::new_unqualified(column));
        let field = Arc::new(Field::new("", data_type, true));
        self.finish(Expr::Cast(Cast::new_from_field(Box::new(column), field)))
    }

    fn plan(&self, parsed: Parsed) -> Result<Expr, String> {
        let options = ParserOptions::new()
            // Names are written as they are in the data.
            .with_enable_ident_normalization(false)
            // 0.1 is exact, as it is written. Numbers with an exponent are casts by now.
            .with_parse_float_as_decimal(true);
        let planner = SqlToRel::new_with_options(Functions::get(), options);
        let expr = planner
            .sql_to_expr(parsed.expr, &self.schema, &mut PlannerContext::new())
            .map_err(|e| self.plan_error(&e))?;
        refuse_volatile(&expr)?;
        Ok(expr)
    }

    /// Types, simplifies and lowers an expression.
    fn finish(&self, expr: Expr) -> Result<Compiled, String> {
        self.try_finish(expr).map_err(|e| self.plan_error(&e))
    }

    fn try_finish(&self, expr: Expr) -> Result<Compiled, DataFusionError> {
        let config = Functions::get().config();
        let context = SimplifyContext::builder()
            .with_schema(Arc::clone(&self.schema))
            .with_config_options(Arc::clone(config))
            .build();
        let simplifier = ExprSimplifier::new(context);
        let mut props = ExecutionProps::new();
        props.config_options = Some(Arc::clone(config));

        let expr = simplifier.coerce(expr, &self.schema)?;
        let expr = checked_negation(expr, &self.schema)?;
        let expr = fold_arithmetic(expr, &props)?;
        let expr = simplifier.simplify(expr)?;
        check_lengths(&expr)?;
        let physical = create_physical_expr(&expr, &self.schema, &props, &PhysicalPlanningContext::default())?;
        let physical = checked_arithmetic(physical)?;

        let computed = physical.data_type(self.schema.as_arrow())?;
        let data_type = column_type(&computed).ok_or_else(|| {
            if computed == DataType::Null {
                plan_datafusion_err!("it is always NULL and has no type; write CAST(NULL AS TEXT), or another type")
            } else {
                plan_datafusion_err!("its type is {computed}, which no column can have; cast it to another type")
            }
        })?;
        let nullable = physical.nullable(self.schema.as_arrow())?;
        Ok(Compiled { expr: physical, data_type, nullable })
    }

    fn plan_error(&self, error: &DataFusionError) -> String {
        let DataFusionError::SchemaError(schema_error, _) = error.find_root() else {
            return plain(error);
        };
        let SchemaError::FieldNotFound { field, .. } = schema_error.as_ref() else {
            return plain(error);
        };
        let hint = format!("; a text stands in single quotes: '{}'", field.name());
        unknown_column(field.name(), self.schema.fields()) + &hint
    }
}

impl Parsed {
    /// The column that the expression is, if it is nothing else.
    pub(super) fn column(&self) -> Option<&str> {
        match &self.expr {
            SqlExpr::Identifier(column) => Some(&column.value),
            _ => None,
        }
    }
}

impl Compiled {
    /// The type of the values.
    pub(super) fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// The column of this expression.
    pub(super) fn field(&self, name: &str) -> Field {
        Field::new(name, self.data_type.clone(), self.nullable)
    }

    /// Evaluates the expression for each row.
    ///
    /// # Errors
    ///
    /// Why it has no value for one of the rows.
    pub(super) fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef, String> {
        let array =
            self.expr.evaluate(batch).and_then(|value| value.into_array(batch.num_rows())).map_err(|e| plain(&e))?;
        let array = if array.data_type() == &self.data_type {
            array
        } else {
            let options = CastOptions { safe: false, ..CastOptions::default() };
            cast_with_options(&array, &self.data_type, &options).map_err(|e| e.to_string())?
        };
        // Arithmetic checks that a decimal fits its bits, not that it fits its digits.
        match &self.data_type {
            DataType::Decimal128(precision, _) => {
                array.as_primitive::<Decimal128Type>().validate_decimal_precision(*precision)
            }
            DataType::Decimal256(precision, _) => {
                array.as_primitive::<Decimal256Type>().validate_decimal_precision(*precision)
            }
            _ => Ok(()),
        }
        .map_err(|e| e.to_string())?;
        self.check_finite(batch, &array)?;
        if !self.nullable && array.null_count() > 0 {
            return Err("it is NULL, and NOT NULL was expected".to_owned());
        }
        Ok(array)
    }
}

impl Compiled {
    /// A number that is too large for its type is no infinity, unless one went in.
    fn check_finite(&self, batch: &RecordBatch, array: &ArrayRef) -> Result<(), String> {
        let Some(infinite) = infinite(array.as_ref()) else { return Ok(()) };
        let columns = collect_columns(&self.expr);
        for row in infinite {
            let one = columns.iter().filter_map(|column| batch.columns().get(column.index())).any(|input| {
                let text = array_value_to_string(input, row).unwrap_or_default();
                text.to_ascii_lowercase().contains("inf")
            });
            if !one {
                return Err(format!("the number is too large for {}", TypeName(&self.data_type)));
            }
        }
        Ok(())
    }
}

/// The rows with infinite numbers; `None` if there are none.
fn infinite(array: &dyn Array) -> Option<Vec<usize>> {
    let rows: Vec<usize> = match array.data_type() {
        DataType::Float32 => positions(array.as_primitive::<Float32Type>(), f32::is_infinite),
        DataType::Float64 => positions(array.as_primitive::<Float64Type>(), f64::is_infinite),
        _ => return None,
    };
    (!rows.is_empty()).then_some(rows)
}

fn positions<T: ArrowPrimitiveType>(values: &PrimitiveArray<T>, is: fn(T::Native) -> bool) -> Vec<usize> {
    let found = values.iter().enumerate().filter(|(_, value)| value.is_some_and(is));
    found.map(|(row, _)| row).collect()
}

/// Reads an expression, with a name behind `AS` where `named`.
pub(super) fn parse(text: &str, named: bool) -> Result<Parsed, String> {
    let mut parser = sql::parser(text)?;
    if sql::at_end(&parser) {
        return Err("it is empty".to_owned());
    }
    let mut read = parser.parse_expr_with_alias().map_err(sql::parse_error)?;
    if !sql::at_end(&parser) {
        return Err(format!("found {} behind the expression {}", parser.peek_token_ref(), read.expr));
    }
    if !named && let Some(alias) = &read.alias {
        return Err(format!("AS {alias} has no place here: the name is the key"));
    }
    check(&read.expr)?;
    doubles(&mut read.expr)?;
    let mut parsed = Parsed { expr: read.expr, name: None };
    parsed.name = match read.alias {
        Some(alias) => Some(alias.value),
        None => parsed.column().map(str::to_owned),
    };
    Ok(parsed)
}

/// Numbers with an exponent are `DOUBLE`, as in SQL: as decimals, which the planner reads, they would soon have more digits
/// than there are.
fn doubles(expr: &mut SqlExpr) -> Result<(), String> {
    let replaced = visit_expressions_mut(expr, |node| {
        let SqlExpr::Value(value) = node else { return ControlFlow::Continue(()) };
        let Value::Number(text, _) = &value.value else { return ControlFlow::Continue(()) };
        if !text.contains(['e', 'E']) {
            return ControlFlow::Continue(());
        }
        let text = text.clone();
        if !text.parse::<f64>().is_ok_and(f64::is_finite) {
            return ControlFlow::Break(format!("the number {text} is beyond what DOUBLE holds"));
        }
        value.value = Value::SingleQuotedString(text);
        *node = SqlExpr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(node.clone()),
            data_type: SqlType::Double(ExactNumberInfo::None),
            array: false,
            format: None,
        };
        ControlFlow::Continue(())
    });
    match replaced {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(message) => Err(message),
    }
}

/// The words of an error, without those that DataFusion puts before them.
fn plain(error: &DataFusionError) -> String {
    let message = match error.find_root() {
        DataFusionError::ArrowError(e, _) => e.to_string(),
        DataFusionError::Plan(m) | DataFusionError::Execution(m) | DataFusionError::NotImplemented(m) => m.clone(),
        other => other.strip_backtrace(),
    };
    message.lines().next().unwrap_or_default().to_owned()
}

/// Rows that are read again must come out the same.
fn refuse_volatile(expr: &Expr) -> Result<(), String> {
    let mut found = None;
    let walked = expr.apply(|node| match node {
        Expr::ScalarFunction(call) if call.func.signature().volatility != Volatility::Immutable => {
            found = Some(call.func.name().to_owned());
            Ok(TreeNodeRecursion::Stop)
        }
        _ => Ok(TreeNodeRecursion::Continue),
    });
    walked.map_err(|e| plain(&e))?;
    match found {
        Some(name) => Err(format!(
            "{name}() gives another value each time, so that rows which are read again after a crash would differ; \
             for the time at which a row is written there is columns = [\"_emitted_at\"]"
        )),
        None => Ok(()),
    }
}

/// A function that makes texts or lists of a given length must be given one that is known and not too large:
/// otherwise a row could ask for any amount of memory.
fn check_lengths(expr: &Expr) -> Result<(), DataFusionError> {
    expr.apply(|node| {
        let Expr::ScalarFunction(call) = node else {
            return Ok(TreeNodeRecursion::Continue);
        };
        let name = call.func.name();
        if !LENGTH_FUNCTIONS.contains(&name) {
            return Ok(TreeNodeRecursion::Continue);
        }
        let length = match call.args.get(1) {
            Some(Expr::Literal(value, _)) => value.to_string().parse::<i128>().ok(),
            _ => None,
        };
        match length {
            Some(n) if n <= MAX_LENGTH => Ok(TreeNodeRecursion::Continue),
            _ => Err(plan_datafusion_err!(
                "{name}(): the second argument must be a number that is written there, and at most {MAX_LENGTH}"
            )),
        }
    })?;
    Ok(())
}

/// `-x` of the smallest integer would be itself; `0 - x` is checked.
fn checked_negation(expr: Expr, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    let rewritten = expr.transform_up(|node| match node {
        Expr::Negative(operand) => {
            let data_type = operand.get_type(schema)?;
            if !data_type.is_integer() {
                return Ok(Transformed::no(Expr::Negative(operand)));
            }
            let zero = Expr::Literal(ScalarValue::new_zero(&data_type)?, None);
            Ok(Transformed::yes(Expr::BinaryExpr(LogicalBinary::new(Box::new(zero), Operator::Minus, operand))))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(rewritten.data)
}

/// Evaluates arithmetic of constants. The simplifier would do it too, but wraps around at the end of a type.
fn fold_arithmetic(expr: Expr, props: &ExecutionProps) -> Result<Expr, DataFusionError> {
    let schema = DFSchema::empty();
    let row = RecordBatch::try_new_with_options(
        Arc::clone(schema.inner()),
        Vec::new(),
        &arrow_array::RecordBatchOptions::new().with_row_count(Some(1)),
    )?;
    let folded = expr.transform_up(|node| {
        let constant = |e: &Expr| matches!(e, Expr::Literal(..));
        let Expr::BinaryExpr(LogicalBinary { left, op, right }) = &node else {
            return Ok(Transformed::no(node));
        };
        if !is_arithmetic(*op) || !constant(left) || !constant(right) {
            return Ok(Transformed::no(node));
        }
        let physical = create_physical_expr(&node, &schema, props, &PhysicalPlanningContext::default())?;
        let value = checked_arithmetic(physical)?.evaluate(&row)?.into_array(1)?;
        Ok(Transformed::yes(Expr::Literal(ScalarValue::try_from_array(&value, 0)?, None)))
    })?;
    Ok(folded.data)
}

/// Integers that run over their type are an error, not another number.
fn checked_arithmetic(expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    let checked = expr.transform_up(|node| {
        let checked = match node.downcast_ref::<BinaryExpr>() {
            Some(binary) if is_arithmetic(*binary.op()) => {
                BinaryExpr::new(Arc::clone(binary.left()), *binary.op(), Arc::clone(binary.right()))
                    .with_fail_on_overflow(true)
            }
            _ => return Ok(Transformed::no(node)),
        };
        Ok(Transformed::yes(Arc::new(checked) as Arc<dyn PhysicalExpr>))
    })?;
    Ok(checked.data)
}

fn is_arithmetic(op: Operator) -> bool {
    matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo)
}

/// The type that a column gets from values of a type; `None` if no column list has such a type.
fn column_type(computed: &DataType) -> Option<DataType> {
    Some(match computed {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Float16 => DataType::Float32,
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) => DataType::Decimal128(*p, *s),
        DataType::Dictionary(_, value) => column_type(value)?,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => DataType::new_list(column_type(item.data_type())?, true),
        DataType::Struct(fields) => {
            let fields =
                fields.iter().map(|f| Some(Field::new(f.name(), column_type(f.data_type())?, f.is_nullable())));
            DataType::Struct(fields.collect::<Option<Vec<_>>>()?.into())
        }
        // A zone other than UTC stays.
        DataType::Timestamp(..) => computed.clone(),
        other => {
            let written = TypeName(other).to_string();
            match ddl::parse_type(&written) {
                Ok(same) if &same == other => same,
                _ => return None,
            }
        }
    })
}
