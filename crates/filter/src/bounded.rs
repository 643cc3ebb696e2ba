//! What parsing and planning a condition may take.
//!
//! The parser tries a word as syntax first and then as a name, at each level again: where a call is not complete, steps
//! double with every level around it. It asks the dialect at each step, which says here when there were enough. The
//! error is then the first one that it met, as if it had gone on.

#[cfg(test)]
mod tests;

use std::any::TypeId;
use std::cell::Cell;
use std::time::{Duration, Instant};

use datafusion_common::{DataFusionError, exec_err};
use datafusion_expr::sqlparser::ast::Expr;
use datafusion_expr::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion_expr::sqlparser::parser::{Parser, ParserError};

use rowdex_base::error::{Error, ErrorKind, Remedy};

/// How long a processor may work on a condition until it is planned. Lists of a hundred thousand values take a small
/// part of that, without optimisation, too.
pub(super) const LONGEST: Duration = Duration::from_secs(20);

/// When planning has to be over, which goes on in the thread that made it.
///
/// What counts is how long this thread was working, where the system tells: a machine that is busy with other things
/// makes no condition wrong.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    start: Instant,
    worked: Option<Duration>,
    longest: Duration,
}

/// How long this thread was working so far.
fn worked() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    told.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

impl Deadline {
    pub(super) fn within(longest: Duration) -> Self {
        Self { start: Instant::now(), worked: worked(), longest }
    }

    pub(super) fn is_over(&self) -> bool {
        // It cannot have worked for longer than that, and asking the system takes longer than looking at a clock.
        let passed = self.start.elapsed();
        let working = || self.worked.zip(worked()).map_or(passed, |(before, now)| now.saturating_sub(before));
        passed >= self.longest && working() >= self.longest
    }

    /// An error once it is over, for what goes on step by step.
    pub(super) fn check(&self) -> Result<(), DataFusionError> {
        if self.is_over() { exec_err!("the time is over") } else { Ok(()) }
    }

    pub(super) fn error(&self) -> Error {
        let message = format!("it is not worked out within {} s of a processor's time", self.longest.as_secs());
        Error::new(ErrorKind::InvalidArgument, message).with_remedies(
            "nest fewer calls, or find the rows with an engine, and use a list of rows ({})",
            &[Remedy::ListedRows],
        )
    }
}

/// The generic dialect, for so many steps.
#[derive(Debug)]
pub(super) struct Bounded {
    left: Cell<usize>,
    deadline: Deadline,
}

impl Bounded {
    pub(super) fn new(steps: usize, deadline: Deadline) -> Self {
        Self { left: Cell::new(steps), deadline }
    }

    /// Whether there were no steps left.
    pub(super) fn is_spent(&self) -> bool {
        self.left.get() == 0
    }
}

/// Of what the generic dialect allows, that which is part of expressions.
macro_rules! as_generic {
    ($($allows:ident)*) => { $(fn $allows(&self) -> bool { GenericDialect.$allows() })* };
}

impl Dialect for Bounded {
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        GenericDialect.is_identifier_part(ch)
    }

    fn parse_prefix(&self, _: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        const BETWEEN_LOOKS: usize = 1 << 10;
        let left = self.left.get();
        if left == 0 || (left.is_multiple_of(BETWEEN_LOOKS) && self.deadline.is_over()) {
            self.left.set(0);
            return Some(Err(ParserError::RecursionLimitExceeded));
        }
        self.left.set(left - 1);
        None
    }

    as_generic! {
        allow_extract_custom allow_extract_single_quotes support_map_literal_syntax supports_array_typedef_with_brackets
        supports_bitwise_shift_operators supports_comma_separated_trim supports_data_type_signed_suffix
        supports_dictionary_syntax supports_extract_comma_syntax supports_filter_during_aggregation
        supports_interval_options supports_match_against supports_named_fn_args_with_assignment_operator
        supports_struct_literal supports_try_convert supports_window_function_null_treatment_arg
        supports_xml_expressions
    }
}
