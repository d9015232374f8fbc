//! What reading a SQL text, a column list or an expression, begins with.

use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// Longest expression, in bytes.
const MAX_TEXT: usize = 16 << 10;
/// Longest list of columns, in bytes: some ten thousand columns. It stands in every seal.
const MAX_COLUMNS: usize = 256 << 10;
/// How deep types may lie in one another. sqlparser guards its recursion in expressions, not that in types.
const MAX_NESTED_TYPES: usize = 64;

static DIALECT: GenericDialect = GenericDialect;

/// A parser at the start of an expression. Names in double quotes or backticks are taken as they stand.
pub(crate) fn parser(text: &str) -> Result<Parser<'static>, String> {
    let tokens = tokens(text, MAX_TEXT)?;
    check_nesting(&tokens)?;
    Ok(Parser::new(&DIALECT).with_tokens_with_locations(tokens))
}

fn tokens(text: &str, longest: usize) -> Result<Vec<TokenWithSpan>, String> {
    if text.len() > longest {
        return Err(format!("it is {} bytes long; at most {longest} are taken", text.len()));
    }
    Tokenizer::new(&DIALECT, text).tokenize_with_location().map_err(|e| e.to_string())
}

fn check_nesting(tokens: &[TokenWithSpan]) -> Result<(), String> {
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
    Ok(())
}

/// The tokens of each column of a list.
fn columns(tokens: &[TokenWithSpan]) -> impl Iterator<Item = &[TokenWithSpan]> {
    let mut depth = 0i64;
    tokens.split(move |token| {
        let step = match token.token {
            Token::LParen | Token::Lt => 1,
            Token::RParen | Token::Gt => -1,
            Token::ShiftRight => -2,
            _ => 0,
        };
        depth = (depth + step).max(0);
        token.token == Token::Comma && depth == 0
    })
}

/// A parser of types or of a list of columns. `>>` closes two of them: sqlparser takes it for an operator, and what follows it then belongs to the
/// wrong one of the two.
pub(crate) fn type_parser(text: &str) -> Result<Parser<'static>, String> {
    let tokens = tokens(text, MAX_COLUMNS)?;
    columns(&tokens).try_for_each(check_nesting)?;
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
