//! Light transforms of rows on their way to a sink: rename, cast, add, filter, select and drop.
//!
//! Each row is transformed by itself and keeps nothing for the next one, so rows that are read again after a crash
//! come out the same. Expressions are SQL, by DataFusion: its planner, its types, its functions and its evaluation,
//! with these differences:
//!
//! - Names of columns are written as they are in the data, in upper or lower case; a name with other characters than
//!   letters, digits and `_` stands in double quotes.
//! - Integers that run over their type are an error of that row, and do not wrap around.
//! - `1.5` is a decimal. `CAST` of a text needs a text that is such a value; a cast to a decimal with fewer decimal
//!   places rounds, one of a fraction to an integer cuts the fraction off.
//! - What needs more than the row is refused: aggregates, window functions, subqueries, and functions that give
//!   another value each time (`now`, `random`, `uuid`).
//!
//! A row for which an expression has no value (a cast that does not fit, a division by zero) is a bad row; the
//! others pass.

mod check;
mod compile;
mod functions;
mod options;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::{RecordBatch, cast::AsArray};
use arrow_schema::{DataType, Field, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;

pub use options::TransformOptions;

use compile::{Compiled, Compiler};

use crate::rows::ColumnBatch;
use crate::schema::ddl::{self, Name, TypeName};
use crate::schema::unknown_column;
use crate::{ColumnsError, Result, Schema};

/// Stack of the thread that compiles expressions: the passes over them recurse.
const COMPILE_STACK: usize = 32 << 20;

/// A transform of rows with certain columns.
pub struct Transform {
    input: SchemaRef,
    stages: Vec<Stage>,
    output: Schema,
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The rows that pass, in their order.
    pub batch: RecordBatch,
    /// How many rows the filter left out.
    pub filtered: u64,
    /// The rows that could not be transformed, in their order.
    pub bad: Vec<BadRow>,
}

/// A row that could not be transformed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Which row of the batch, from 0.
    pub row: usize,
    /// The option that failed and why.
    pub reason: String,
}

/// Something done with a whole batch.
enum Stage {
    Project(Projection),
    Filter(Step),
}

/// An expression and the option that it comes from.
struct Step {
    key: String,
    expr: Compiled,
}

/// Columns that are made from others.
struct Projection {
    columns: Vec<Column>,
    schema: SchemaRef,
}

enum Column {
    /// As it is, from this place.
    Same(usize),
    Computed(Step),
}

impl Transform {
    /// Compiles the options for rows with the columns `input`.
    ///
    /// # Errors
    ///
    /// [`ColumnsErrorKind::BadOption`](crate::ColumnsErrorKind::BadOption), naming the option, the expression and,
    /// for a column that does not exist, the nearest one that does.
    pub fn new(options: &TransformOptions, input: &Schema) -> Result<Transform> {
        let compile = || Self::compile(options, input);
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(COMPILE_STACK).spawn_scoped(scope, compile);
            let thread = thread.map_err(|e| ColumnsError::io(format!("no thread to read the transform in: {e}")))?;
            thread.join().unwrap_or_else(|_| {
                Err(ColumnsError::internal("reading the transform panicked; please report its options"))
            })
        })
    }

    /// The columns of the rows that come out.
    pub fn output(&self) -> &Schema {
        &self.output
    }

    /// Transforms a batch.
    ///
    /// # Errors
    ///
    /// [`ColumnsErrorKind::Internal`](crate::ColumnsErrorKind::Internal): the batch has other columns than those
    /// that the transform was made for.
    pub fn apply(&self, batch: &RecordBatch) -> Result<Applied> {
        self.check_input(batch)?;
        let mut pieces = Pieces::default();
        self.apply_rows(batch, 0, &mut pieces)?;
        let batch = match pieces.batches.as_slice() {
            [] => RecordBatch::new_empty(Arc::clone(self.output.arrow())),
            [one] => one.clone(),
            many => concat_batches(self.output.arrow(), many)
                .map_err(|e| ColumnsError::internal(format!("joining transformed rows: {e}")))?,
        };
        Ok(Applied { batch, filtered: pieces.filtered, bad: pieces.bad })
    }

    /// Transforms rows that begin at row `first` of the batch; where they fail together, halves of them, until the
    /// rows that fail by themselves are known.
    fn apply_rows(&self, rows: &RecordBatch, first: usize, pieces: &mut Pieces) -> Result<()> {
        let count = rows.num_rows();
        if count == 0 {
            return Ok(());
        }
        match self.run(rows) {
            Ok(passed) => {
                // Never more rows than came in.
                pieces.filtered += (count - passed.num_rows()) as u64;
                if passed.num_rows() > 0 {
                    pieces.batches.push(passed);
                }
            }
            Err(reason) if count == 1 => pieces.bad.push(BadRow { row: first, reason }),
            Err(_) => {
                let half = count / 2;
                self.apply_rows(&ColumnBatch::copied(rows, 0..half)?, first, pieces)?;
                self.apply_rows(&ColumnBatch::copied(rows, half..count)?, first + half, pieces)?;
            }
        }
        Ok(())
    }

    fn run(&self, rows: &RecordBatch) -> Result<RecordBatch, String> {
        self.stages.iter().try_fold(rows.clone(), |batch, stage| match stage {
            Stage::Project(projection) => projection.apply(&batch),
            Stage::Filter(condition) => condition.filter(batch),
        })
    }

    fn check_input(&self, batch: &RecordBatch) -> Result<()> {
        let same = |(a, b): (&Arc<Field>, &Arc<Field>)| a.name() == b.name() && a.data_type() == b.data_type();
        let schema = batch.schema_ref();
        if Arc::ptr_eq(schema, &self.input)
            || schema.fields().len() == self.input.fields().len()
                && schema.fields().iter().zip(self.input.fields()).all(same)
        {
            return Ok(());
        }
        Err(ColumnsError::internal(format!(
            "the transform was made for the columns {}, and got rows with {}",
            Schema::new(Arc::clone(&self.input)),
            Schema::new(Arc::clone(schema)),
        )))
    }

    fn compile(options: &TransformOptions, input: &Schema) -> Result<Transform> {
        let mut stages = Stages { schema: Arc::clone(input.arrow()), stages: Vec::new() };
        stages.rename(&options.rename)?;
        stages.cast(&options.cast)?;
        stages.add(&options.add)?;
        if let Some(condition) = &options.filter {
            stages.filter(condition)?;
        }
        stages.select(&options.select)?;
        stages.drop(&options.drop)?;
        let output = Schema::new(stages.schema);
        Ok(Transform { input: Arc::clone(input.arrow()), stages: stages.stages, output })
    }
}

