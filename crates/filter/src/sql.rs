//! From text to a parsed condition.

use std::any::TypeId;
use std::cell::Cell;
use std::ops::ControlFlow;

use datafusion_expr::sqlparser::ast::{Expr, UnaryOperator, visit_expressions};
use datafusion_expr::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion_expr::sqlparser::keywords::Keyword;
use datafusion_expr::sqlparser::parser::{Parser, ParserError};
use datafusion_expr::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::wrong;
use rowdex_base::error::{Error, Result};

/// The operators of a condition at most: each may be a level of nesting.
const MOST_OPERATORS: usize = 2000;

/// Levels of parentheses, calls, `case` and signs at least, of each of which the parser may make two.
const DEEPEST: usize = 49;

/// Steps that the parser takes for each word and sign at most, beside `LEAST_STEPS`. Hardly any takes two.
const STEPS: usize = 16;
const LEAST_STEPS: usize = 1 << 13;

/// Parses a condition.
pub(super) fn parse(text: &str) -> Result<Expr> {
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
    let parsed = parser.parse_expr().map_err(|error| match error {
        ParserError::RecursionLimitExceeded => wrong(format!("it nests more than {DEEPEST} levels deep"))
            .with_hint("nest fewer calls; or one is not complete, as `cast(x)` without `as type` is not"),
        other => syntax(&other),
    })?;
    match &parser.peek_token().token {
        Token::EOF => {}
        other => return Err(wrong(format!("`{other}` does not follow from what comes before it"))),
    }
    let checked = visit_expressions(&parsed, |expr| match refusal(expr) {
        Some(error) => ControlFlow::Break(error),
        None => ControlFlow::Continue(()),
    });
    if let ControlFlow::Break(error) = checked { Err(error) } else { Ok(parsed) }
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
}

/// The names in a condition that may be columns.
pub(super) fn columns(parsed: &Expr) -> Vec<String> {
    let mut columns = Vec::new();
    let _ = visit_expressions(parsed, |expr| {
        columns.extend(match expr {
            Expr::Identifier(name) => Some(name.value.clone()),
            Expr::CompoundIdentifier(names) => names.first().map(|name| name.value.clone()),
            _ => None,
        });
        ControlFlow::<()>::Continue(())
    });
    columns
}

/// Why a part of a condition would be answered wrongly.
fn refusal(expr: &Expr) -> Option<Error> {
    match expr {
        // The parser takes all that follows for the other side, as if it were in parentheses.
        Expr::IsDistinctFrom(_, other) | Expr::IsNotDistinctFrom(_, other) => {
            let is_one = matches!(
                **other,
                Expr::UnaryOp { op: UnaryOperator::Minus, .. }
                    | Expr::Identifier(_)
                    | Expr::CompoundIdentifier(_)
                    | Expr::Value(_)
                    | Expr::TypedString(_)
                    | Expr::Nested(_)
                    | Expr::Function(_)
                    | Expr::Cast { .. }
            );
            let error = wrong("what follows `is distinct from` may belong to it or not");
            (!is_one).then(|| error.with_hint("put the comparison in parentheses: (a is distinct from b) and c"))
        }
        // The planner would pass over it.
        Expr::Function(call) if call.over.is_some() => {
            let error = wrong(format!("`{}` is to look at several rows, and a condition is of one", call.name));
            Some(error.with_hint("find such rows with an engine, and use a list of rows"))
        }
        _ => None,
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
