//! Columns with an item for each token of packs: cut as the tokens are, and in sequences where the labels are.

use arrow_array::types::{Float32Type, Int8Type, Int64Type};
use arrow_array::{
    Array, BooleanArray, FixedSizeListArray, Float32Array, Int8Array, Int32Array, Int64Array, ListArray, StructArray,
};
use arrow_buffer::OffsetBuffer;
use rowdex_order::{Algorithm, Overflow};
use rowdex_rows::{NO_LABEL, PackLayout, Sequencing};

use super::*;

const LENGTHS: [usize; 10] = [5, 40, 7, 0, 33, 1, 16, 90, 2, 21];

/// How many of a row's tokens are its prompt.
fn prompt(row: usize) -> usize {
    [1, 25, 0, 0, 3, 1, 16, 30, 1, 20][row]
}

fn token(row: usize, at: usize) -> i32 {
    (1000 * (row + 1) + at) as i32
}

fn label(row: usize, at: usize) -> i64 {
    if at < prompt(row) { NO_LABEL } else { i64::from(token(row, at)) }
}

fn weight(row: usize, at: usize) -> f32 {
    token(row, at) as f32 / 4.0
}

/// Lists of what a function has for each token of a row.
fn lists<T, A: Array + FromIterator<T> + 'static>(lengths: &[usize], item: impl Fn(usize, usize) -> T) -> ArrayRef {
    let items: A = (0..lengths.len())
        .flat_map(|row| (0..lengths[row]).map(move |at| (row, at)))
        .map(|(row, at)| item(row, at))
        .collect();
    let field = Arc::new(Field::new("item", items.data_type().clone(), true));
    Arc::new(ListArray::new(field, OffsetBuffer::from_lengths(lengths.iter().copied()), Arc::new(items), None))
}

fn tokens() -> ArrayRef {
    lists::<_, Int32Array>(&LENGTHS, |row, at| Some(token(row, at)))
}

fn labels(lengths: &[usize]) -> ArrayRef {
    lists::<_, Int64Array>(lengths, |row, at| Some(label(row, at)))
}

fn sampler_of(pack: Pack) -> DistributedSampler {
    let lengths: Vec<u64> = LENGTHS.iter().map(|length| *length as u64).collect();
    let packed = Packed::new(orders(true, LENGTHS.len() as u64), Arc::new(lengths), pack).unwrap();
    DistributedSampler::of_packs(Arc::new(packed), Shard::new(0, 1).unwrap(), 2, None).unwrap()
}

/// Each place of a batch: what is predicted there, as the row and the number of its token.
fn predicted(batch: &Batch, how: &Sequencing, pack: &Pack) -> Vec<Option<(usize, usize)>> {
    let (packs, mut places) = (batch.packs.as_ref().unwrap(), Vec::new());
    for piece in &packs.pieces {
        let (row, offset, end) = (piece.row as usize, piece.offset as usize, (piece.offset + piece.length) as usize);
        let served = match pack.overflow {
            Overflow::Truncate => LENGTHS[row].min(pack.longest() as usize),
            _ => LENGTHS[row],
        };
        let first = if how.bos.is_some() && offset == 0 { offset } else { offset + 1 };
        places.extend((first..end).map(|at| Some((row, at))));
        // The next piece begins with what the last token of this one predicts.
        if end > offset || (how.bos.is_some() && offset == 0) {
            places.push((end < served).then_some((row, end)));
        }
        if how.eos.is_some() && end == LENGTHS[row] {
            *places.last_mut().unwrap() = Some((row, usize::MAX));
            places.push(None);
        }
        let filled = places.len().next_multiple_of(pack.multiple as usize);
        places.resize(filled, None);
    }
    places
}

