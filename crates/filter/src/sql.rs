//! From text to a parsed condition whose names are those of columns.

use std::any::TypeId;
use std::cell::Cell;
use std::ops::ControlFlow;

use arrow::datatypes::{DataType, FieldRef, Fields, SchemaRef};
use datafusion_expr::sqlparser::ast::{
    AccessExpr, BinaryOperator, Expr, Ident, UnaryOperator, Value, VisitMut, VisitorMut, visit_expressions,
};
use datafusion_expr::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion_expr::sqlparser::keywords::Keyword;
use datafusion_expr::sqlparser::parser::{Parser, ParserError};
use datafusion_expr::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::wrong;
use rowdex_base::error::{Error, Result};
use rowdex_projection::unknown;

/// The operators of a condition at most: each may be a level of nesting.
const MOST_OPERATORS: usize = 2000;

/// Significant digits of a number that a double keeps.
const MOST_DIGITS: usize = 17;

/// Levels of parentheses, calls, `case` and signs at least, of each of which the parser may make two.
const DEEPEST: usize = 49;

/// Steps that the parser takes for each word and sign at most, beside `LEAST_STEPS`. Hardly any takes two.
const STEPS: usize = 16;
const LEAST_STEPS: usize = 1 << 13;

/// Parses a condition. The names in it become those of columns of the schema, as the schema has them.
pub(super) fn parse(text: &str, schema: &SchemaRef) -> Result<Expr> {
    if text.trim().is_empty() {
        return Err(wrong("it is empty").with_hint("write one like \"lang = 'en' and length(text) > 200\""));
    }
    let syntax = |error: &dyn std::fmt::Display| {
        let said = error.to_string();
        let said = said.strip_prefix("sql parser error: ").unwrap_or(&said);
        wrong(format!("it cannot be parsed: {}", said.split_whitespace().collect::<Vec<_>>().join(" ")))
            .with_hint("strings are in single quotes, and names that are no plain words in double quotes")
    };
    let tokens = Tokenizer::new(&GenericDialect, text).tokenize_with_location().map_err(|error| syntax(&error))?;
    check_operators(&tokens)?;
    let dialect = Bounded { left: Cell::new(tokens.len() * STEPS + LEAST_STEPS) };
    let mut parser = Parser::new(&dialect).with_recursion_limit(2 * DEEPEST + 2).with_tokens_with_locations(tokens);
    let mut parsed = parser.parse_expr().map_err(|error| match error {
        ParserError::RecursionLimitExceeded if dialect.left.get() == 0 => wrong("it takes too many steps to parse")
            .with_hint("a call may not be complete, as `cast(x)` without `as type` is not; or nest fewer calls"),
        ParserError::RecursionLimitExceeded => wrong(format!("it nests more than {DEEPEST} levels deep")),
        other => syntax(&other),
    })?;
    match &parser.peek_token().token {
        Token::EOF => {}
        other => return Err(wrong(format!("`{other}` does not follow from what comes before it"))),
    }
    match parsed.visit(&mut Names { schema }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(parsed),
    }
}

/// The generic dialect, for so many steps. The parser tries a word as syntax first and then as a name, at each level
/// again: where a call is not complete, steps double with every level around it.
#[derive(Debug)]
struct Bounded {
    left: Cell<usize>,
}

impl Dialect for Bounded {
    fn dialect(&self) -> TypeId {
        GenericDialect.dialect()
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        GenericDialect.is_identifier_part(ch)
    }

    fn parse_prefix(&self, _: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        let left = self.left.get().saturating_sub(1);
        self.left.set(left);
        (left == 0).then_some(Err(ParserError::RecursionLimitExceeded))
    }

    fn allow_extract_custom(&self) -> bool {
        true
    }

    fn allow_extract_single_quotes(&self) -> bool {
        true
    }

    fn supports_array_typedef_with_brackets(&self) -> bool {
        true
    }

    fn supports_bitwise_shift_operators(&self) -> bool {
        true
    }

    fn supports_dictionary_syntax(&self) -> bool {
        true
    }

    fn supports_interval_options(&self) -> bool {
        true
    }

    fn supports_struct_literal(&self) -> bool {
        true
    }
}

