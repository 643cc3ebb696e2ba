//! From text to a parsed condition whose names are those of columns.

use std::ops::ControlFlow;

use arrow::datatypes::{DataType, FieldRef, Fields, SchemaRef};
use datafusion_expr::sqlparser::ast::{
    AccessExpr, BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart,
    UnaryOperator, Value, VisitMut, VisitorMut, visit_expressions, visit_expressions_mut,
};
use datafusion_expr::sqlparser::dialect::GenericDialect;
use datafusion_expr::sqlparser::keywords::Keyword;
use datafusion_expr::sqlparser::parser::{Parser, ParserError};
use datafusion_expr::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::bounded::{Bounded, Deadline};
use rowdex_base::error::{Error, ErrorKind, Remedy, Result};
use rowdex_projection::unknown;

/// The operators of a condition at most: each may be a level of nesting.
const MOST_OPERATORS: usize = 2000;

/// Levels of parentheses, calls, `case` and signs at most.
const DEEPEST: usize = 100;

/// Steps that the parser takes for each word and sign at most, beside `LEAST_STEPS`. Hardly any takes two.
const STEPS: usize = 64;
const LEAST_STEPS: usize = 1 << 13;

/// What counts rows, or looks at more than one.
const AGGREGATES: &[&str] = &[
    "approx_distinct",
    "array_agg",
    "avg",
    "bool_and",
    "bool_or",
    "count",
    "first_value",
    "last_value",
    "max",
    "mean",
    "median",
    "min",
    "mode",
    "nth_value",
    "quantile",
    "row_number",
    "std",
    "stddev",
    "string_agg",
    "sum",
    "var",
    "variance",
    "lag",
    "lead",
    "rank",
    "dense_rank",
    "ntile",
    "percent_rank",
    "cume_dist",
];

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message.into())
}

/// Parses a condition. The names in it become those of columns of the schema, as the schema has them.
pub(super) fn parse(text: &str, schema: &SchemaRef, deadline: Deadline) -> Result<Expr> {
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
    check_tokens(&tokens)?;
    let steps = tokens.len().saturating_mul(STEPS).saturating_add(LEAST_STEPS);
    let dialect = Bounded::new(steps, deadline);
    let mut parser = Parser::new(&dialect).with_recursion_limit(DEEPEST).with_tokens_with_locations(tokens);
    let mut parsed = parser.parse_expr().map_err(|error| match error {
        ParserError::RecursionLimitExceeded if dialect.is_spent() => wrong("it takes too many steps to parse")
            .with_hint("a call may not be complete, as `cast(x)` without `as type` is not; or nest fewer calls"),
        ParserError::RecursionLimitExceeded => too_deep(),
        other => syntax(&other),
    })?;
    let next = parser.peek_token();
    match &next.token {
        Token::EOF => {}
        Token::SemiColon => {
            return Err(wrong("a `;`: one condition is wanted, not statements"));
        }
        Token::Word(word) if matches!(word.keyword, Keyword::ORDER | Keyword::GROUP | Keyword::LIMIT) => {
            return Err(wrong(format!("`{}` is no part of a condition", word.value)));
        }
        other => return Err(wrong(format!("`{other}` does not follow from what comes before it"))),
    }
    let _ = parsed.visit(&mut FieldsOfItems);
    let refused = visit_expressions_mut(&mut parsed, |expr| match resolve(expr, schema) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    });
    match refused {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(parsed),
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

/// Writes the field in `list[1].field` as `list[1]['field']`: otherwise it would be taken for a column.
struct FieldsOfItems;

impl VisitorMut for FieldsOfItems {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
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
}

fn too_deep() -> Error {
    wrong(format!("it nests more than {DEEPEST} levels deep"))
}

/// Refuses what would nest deeper than any stack is.
fn check_tokens(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut before = &Token::LParen;
    let mut operators = 0;
    // Brackets and `case` that are open, and signs and `not` before what comes next.
    let (mut open, mut signs) = (0_usize, 0);
    for token in tokens.iter().map(|token| &token.token) {
        let keyword = if let Token::Word(word) = token { Some(word.keyword) } else { None };
        match (token, keyword) {
            (Token::Whitespace(_), _) => continue,
            (Token::LParen | Token::LBracket | Token::LBrace, _) | (_, Some(Keyword::CASE)) => open += 1,
            (Token::RParen | Token::RBracket | Token::RBrace, _) | (_, Some(Keyword::END)) => {
                open = open.saturating_sub(1);
            }
            _ => {}
        }
        signs = match (token, keyword) {
            (Token::Minus | Token::Plus | Token::Tilde | Token::ExclamationMark, _) | (_, Some(Keyword::NOT)) => {
                signs + 1
            }
            _ => 0,
        };
        if open + signs > DEEPEST {
            return Err(too_deep());
        }
        match token {
            Token::Word(word) => operators += usize::from(matches!(word.keyword, Keyword::AND | Keyword::OR)),
            // A sign, as in a list of numbers.
            Token::Minus | Token::Plus if matches!(before, Token::Comma | Token::LParen) => {}
            Token::Comma | Token::Number(..) | Token::LParen | Token::RParen | Token::EOF => {}
            Token::SingleQuotedString(_) => {}
            _ => operators += 1,
        }
        before = token;
    }
    if operators > MOST_OPERATORS {
        return Err(wrong(format!("it has {operators} operators, more than {MOST_OPERATORS}"))
            .with_hint("compare with many values by `in (…)`, or keep them in a table and use a list of rows"));
    }
    Ok(())
}

/// Refuses what no condition has, and writes names as the schema has them.
fn resolve(expr: &mut Expr, schema: &SchemaRef) -> Result<()> {
    match expr {
        Expr::Identifier(name) => *expr = path(std::slice::from_ref(name), schema)?,
        Expr::CompoundIdentifier(names) => *expr = path(names, schema)?,
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
            return Err(wrong("a query within the condition").with_hint("run it elsewhere and use a list of rows"));
        }
        Expr::Wildcard(_) | Expr::QualifiedWildcard(..) => return Err(wrong("`*` is no value of a row")),
        Expr::Value(value) => {
            if let Value::Placeholder(name) = &value.value {
                return Err(
                    wrong(format!("`{name}` stands for a value that nobody gives")).with_hint("write the value itself")
                );
            }
        }
        Expr::Lambda(_) => return Err(wrong("a function of its own (`->`)").with_hint("use `array_has` or `= any`")),
        Expr::GroupingSets(_) | Expr::Cube(_) | Expr::Rollup(_) => return Err(wrong("it groups rows")),
        Expr::Function(function) => call(function)?,
        // The parser takes all that follows for the other side, as if it were in parentheses.
        Expr::IsDistinctFrom(_, other) | Expr::IsNotDistinctFrom(_, other) if !binds_tighter(other) => {
            return Err(wrong("what follows `is distinct from` may belong to it or not")
                .with_hint("put the comparison in parentheses: (a is distinct from b) and c"));
        }
        _ => {}
    }
    Ok(())
}