#[test]
fn a_column_of_labels_beside_the_tokens_is_that_of_sequences() {
    let columns = [("tokens", tokens()), ("labels", labels(&LENGTHS))];
    let (_dir, dataset) = one_file(columns, 3, WriterProperties::builder());
    let cuts = [
        Pack::of(16),
        Pack { overflow: Overflow::Truncate, ..Pack::of(16) },
        Pack { algorithm: Algorithm::Concat, ..Pack::of(16) },
        Pack { extra: 2, multiple: 4, ..Pack::of(16) },
    ];
    for pack in cuts {
        let bare = Sequencing::default();
        let how = if pack.extra == 2 { Sequencing { bos: Some(7), eos: Some(9), ..bare } } else { bare };
        let mut trained = 0;
        for memory in [0, 1 << 20] {
            let loader = Loader::builder(&dataset, sampler_of(pack)).tokens("tokens").memory(memory).epochs(1);
            for batch in loader.build().unwrap() {
                let batch = batch.unwrap();
                let cut = batch.records.column(1).as_list::<i32>();
                for (place, piece) in batch.packs.as_ref().unwrap().pieces.iter().enumerate() {
                    let own =
                        (piece.offset..piece.offset + piece.length).map(|at| label(piece.row as usize, at as usize));
                    assert!(cut.value(place).as_primitive::<Int64Type>().values().iter().copied().eq(own), "{piece:?}");
                }
                let expected = predicted(&batch, &how, &pack).into_iter().map(|next| match next {
                    // eos counts as the last token of its row does.
                    Some((row, usize::MAX)) if prompt(row) < LENGTHS[row] => 9,
                    Some((row, at)) if at < usize::MAX => label(row, at),
                    _ => NO_LABEL,
                });
                let found = batch.sequences(&how).unwrap().labels.unwrap();
                assert_eq!(found.to_vec(), expected.collect::<Vec<_>>());
                trained += found.iter().filter(|label| **label > 9).count();
                let rows = batch.sequences(&Sequencing { layout: PackLayout::Rows, labels: false, ..how }).unwrap();
                // A column of labels is served whether others would be made or not.
                let rows = rows.labels.unwrap();
                assert!(rows.iter().filter(|label| **label != NO_LABEL).eq(found.iter().filter(|l| **l != NO_LABEL)));
            }
        }
        let served = |row: usize| match pack.overflow {
            Overflow::Truncate => LENGTHS[row].min(16),
            _ => LENGTHS[row],
        };
        let first = usize::from(how.bos.is_none());
        let all = |row: usize| served(row).saturating_sub(prompt(row).max(first));
        assert_eq!(trained, 2 * (0..LENGTHS.len()).map(all).sum::<usize>(), "{pack:?}");
    }
}

fn weights() -> ArrayRef {
    lists::<_, Float32Array>(&LENGTHS, |row, at| Some(weight(row, at)))
}

fn masked(row: usize, at: usize) -> bool {
    at % 5 == 3 || at < prompt(row)
}

/// Tokens without labels, weights, and what masks them.
fn with_masks() -> (tempfile::TempDir, Dataset) {
    let columns = [
        ("weights", weights()),
        ("tokens", tokens()),
        ("completion_mask", lists::<_, BooleanArray>(&LENGTHS, |row, at| Some(at >= prompt(row)))),
        ("assistant_masks", lists::<_, Int8Array>(&LENGTHS, |_, at| Some(i8::from(at % 5 != 3)))),
    ];
    one_file(columns, 3, WriterProperties::builder())
}