/// The names of the columns in a condition that was parsed.
pub(super) fn columns(parsed: &Expr) -> Vec<String> {
    let mut names = Vec::new();
    let _ = visit_expressions(parsed, |expr| {
        match expr {
            Expr::Identifier(name) => names.push(name.value.clone()),
            Expr::CompoundIdentifier(path) => names.extend(path.first().map(|name| name.value.clone())),
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
    names
}

/// Writes names as the schema has them.
struct Names<'a> {
    schema: &'a SchemaRef,
}

impl VisitorMut for Names<'_> {
    type Break = Error;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        // The field in `list[1].field` is no column: it is written as in `list[1]['field']`.
        if let Expr::CompoundFieldAccess { access_chain, .. } = expr {
            for access in access_chain {
                if let AccessExpr::Dot(field) = access
                    && let Expr::Identifier(name) = field
                {
                    *field = Expr::Value(Value::SingleQuotedString(std::mem::take(&mut name.value)).into());
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let named = match expr {
            Expr::Identifier(name) => path(std::slice::from_ref(name), self.schema),
            Expr::CompoundIdentifier(names) => path(names, self.schema),
            // The parser takes all that follows for the other side, as if it were in parentheses.
            Expr::IsDistinctFrom(_, other) | Expr::IsNotDistinctFrom(_, other) if !binds_tighter(other) => {
                let error = wrong("what follows `is distinct from` may belong to it or not");
                Err(error.with_hint("put the comparison in parentheses: (a is distinct from b) and c"))
            }
            // The planner would pass over it.
            Expr::Function(call) if call.over.is_some() => {
                let error = wrong(format!("`{}` is to look at several rows, and a condition is of one", call.name));
                Err(error.with_hint("find such rows with an engine, and use a list of rows"))
            }
            Expr::Value(value) if is_rounded(&value.value) => {
                let error = wrong(format!("{value} has more than {MOST_DIGITS} digits, and would be rounded"));
                Err(error.with_hint("write fewer, or put it in quotes beside a column of decimals"))
            }
            _ => return ControlFlow::Continue(()),
        };
        match named {
            Ok(named) => *expr = named,
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

/// Refuses what would nest deeper than any stack is.
fn check_operators(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut before = &Token::LParen;
    let mut operators = 0;
    for token in tokens.iter().map(|token| &token.token).filter(|token| !matches!(token, Token::Whitespace(_))) {
        operators += usize::from(match token {
            Token::Word(word) => matches!(word.keyword, Keyword::AND | Keyword::OR),
            // A sign, as in a list of numbers.
            Token::Minus | Token::Plus => !matches!(before, Token::Comma | Token::LParen),
            Token::Comma | Token::Number(..) | Token::LParen | Token::RParen | Token::EOF => false,
            Token::SingleQuotedString(_) => false,
            _ => true,
        });
        before = token;
    }
    if operators > MOST_OPERATORS {
        return Err(wrong(format!("it has {operators} operators, more than {MOST_OPERATORS}"))
            .with_hint("compare with many values by `in (…)`, or keep them in a table and use a list of rows"));
    }
    Ok(())
}

/// Whether a number is no integer of 64 bits, and has more digits than a double.
fn is_rounded(value: &Value) -> bool {
    let Value::Number(text, _) = value else { return false };
    let digits = text.split(['e', 'E']).next().unwrap_or_default().replace('.', "");
    text.parse::<u64>().is_err() && digits.trim_matches('0').len() > MOST_DIGITS
}

/// Whether an expression is one side of a comparison without parentheses.
fn binds_tighter(expr: &Expr) -> bool {
    use BinaryOperator::{Divide, Minus, Modulo, Multiply, Plus, StringConcat};
    matches!(
        expr,
        Expr::BinaryOp { op: Divide | Minus | Modulo | Multiply | Plus | StringConcat, .. }
            | Expr::UnaryOp { op: UnaryOperator::Minus, .. }
            | Expr::Identifier(_)
            | Expr::CompoundIdentifier(_)
            | Expr::Value(_)
            | Expr::TypedString(_)
            | Expr::Nested(_)
            | Expr::Function(_)
            | Expr::Cast { .. }
    )
}

/// A name, with or without dots, as the path of a column.
fn path(names: &[Ident], schema: &SchemaRef) -> Result<Expr> {
    let spelled = names.iter().map(|name| name.value.as_str()).collect::<Vec<_>>();
    let joined = spelled.join(".");
    // The longest name wins, so that a column called `a.b` is not hidden by a struct `a`.
    for length in (1..=spelled.len()).rev() {
        let Some(column) = field(schema.fields(), &spelled[..length].join("."), &joined)? else { continue };
        let Some(found) = below(column, &spelled[length..], &joined)? else { continue };
        let mut found: Vec<Ident> = found.into_iter().map(|name| Ident::with_quote('"', name)).collect();
        return Ok(match found.len() {
            1 => Expr::Identifier(found.remove(0)),
            _ => Expr::CompoundIdentifier(found),
        });
    }
    let error = unknown(schema, &joined);
    Err(match (names, error.hint()) {
        ([name], Some(hint)) if name.quote_style == Some('"') => {
            let hint = format!("strings are in single quotes; {hint}");
            Error::new(error.kind(), error.message().to_owned()).with_column(&joined).with_hint(hint)
        }
        _ => error,
    })
}

/// The field of this name; in another case, if only one has it.
fn field<'a>(fields: &'a Fields, name: &str, path: &str) -> Result<Option<&'a FieldRef>> {
    let mut alike: Vec<&FieldRef> = fields.iter().filter(|field| field.name() == name).collect();
    if alike.is_empty() {
        let lower = name.to_lowercase();
        alike.extend(fields.iter().filter(|field| field.name().to_lowercase() == lower));
    }
    match alike.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        _ => Err(wrong(format!("{path:?} may be several columns, whose names differ by case or not at all"))
            .with_hint("write it as the column has it")),
    }
}

/// The path from a column down to a field of its structs.
fn below(column: &FieldRef, rest: &[&str], path: &str) -> Result<Option<Vec<String>>> {
    let mut names = vec![column.name().clone()];
    let mut data_type = column.data_type();
    for name in rest {
        let DataType::Struct(fields) = data_type else { return Ok(None) };
        let Some(found) = field(fields, name, path)? else { return Ok(None) };
        names.push(found.name().clone());
        data_type = found.data_type();
    }
    Ok(Some(names))
}