#[derive(Default)]
struct Pieces {
    batches: Vec<RecordBatch>,
    filtered: u64,
    bad: Vec<BadRow>,
}

impl Step {
    fn evaluate(&self, batch: &RecordBatch) -> Result<arrow_array::ArrayRef, String> {
        self.expr.evaluate(batch).map_err(|reason| format!("{}: {reason}", self.key))
    }

    /// The rows for which this condition is true.
    fn filter(&self, batch: RecordBatch) -> Result<RecordBatch, String> {
        let mask = self.evaluate(&batch)?;
        let mask = mask.as_boolean();
        if mask.true_count() == batch.num_rows() {
            return Ok(batch);
        }
        filter_record_batch(&batch, mask).map_err(|e| format!("{}: {e}", self.key))
    }
}

impl Projection {
    fn new(columns: Vec<(Column, Field)>) -> Self {
        let (columns, fields): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        Self { columns, schema: Arc::new(arrow_schema::Schema::new(fields)) }
    }

    fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch, String> {
        let arrays = self.columns.iter().map(|column| match column {
            Column::Same(index) => Ok(Arc::clone(batch.column(*index))),
            Column::Computed(step) => step.evaluate(batch),
        });
        RecordBatch::try_new(Arc::clone(&self.schema), arrays.collect::<Result<_, String>>()?)
            .map_err(|e| e.to_string())
    }
}

/// The stages so far, and the columns behind them.
struct Stages {
    schema: SchemaRef,
    stages: Vec<Stage>,
}

impl Stages {
    fn rename(&mut self, names: &[(String, String)]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        for (old, new) in names {
            self.position(old).map_err(|m| bad_option("rename", m))?;
            if new.is_empty() {
                return Err(bad_option("rename", format!("the new name of {} is empty", Name(old))));
            }
        }
        let new_names: HashMap<&String, &String> = names.iter().map(|(old, new)| (old, new)).collect();
        if new_names.len() < names.len() {
            return Err(bad_option("rename", "a column gets two new names".to_owned()));
        }
        let columns = self.schema.fields().iter().enumerate().map(|(i, field)| {
            let name = new_names.get(field.name()).copied().unwrap_or(field.name());
            (Column::Same(i), field.as_ref().clone().with_name(name))
        });
        self.project("rename", columns.collect())
    }

    fn cast(&mut self, types: &[(String, String)]) -> Result<()> {
        if types.is_empty() {
            return Ok(());
        }
        let compiler = self.compiler()?;
        let mut columns = self.columns();
        for (name, text) in types {
            let key = format!("cast.{}", Name(name));
            let place = self.position(name).map_err(|m| bad_option("cast", m))?;
            let data_type = ddl::parse_type(text).map_err(|m| bad_option(&key, m))?;
            let field = &self.schema.fields()[place];
            if !arrow_cast::can_cast_types(field.data_type(), &data_type) {
                let (from, to) = (TypeName(field.data_type()), TypeName(&data_type));
                return Err(bad_option(&key, format!("{from} cannot be cast to {to}")));
            }
            let expr = compiler.compile_cast(name, data_type).map_err(|m| bad_option(&key, m))?;
            let field = expr.field(name);
            columns[place] = (Column::Computed(Step { key, expr }), field);
        }
        self.project("cast", columns)
    }