/// Compares what lies beside the tokens of a batch of [`with_masks`] with what was written.
fn check_masked(batch: &Batch, pack: &Pack) {
    let made = batch.sequences(&Sequencing::default()).unwrap();
    let next = predicted(batch, &Sequencing::default(), pack);
    let label = |(row, at): (usize, usize)| if masked(row, at) { NO_LABEL } else { i64::from(token(row, at)) };
    let labels: Vec<i64> = next.iter().map(|next| next.map_or(NO_LABEL, label)).collect();
    assert_eq!(made.labels.unwrap().to_vec(), labels);
    let [weights, completion, assistant] = made.beside.columns() else { panic!("{:?}", made.beside) };
    let found = weights.as_primitive::<Float32Type>().values();
    assert!(found.iter().copied().eq(next.iter().map(|next| next.map_or(0.0, |(row, at)| weight(row, at)))));
    let found = completion.as_boolean().values();
    assert!(found.iter().eq(next.iter().map(|next| next.is_some_and(|(row, at)| at >= prompt(row)))));
    let found = assistant.as_primitive::<Int8Type>().values();
    assert!(found.iter().copied().eq(next.iter().map(|next| i8::from(next.is_some_and(|(_, at)| at % 5 != 3)))));
    let names: Vec<_> = made.beside.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["weights", "completion_mask", "assistant_masks"]);
}

