//! Which fields, and which parts of them, a path means.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};

use super::{children, with_children};

/// What is wanted of one field: all of it, or parts of the fields below it, by their place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FieldPick {
    All,
    /// All of it, as the keys of a map whose values have what was asked for: nobody asked for the keys themselves.
    Keys,
    Below(BTreeMap<usize, FieldPick>),
}

impl FieldPick {
    fn below(place: usize, pick: FieldPick) -> Self {
        FieldPick::Below(BTreeMap::from([(place, pick)]))
    }

    pub(crate) fn overlaps(&self, other: &FieldPick) -> bool {
        match (self, other) {
            (FieldPick::Below(these), FieldPick::Below(those)) => {
                those.iter().any(|(place, pick)| these.get(place).is_some_and(|known| known.overlaps(pick)))
            }
            (FieldPick::Keys, FieldPick::Keys) => false,
            _ => true,
        }
    }

    pub(crate) fn merge(&mut self, other: FieldPick) {
        if *self == other {
            return;
        }
        let (FieldPick::Below(these), FieldPick::Below(those)) = (&mut *self, other) else {
            *self = FieldPick::All;
            return;
        };
        for (place, pick) in those {
            match these.get_mut(&place) {
                Some(known) => known.merge(pick),
                None => {
                    these.insert(place, pick);
                }
            }
        }
    }
}

/// Fields side by side, by their names.
pub(crate) struct FieldNames<'a> {
    fields: &'a [FieldRef],
    places: HashMap<&'a str, Vec<usize>>,
}

impl<'a> FieldNames<'a> {
    pub(crate) fn new(fields: &'a [FieldRef]) -> Self {
        let mut places: HashMap<&str, Vec<usize>> = HashMap::with_capacity(fields.len());
        for (place, field) in fields.iter().enumerate() {
            places.entry(field.name()).or_default().push(place);
        }
        Self { fields, places }
    }

    /// Finds `path`. The longest name wins, so that a field called `a.b` is never hidden by a struct `a`.
    pub(crate) fn find(&self, path: &str) -> Option<(usize, FieldPick)> {
        if let Some(place) = self.places.get(path).and_then(|places| places.first()) {
            return Some((*place, FieldPick::All));
        }
        path.rmatch_indices('.').find_map(|(dot, _)| {
            let rest = &path[dot + 1..];
            self.places
                .get(&path[..dot])?
                .iter()
                .find_map(|place| match_below(self.fields[*place].data_type(), rest).map(|pick| (*place, pick)))
        })
    }

    /// The name on the way to what is picked that several fields side by side have, if there is one: which of them is
    /// meant nobody can say.
    pub(crate) fn shared(&self, place: usize, pick: &FieldPick) -> Option<&'a str> {
        let field = self.fields.get(place)?;
        if self.places.get(field.name().as_str()).is_some_and(|places| places.len() > 1) {
            return Some(field.name());
        }
        let FieldPick::Below(below) = pick else { return None };
        let fields = FieldNames::new(children(field.data_type()));
        below.iter().find_map(|(place, pick)| fields.shared(*place, pick))
    }
}

/// Finds `path` below a type.
fn match_below(data_type: &DataType, path: &str) -> Option<FieldPick> {
    match data_type {
        DataType::Struct(fields) => {
            FieldNames::new(fields).find(path).map(|(place, pick)| FieldPick::below(place, pick))
        }
        // Values cannot be read apart from their keys.
        DataType::Map(entries, _) => {
            let [_, value] = children(entries.data_type()) else { return None };
            let value = match_below(value.data_type(), path)?;
            let both = FieldPick::Below(BTreeMap::from([(0, FieldPick::Keys), (1, value)]));
            Some(FieldPick::below(0, both))
        }
        _ => {
            let child = children(data_type).first()?;
            match_below(child.data_type(), path).map(|pick| FieldPick::below(0, pick))
        }
    }
}

/// The field with what was picked of it.
pub(crate) fn prune(field: &FieldRef, pick: &FieldPick) -> FieldRef {
    let FieldPick::Below(below) = pick else { return Arc::clone(field) };
    let fields = children(field.data_type());
    let kept = below.iter().filter_map(|(place, pick)| fields.get(*place).map(|child| prune(child, pick)));
    let data_type = with_children(field.data_type(), kept.collect());
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}