    fn add(&mut self, added: &[(String, String)]) -> Result<()> {
        if added.is_empty() {
            return Ok(());
        }
        let compiler = self.compiler()?;
        let mut columns = self.columns();
        for (name, text) in added {
            let key = format!("add.{}", Name(name));
            if name.is_empty() {
                return Err(bad_option("add", "a column has an empty name".to_owned()));
            }
            if self.position(name).is_ok() {
                return Err(bad_option(
                    &key,
                    "a column of this name is there already; to change it, list the columns in select, with \
                     expression AS name for this one"
                        .to_owned(),
                ));
            }
            let expr = compile::parse(text, false).and_then(|parsed| compiler.compile(parsed));
            let expr = expr.map_err(|m| bad_option(&key, format!("{m}, in: {text}")))?;
            let field = expr.field(name);
            columns.push((Column::Computed(Step { key, expr }), field));
        }
        self.project("add", columns)
    }

    fn filter(&mut self, text: &str) -> Result<()> {
        let compiler = self.compiler()?;
        let expr = compile::parse(text, false).and_then(|parsed| compiler.compile(parsed));
        let expr = expr.map_err(|m| bad_option("filter", format!("{m}, in: {text}")))?;
        if expr.data_type() != &DataType::Boolean {
            let found = TypeName(expr.data_type());
            return Err(bad_option("filter", format!("a condition is expected, and this is {found}: {text}")));
        }
        self.stages.push(Stage::Filter(Step { key: "filter".to_owned(), expr }));
        Ok(())
    }

    fn select(&mut self, expressions: &[String]) -> Result<()> {
        if expressions.is_empty() {
            return Ok(());
        }
        let compiler = self.compiler()?;
        let mut columns = Vec::new();
        for text in expressions {
            if text.trim() == "*" {
                columns.extend(self.columns());
                continue;
            }
            let in_text = |m: String| bad_option("select", format!("{m}, in: {text}"));
            let parsed = compile::parse(text, true).map_err(in_text)?;
            let Some(name) = parsed.name.clone() else {
                return Err(in_text("it needs a name: write expression AS name".to_owned()));
            };
            if let Some(place) = parsed.column().and_then(|column| self.position(column).ok()) {
                let field = self.schema.field(place).clone().with_name(name);
                columns.push((Column::Same(place), field));
                continue;
            }
            let expr = compiler.compile(parsed).map_err(in_text)?;
            let field = expr.field(&name);
            let key = format!("select {}", Name(&name));
            columns.push((Column::Computed(Step { key, expr }), field));
        }
        self.project("select", columns)
    }

    fn drop(&mut self, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let mut dropped = HashSet::new();
        for name in names {
            dropped.insert(self.position(name).map_err(|m| bad_option("drop", m))?);
        }
        let columns = self.columns().into_iter().enumerate();
        let columns: Vec<_> = columns.filter(|(i, _)| !dropped.contains(i)).map(|(_, column)| column).collect();
        if columns.is_empty() {
            return Err(bad_option("drop", "no column would be left".to_owned()));
        }
        self.project("drop", columns)
    }

    fn project(&mut self, key: &str, columns: Vec<(Column, Field)>) -> Result<()> {
        let mut names = HashSet::new();
        if let Some((_, twice)) = columns.iter().find(|(_, field)| !names.insert(field.name().as_str())) {
            return Err(bad_option(key, format!("two columns would have the name {}", Name(twice.name()))));
        }
        let projection = Projection::new(columns);
        self.schema = Arc::clone(&projection.schema);
        self.stages.push(Stage::Project(projection));
        Ok(())
    }

    /// All columns as they are.
    fn columns(&self) -> Vec<(Column, Field)> {
        let fields = self.schema.fields().iter().enumerate();
        fields.map(|(i, field)| (Column::Same(i), field.as_ref().clone())).collect()
    }

    fn position(&self, name: &str) -> Result<usize, String> {
        let fields = self.schema.fields();
        fields.iter().position(|f| f.name() == name).ok_or_else(|| unknown_column(name, fields))
    }

    fn compiler(&self) -> Result<Compiler> {
        Compiler::new(&self.schema).map_err(|m| ColumnsError::bad_option(format!("transform: {m}")))
    }
}

fn bad_option(key: &str, message: String) -> ColumnsError {
    ColumnsError::bad_option(format!("transform: {key}: {message}"))
}

#[cfg(test)]
mod tests;