/// Whether an expression is one side of a comparison without parentheses.
fn binds_tighter(expr: &Expr) -> bool {
    use BinaryOperator::{Divide, Minus, Modulo, Multiply, Plus, StringConcat};
    match expr {
        Expr::BinaryOp { op, .. } => matches!(op, Divide | Minus | Modulo | Multiply | Plus | StringConcat),
        Expr::UnaryOp { op, .. } => matches!(op, UnaryOperator::Minus | UnaryOperator::Plus),
        Expr::Identifier(_)
        | Expr::CompoundIdentifier(_)
        | Expr::CompoundFieldAccess { .. }
        | Expr::Value(_)
        | Expr::TypedString(_)
        | Expr::Nested(_)
        | Expr::Function(_)
        | Expr::Cast { .. }
        | Expr::Case { .. }
        | Expr::Array(_)
        | Expr::Interval(_)
        | Expr::Extract { .. }
        | Expr::Substring { .. }
        | Expr::Trim { .. }
        | Expr::Position { .. } => true,
        _ => false,
    }
}

/// Functions are called in any case; what looks at several rows is refused.
fn call(function: &mut Function) -> Result<()> {
    let name = function.name.to_string();
    for part in &mut function.name.0 {
        if let ObjectNamePart::Identifier(part) = part {
            part.value = part.value.to_lowercase();
        }
    }
    let lower = name.to_lowercase();
    if function.over.is_some() || AGGREGATES.contains(&lower.as_str()) {
        return Err(wrong(format!("`{name}` looks at more than one row, and a condition is of one row"))
            .with_remedies("find the rows with an engine, and use a list of rows ({})", &[Remedy::ListedRows]));
    }
    if let FunctionArguments::List(list) = &function.args {
        let star = |arg: &FunctionArg| {
            matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Wildcard | FunctionArgExpr::QualifiedWildcard(_)))
        };
        if list.args.iter().any(star) {
            return Err(wrong(format!("`{name}(*)` is no value of a row")));
        }
    }
    if let FunctionArguments::Subquery(_) = &function.args {
        return Err(wrong("a query within the condition").with_hint("run it elsewhere and use a list of rows"));
    }
    Ok(())
}

/// A name, with or without dots, as the path of a column.
fn path(names: &[Ident], schema: &SchemaRef) -> Result<Expr> {
    let spelled = names.iter().map(|name| name.value.as_str()).collect::<Vec<_>>();
    let joined = spelled.join(".");
    let mut found = None;
    // The longest name wins, so that a column called `a.b` is not hidden by a struct `a`.
    for length in (1..=spelled.len()).rev() {
        let head = spelled[..length].join(".");
        if let Some(path) = field(schema.fields(), &head, &joined)?
            .map(|column| below(column, &spelled[length..], &joined))
            .transpose()?
            .flatten()
        {
            found = Some(path);
            break;
        }
    }
    let Some(found) = found else {
        let error = unknown(schema, &joined);
        return Err(match (names, error.hint()) {
            ([name], Some(hint)) if name.quote_style == Some('"') => {
                Error::new(error.kind(), error.message().to_owned())
                    .with_column(&joined)
                    .with_hint(format!("strings are in single quotes; {hint}"))
            }
            _ => error,
        });
    };
    let mut found: Vec<Ident> = found.into_iter().map(|name| Ident::with_quote('"', name)).collect();
    Ok(match found.len() {
        1 => Expr::Identifier(found.remove(0)),
        _ => Expr::CompoundIdentifier(found),
    })
}

/// The field of this name; in another case, if only one has it.
fn field<'a>(fields: &'a Fields, name: &str, path: &str) -> Result<Option<&'a FieldRef>> {
    let ambiguous = |how: &str| wrong(format!("{path:?} may be several columns, {how}"));
    let mut exact = fields.iter().filter(|field| field.name() == name);
    if let Some(field) = exact.next() {
        return match exact.next() {
            None => Ok(Some(field)),
            Some(_) => Err(ambiguous("which have the same name")),
        };
    }
    let lower = name.to_lowercase();
    let mut alike = fields.iter().filter(|field| field.name().to_lowercase() == lower);
    match (alike.next(), alike.next()) {
        (Some(_), Some(_)) => Err(ambiguous("whose names differ by case").with_hint("write it as the column has it")),
        (found, _) => Ok(found),
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