#[test]
fn masks_take_labels_away_and_other_columns_lie_as_labels_do() {
    let (_dir, dataset) = with_masks();
    let some = Pack { algorithm: Algorithm::Concat, ..Pack::of(16) };
    for pack in [some, Pack::of(16), Pack { multiple: 3, ..Pack::of(16) }, Pack::buckets(8)] {
        let builder = Loader::builder(&dataset, sampler_of(pack)).tokens("tokens").with_columns(["weights"]);
        let mut pieces = 0;
        for batch in builder.epochs(1).build().unwrap() {
            let batch = batch.unwrap();
            check_masked(&batch, &pack);
            pieces += batch.row_ids.len();
        }
        assert!(pieces >= 9);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn ranks_that_share_a_reader_have_what_lies_beside_their_tokens() {
    use super::share::{all, in_time, share};

    in_time(|| {
        let (_dir, dataset) = with_masks();
        let pack = Pack::of(16);
        let of = |share| Loader::builder(&dataset, sampler_of(pack)).tokens("tokens").epochs(1).share(share);
        let loader = of(share(1)).with_columns(["weights"]).build().unwrap();
        let served = all(vec![loader], |_, loader| loader.map(|batch| check_masked(&batch.unwrap(), &pack)).count());
        assert!(served[0] > 5);
        let share = share(1);
        let _server = of(share.clone()).serve().unwrap();
        let other = of(share).with_columns(["weights"]).build().unwrap();
        let error = all(vec![other], |_, mut loader| loader.next().unwrap().unwrap_err()).remove(0);
        assert!(error.to_string().contains("tokens,weights"), "{error}");
    });
}

#[test]
fn items_beside_tokens_in_structs_and_of_a_fixed_size_are_cut_too() {
    let field = |name: &str, array: &ArrayRef| Arc::new(Field::new(name, array.data_type().clone(), true));
    let fixed = |first: i32| {
        let rows = (0..9).map(move |row| Some((0..24).map(move |at| Some(first + 24 * row + at))));
        Arc::new(FixedSizeListArray::from_iter_primitive::<arrow_array::types::Int32Type, _, _>(rows, 24)) as ArrayRef
    };
    let (tokens, labels) = (fixed(1), fixed(1001));
    let doc = StructArray::from(vec![(field("labels", &labels), labels), (field("tokens", &tokens), tokens)]);
    // Of another type and in another place: none of tokens.
    let names = lists::<_, Int8Array>(&[2; 9], |_, _| Some(1));
    let columns = [("labels", names), ("doc", Arc::new(doc) as ArrayRef)];
    let (_dir, dataset) = one_file(columns, 4, WriterProperties::builder());
    let packed = Packed::new(orders(true, 9), Arc::new(vec![24; 9]), Pack::of(16)).unwrap();
    let sampler = DistributedSampler::of_packs(Arc::new(packed), Shard::new(0, 1).unwrap(), 2, None).unwrap();
    let mut labels = BTreeSet::new();
    for batch in Loader::builder(&dataset, sampler).tokens("doc.tokens").epochs(1).build().unwrap() {
        let batch = batch.unwrap();
        assert!(batch.records.column(0).as_list::<i32>().iter().all(|list| list.unwrap().len() == 2));
        labels.extend(batch.sequences(&Sequencing::default()).unwrap().labels.unwrap().iter().copied());
    }
    let all = (0..9).flat_map(|row| (1..24).map(move |at| 1001 + 24 * row + at));
    assert_eq!(labels, all.chain([NO_LABEL]).collect());
}

#[test]
fn other_numbers_of_items_than_of_tokens_are_an_error_at_their_row() {
    for (row, length) in [(6, 15), (6, 17), (3, 1), (5, 0)] {
        let mut lengths = LENGTHS;
        lengths[row] = length;
        let (_dir, dataset) =
            one_file([("tokens", tokens()), ("labels", labels(&lengths))], 3, WriterProperties::builder());
        let pack = Pack { empty: rowdex_order::Empty::Keep, ..Pack::of(16) };
        let sampler = sampler_of(pack);
        let plan = sampler.plan(0).unwrap();
        let bad = (0..plan.steps()).find(|step| plan.batch(*step).unwrap().rows.contains(&(row as u64))).unwrap();
        for (threads, memory) in [(0, 0), (2, 1 << 20)] {
            let builder = Loader::builder(&dataset, sampler.clone()).tokens("tokens").memory(memory).threads(threads);
            let mut loader = builder.build().unwrap();
            for _ in 0..bad {
                loader.next().unwrap().unwrap();
            }
            let error = loader.next().unwrap().unwrap_err();
            let text = error.to_string();
            let group = format!("row group {}", row / 3);
            let count = format!("row {row} has {} tokens in tokens, and {length} items in labels", LENGTHS[row]);
            for part in [&count, "rows.parquet", &group] {
                assert!(text.contains(part), "{part} in {text}");
            }
            assert_eq!((error.kind(), error.column()), (ErrorKind::Schema, Some("labels")));
        }
    }
}

#[test]
fn columns_that_have_no_item_for_each_token_are_refused_by_name() {
    let names = lists::<_, StringArray>(&LENGTHS, |_, _| Some("a"));
    let halves = lists::<_, Float32Array>(&LENGTHS, |_, _| Some(0.5));
    let columns = [
        ("tokens", tokens()),
        ("names", names),
        ("labels", halves),
        ("id", Arc::new(UInt64Array::from_iter_values(0..10)) as ArrayRef),
    ];
    let (_dir, dataset) = one_file(columns, 3, WriterProperties::builder());
    let builder = || Loader::builder(&dataset, sampler_of(Pack::of(16))).tokens("tokens");
    let refused = |builder: LoaderBuilder, what: &str| {
        let error = builder.build().unwrap_err();
        assert!(error.to_string().contains(what) && error.hint().is_some(), "{what} in {error}");
    };
    refused(builder().with_columns(["none"]), "the columns that are served have no items next to tokens");
    refused(builder().with_columns(["id"]), "items next to tokens of type UInt64");
    refused(builder().with_columns(["names"]), "items next to tokens of type Utf8");
    refused(builder().with_columns(["labels"]), "items next to tokens of type Float32");
    let rows = sampler(&orders(true, 10), 0, 1, 3, Tail::Wrap);
    refused(Loader::builder(&dataset, rows).with_columns(["labels"]), "without packs");
    let whole = sampler_of(Pack { overflow: Overflow::Error, ..Pack::of(100) });
    refused(Loader::builder(&dataset, whole).with_columns(["labels"]), "of which no column has the tokens");
    // A column of that name which has something else is no such column, as long as nobody says so.
    for batch in builder().epochs(1).build().unwrap() {
        let batch = batch.unwrap();
        let whole = dataset.take(&batch.row_ids).unwrap();
        assert_eq!(batch.records.column(2), whole.column(2));
        let made = batch.sequences(&Sequencing::default()).unwrap();
        assert_eq!(made.beside.num_columns(), 0);
    }
}
