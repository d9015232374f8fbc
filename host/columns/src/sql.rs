//! What reading a SQL text, a column list or an expression, begins with.

use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// Longest SQL text, in bytes.
const MAX_TEXT: usize = 16 * 1024;
/// How deep types may lie in one another. sqlparser guards its recursion in expressions, not that in types.
const MAX_NESTED_TYPES: usize = 64;

static DIALECT: GenericDialect = GenericDialect;

/// A parser at the start of a text. Names in double quotes or backticks are taken as they stand.
pub(crate) fn parser(text: &str) -> Result<Parser<'static>, String> {
    if text.len() > MAX_TEXT {
        return Err(format!("it is {} bytes long; at most {MAX_TEXT} are taken", text.len()));
    }
    let tokens = Tokenizer::new(&DIALECT, text).tokenize_with_location().map_err(|e| e.to_string())?;
    let opens_type = |token: &Token| match token {
        Token::Word(word) => word.quote_style.is_none() && is_nesting(&word.value),
        _ => false,
    };
    if tokens.iter().filter(|t| opens_type(&t.token)).count() > MAX_NESTED_TYPES {
        return Err(format!("it has more than {MAX_NESTED_TYPES} nested types"));
    }
    let brackets = tokens.iter().filter(|t| t.token == Token::LBracket).count();
    if brackets > MAX_NESTED_TYPES {
        return Err(format!("it has more than {MAX_NESTED_TYPES} square brackets"));
    }
    Ok(Parser::new(&DIALECT).with_tokens_with_locations(tokens))
}

/// A parser of types. `>>` closes two of them: sqlparser takes it for an operator, and what follows it then belongs to the
/// wrong one of the two.
pub(crate) fn type_parser(text: &str) -> Result<Parser<'static>, String> {
    parser(text)?;
    let tokens = Tokenizer::new(&DIALECT, text).tokenize_with_location().map_err(|e| e.to_string())?;
    let apart = tokens.into_iter().flat_map(|token| match token.token {
        Token::ShiftRight => vec![TokenWithSpan { token: Token::Gt, span: token.span }; 2],
        _ => vec![token],
    });
    Ok(Parser::new(&DIALECT).with_tokens_with_locations(apart.collect()))
}

/// Whether everything was read.
pub(crate) fn at_end(parser: &Parser<'_>) -> bool {
    parser.peek_token_ref().token == Token::EOF
}

/// The words of an error of the parser.
pub(crate) fn parse_error(error: ParserError) -> String {
    match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
        ParserError::RecursionLimitExceeded => "it is nested too deep".to_owned(),
    }
}

fn is_nesting(word: &str) -> bool {
    ["array", "struct", "map", "nullable", "lowcardinality", "nested", "tuple", "union"]
        .iter()
        .any(|w| word.eq_ignore_ascii_case(w))
}
