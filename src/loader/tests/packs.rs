//! Packs: pieces of rows, compared with whole rows that the dataset takes and that are cut by the plan.

use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, LargeListArray, ListArray};
use rowdex_order::{Algorithm, Empty, Overflow};
use rowdex_rows::{PackLayout, Sequencing, Then};

use super::*;

/// Rows of these lengths, the tokens of row `r` being `1000 r`, `1000 r + 1`, …
struct Texts {
    _dir: tempfile::TempDir,
    dataset: Dataset,
    lengths: Vec<u64>,
}

fn token(row: u64, at: u64) -> i32 {
    (row * 1000 + at) as i32
}

fn texts(lengths: &[u64], group_rows: u64) -> Texts {
    let tokens = |(row, length): (u64, &u64)| {
        // A null has no tokens, as an empty list.
        let null = *length == 0 && row % 2 == 0;
        (!null).then(|| (0..*length).map(move |at| Some(token(row, at))).collect::<Vec<_>>())
    };
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>((0..).zip(lengths).map(tokens));
    let names = (0..lengths.len()).map(|row| (row % 5 != 2).then(|| format!("row {row}")));
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(UInt64Array::from_iter_values(0..lengths.len() as u64))),
        ("tokens", Arc::new(lists)),
        ("name", Arc::new(names.collect::<StringArray>())),
    ];
    let (dir, dataset) = one_file(columns, group_rows, WriterProperties::builder());
    Texts { _dir: dir, dataset, lengths: lengths.to_vec() }
}

impl Texts {
    fn packed(&self, orders: Arc<dyn Order>, pack: Pack) -> Result<Arc<Packed>> {
        Ok(Arc::new(Packed::new(orders, Arc::new(self.lengths.clone()), pack)?))
    }

    fn global(&self, pack: Pack) -> Arc<Packed> {
        self.packed(orders(true, self.dataset.len()), pack).unwrap()
    }

    fn builder(&self, sampler: &DistributedSampler) -> LoaderBuilder {
        Loader::builder(&self.dataset, sampler.clone()).tokens("tokens")
    }

    /// Compares a batch with the rows that the dataset has, cut by the plan.
    fn check(&self, batch: &Batch, sampler: &DistributedSampler) {
        let plan = sampler.plan(batch.epoch).unwrap();
        let expected = plan.batch(batch.step).unwrap();
        let packs = batch.packs.as_ref().unwrap();
        assert_eq!((batch.steps, batch.pads), (plan.steps(), expected.pads));
        assert_eq!((&batch.row_ids, &packs.pieces, &packs.ends), (&expected.rows, &expected.pieces, &expected.packs));
        let whole = self.dataset.take(&batch.row_ids).unwrap();
        assert_eq!(batch.records.schema(), whole.schema());
        assert_eq!(batch.records.column(0), whole.column(0));
        assert_eq!(batch.records.column(2), whole.column(2));
        let (cut, all) = (batch.records.column(1).as_list::<i32>(), whole.column(1).as_list::<i32>());
        let pack = sampler.packed().unwrap().pack();
        let mut unended = Vec::new();
        for (place, piece) in packs.pieces.iter().enumerate() {
            let length = self.lengths[piece.row as usize];
            assert_eq!(cut.value_length(place) as u64, piece.length);
            assert_eq!(all.value_length(place) as u64, length);
            assert_eq!(
                &cut.value(place),
                &all.value(place).slice(piece.offset as usize, piece.length as usize),
                "{piece:?}"
            );
            let end = piece.offset + piece.length;
            let served = if pack.overflow == Overflow::Truncate { length.min(pack.longest()) } else { length };
            if end < length {
                let next = Then::Token(i64::from(token(piece.row, end)));
                unended.push(Unended { place, then: if end < served { next } else { Then::Nothing } });
            }
        }
        assert_eq!(packs.unended, unended);
        assert!(batch.substituted.is_empty());
    }

    /// Serves to the end and compares each batch, and the states.
    fn run(&self, mut loader: Loader, samplers: &[DistributedSampler]) -> u64 {
        let mut served = 0;
        while let Some(batch) = loader.next() {
            let batch = batch.unwrap();
            let sampler = samplers.iter().find(|sampler| sampler.shard().rank() == batch.rank).unwrap();
            self.check(&batch, sampler);
            if batch.rank == samplers[samplers.len() - 1].shard().rank() {
                assert_eq!(loader.state(), sampler.state_after(batch.epoch, batch.step).unwrap());
            }
            served += 1;
        }
        served
    }
}

fn of_packs(packed: &Arc<Packed>, rank: u32, world: u32, packs: usize, tail: Tail) -> DistributedSampler {
    let shard = Shard::new(rank, world).unwrap().with_tail(tail);
    DistributedSampler::of_packs(Arc::clone(packed), shard, packs, None).unwrap()
}

#[test]
fn epochs_of_packs_without_a_step_are_passed_over_and_others_follow() {
    let texts = texts(&[3, 3, 1, 1], 4);
    let packed = texts.global(Pack { block: 2, ..Pack::of(4) });
    let sampler = of_packs(&packed, 0, 3, 1, Tail::Drop);
    let steps: Vec<u64> = (0..40).map(|epoch| sampler.plan(epoch).unwrap().steps()).collect();
    assert!(steps.contains(&0) && steps.contains(&1), "{steps:?}");
    let loader = || texts.builder(&sampler).threads(1).epochs(40).build().unwrap();
    assert_eq!(loader().map(Result::unwrap).count() as u64, steps.iter().sum::<u64>());
    let mut by_epoch = loader();
    for (epoch, steps) in steps.iter().enumerate() {
        assert_eq!(by_epoch.epoch().map(Result::unwrap).count() as u64, *steps, "epoch {epoch}");
    }
    #[cfg(feature = "capi")]
    {
        let mut looked_at = loader();
        for (epoch, steps) in (0..).zip(steps) {
            assert_eq!(looked_at.steps(), steps, "epoch {epoch}");
            for step in 0..steps {
                assert_eq!(looked_at.peek(epoch, step, 1).unwrap().unwrap().epoch, epoch);
                looked_at.advance(epoch, step).unwrap();
            }
            assert!(looked_at.peek(epoch, steps, 1).unwrap().is_none());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_are_what_the_plan_says_whatever_the_threads_and_the_memory(
        lengths in prop::collection::vec(
            prop_oneof![Just(0u64), Just(16), 1u64..20, 1u64..20, 20u64..90, Just(700)], 1..60),
        group_rows in prop::sample::select(vec![1u64, 3, 8, 100]),
        global: bool,
        concat: bool,
        overflow in prop::sample::select(vec![Overflow::Split, Overflow::Truncate, Overflow::Drop]),
        extra in 0u64..3,
        multiple in prop::sample::select(vec![1u64, 4]),
        keep: bool,
        max_pieces in prop::sample::select(vec![None, Some(2u32)]),
        world in 1u32..4,
        served in 1u32..3,
        packs in 1usize..4,
        tail in prop::sample::select(vec![Tail::Even, Tail::Wrap, Tail::Drop, Tail::Uneven]),
        threads in prop::sample::select(vec![0usize, 2]),
        memory in prop::sample::select(vec![0u64, 500, 4000, 1 << 20]),
        resumed in prop::option::of(0u64..9),
    ) {
        let texts = texts(&lengths, group_rows);
        let pack = Pack {
            overflow, extra, multiple, max_pieces, block: 20,
            algorithm: if concat { Algorithm::Concat } else { Algorithm::BestFit },
            empty: if keep { Empty::Keep } else { Empty::Skip },
            ..Pack::of(16)
        };
        let packed = texts.packed(orders(global, texts.dataset.len()), pack).unwrap();
        let mut samplers: Vec<_> =
            (0..served.min(world)).map(|rank| of_packs(&packed, rank, world, packs, tail)).collect();
        // Too few pieces can not be dealt evenly.
        prop_assume!((0..3).all(|epoch| samplers[0].plan(epoch).is_ok()));
        let before = of_packs(&packed, 0, world + 1, packs, tail);
        if let Some(step) = resumed && before.plan(0).is_ok() && before.steps() > 0 {
            let state = before.state_after(0, step % before.steps()).unwrap();
            prop_assume!(samplers.iter_mut().all(|sampler| sampler.resume(&state).is_ok()));
        }
        let builder = texts.builder(&samplers[0]).and_ranks(samplers[1..].iter().cloned());
        let loader = builder.memory(memory).threads(threads).epochs(3).build().unwrap();
        let steps: u64 = (samplers[0].epoch()..3).map(|epoch| samplers[0].plan(epoch).unwrap().steps_left()).sum();
        prop_assert_eq!(texts.run(loader, &samplers), steps * samplers.len() as u64);
    }
}

#[test]
fn a_row_of_many_packs_is_decoded_once_and_held_once() {
    // One row of a thousand packs among short ones, all in the memory that their tokens take.
    let mut lengths = vec![8; 400];
    lengths[123] = 16_000;
    let texts = texts(&lengths, 50);
    let packed = texts.global(Pack::of(16));
    let sampler = of_packs(&packed, 0, 1, 2, Tail::Even);
    let all = 4 * lengths.iter().sum::<u64>();
    let mut loader = texts.builder(&sampler).memory(2 * all).threads(0).epochs(1).build().unwrap();
    let mut stats = loader.stats();
    while let Some(batch) = loader.next() {
        texts.check(&batch.unwrap(), &sampler);
        stats = loader.stats();
    }
    // Held a thousand times it would take 64 MB.
    assert!(stats.peak_bytes <= 4 * all, "{} of {all}", stats.peak_bytes);
    assert_eq!(stats.decodes, 8);
}

#[cfg(feature = "capi")]
#[test]
fn an_epoch_ends_where_its_own_steps_do_though_the_next_one_has_more() {
    let lengths: Vec<u64> = (0..150).map(|row| [3, 17, 60, 9, 30][row % 5]).collect();
    let texts = texts(&lengths, 20);
    let packed = texts.global(Pack { algorithm: Algorithm::Concat, block: 7, ..Pack::of(64) });
    let sampler = of_packs(&packed, 0, 1, 1, Tail::Even);
    let mut loader = texts.builder(&sampler).memory(1 << 20).build().unwrap();
    let steps: Vec<u64> = (0..8).map(|epoch| sampler.plan(epoch).unwrap().steps()).collect();
    assert!(steps.windows(2).any(|pair| pair[0] < pair[1]), "{steps:?}");
    for (epoch, steps) in (0..).zip(steps) {
        let mut served = 0;
        while let Some(batch) = loader.peek(epoch, served, 100).unwrap() {
            texts.check(&batch, &sampler);
            loader.advance(epoch, served).unwrap();
            served += 1;
        }
        assert_eq!(served, steps, "epoch {epoch}");
    }
}

#[test]
fn passes_of_packs_are_those_that_are_predicted() {
    let lengths: Vec<u64> = (0..4000).map(|row| [3, 7, 200, 12][row % 4]).collect();
    let texts = texts(&lengths, 100);
    let packed = texts.global(Pack { block: 500, ..Pack::of(64) });
    let sampler = of_packs(&packed, 1, 2, 4, Tail::Even);
    for part in [8, 4, 2] {
        let memory = texts.dataset.decoded_bytes() / part;
        let builder = texts.builder(&sampler).memory(memory).threads(0).epochs(3);
        let told = builder.estimate().unwrap();
        let mut loader = builder.build().unwrap();
        let mut after = Vec::new();
        while let Some(batch) = loader.next() {
            if batch.unwrap().is_last() {
                after.push(loader.stats().decodes as f64 / 40.0);
            }
        }
        let (first, later) = (after[0], after[1] - after[0]);
        let is_near = |told: f64, real: f64| (told - real).abs() <= 0.25 * real + 0.5;
        assert!(is_near(told.passes, later), "{part}: {} and {later}", told.passes);
        assert!(is_near(told.first_passes, first), "{part}: {} and {first}", told.first_passes);
    }
}

#[test]
fn lengths_that_changed_since_they_were_noted_are_an_error_where_the_row_is_due() {
    let mut lengths: Vec<u64> = (0..90).map(|row| row % 23 + 1).collect();
    let mut texts = texts(&lengths, 30);
    lengths[71] += 1;
    texts.lengths = lengths;
    for (threads, memory) in [(0, 0), (2, 1 << 20)] {
        let packed = texts.global(Pack::of(16));
        let sampler = of_packs(&packed, 0, 1, 1, Tail::Even);
        let plan = sampler.plan(0).unwrap();
        let bad = (0..plan.steps()).find(|step| plan.batch(*step).unwrap().rows.contains(&71)).unwrap();
        let mut loader = texts.builder(&sampler).memory(memory).threads(threads).build().unwrap();
        for _ in 0..bad {
            loader.next().unwrap().unwrap();
        }
        let error = loader.next().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stale);
        let text = error.to_string();
        for part in ["row 71", "a length of 3", "4 was recorded", "rows.parquet", "row group 2", "tokens"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}

#[test]
fn lengths_of_a_column_of_integers_are_compared_with_it_and_rows_are_served_whole() {
    let texts = texts(&[3, 5, 16, 1, 9, 40, 2, 0], 3);
    #[derive(Debug)]
    struct Noted(Vec<u64>);
    impl Lengths for Noted {
        fn len(&self) -> u64 {
            Lengths::len(&self.0)
        }
        fn length(&self, row: u64) -> Result<u64> {
            self.0.length(row)
        }
        fn fingerprint(&self) -> u64 {
            self.0.fingerprint()
        }
        fn measure(&self) -> Option<rowdex_order::Measure<'_>> {
            Some(rowdex_order::Measure::Numbers("id"))
        }
    }
    let sampler = |lengths: Vec<u64>, overflow| {
        let pack = Pack { overflow, empty: Empty::Keep, ..Pack::of(16) };
        let packed = Packed::new(orders(true, 8), Arc::new(Noted(lengths)), pack).unwrap();
        of_packs(&Arc::new(packed), 0, 1, 1, Tail::Even)
    };
    let whole = sampler((0..8).collect(), Overflow::Error);
    let mut rows = 0;
    for batch in Loader::builder(&texts.dataset, whole).epochs(1).build().unwrap() {
        let batch = batch.unwrap();
        assert_eq!(batch.records, texts.dataset.take(&batch.row_ids).unwrap());
        rows += batch.row_ids.len();
        let error = batch.sequences(&Sequencing::default()).unwrap_err();
        assert!(error.hint().unwrap().contains("name the column"), "{error}");
    }
    assert_eq!(rows, 8);
    let other = sampler(vec![0, 1, 2, 3, 4, 5, 6, 8], Overflow::Drop);
    let error = Loader::builder(&texts.dataset, other).build().unwrap().find_map(Result::err).unwrap();
    assert!(error.to_string().contains("row 7 has a length of 7, and 8 was recorded"), "{error}");
    for overflow in [Overflow::Split, Overflow::Truncate] {
        let error = Loader::builder(&texts.dataset, sampler((0..8).collect(), overflow)).build().unwrap_err();
        assert!(error.to_string().contains("of which no column has the tokens"), "{error}");
    }
}

#[test]
fn what_packs_can_not_be_served_by_is_refused_by_name() {
    let texts = texts(&[5; 20], 5);
    let packed = texts.global(Pack::of(16));
    let sampler = of_packs(&packed, 0, 1, 2, Tail::Even);
    let builder = || Loader::builder(&texts.dataset, sampler.clone());
    let refused = |builder: LoaderBuilder, what: &str| {
        let errors = [builder.clone().build().unwrap_err(), builder.estimate().unwrap_err()];
        errors.iter().for_each(|error| assert!(error.to_string().contains(what), "{what} in {error}"));
    };
    refused(builder(), "no column has the tokens");
    refused(builder().tokens("words"), "words");
    refused(builder().tokens("id"), "tokens of type UInt64");
    refused(builder().tokens("tokens").on_error(Fault::Substitute { seed: 1 }), "other lengths");
    let rows = sampler_of_rows(&texts);
    refused(Loader::builder(&texts.dataset, rows).tokens("tokens"), "without packs");
    // A row that is too long is refused when the loader is made.
    let error = Pack { overflow: Overflow::Error, ..Pack::of(4) };
    refused(texts.builder(&of_packs(&texts.global(error), 0, 1, 2, Tail::Even)), "row");
}

fn sampler_of_rows(texts: &Texts) -> DistributedSampler {
    sampler(&orders(true, texts.dataset.len()), 0, 1, 3, Tail::Wrap)
}

#[test]
fn packs_are_sequences_of_tokens_with_positions_and_labels() {
    let texts = texts(&[5, 20, 7, 0, 3, 16], 3);
    let packed = texts.global(Pack { extra: 2, multiple: 4, ..Pack::of(16) });
    let sampler = of_packs(&packed, 0, 1, 2, Tail::Even);
    for batch in texts.builder(&sampler).epochs(1).build().unwrap() {
        let batch = batch.unwrap();
        let packs = batch.packs.as_ref().unwrap();
        let how = Sequencing { bos: Some(1), eos: Some(2), pad: 9, ..Sequencing::default() };
        let made = batch.sequences(&how).unwrap();
        let (mut tokens, mut labels, mut positions, mut segments) = (vec![], vec![], vec![], vec![]);
        let (mut ends, mut lengths, mut pack_ends, mut piece) = (vec![0], vec![], vec![0], 0);
        for end in &packs.ends {
            for segment in 1..=end - piece {
                let Piece { row, offset, length } = packs.pieces[piece];
                let (begins, last) = (offset == 0, offset + length == texts.lengths[row as usize]);
                let own = (offset..offset + length).map(|at| token(row, at));
                let own: Vec<i32> = begins.then_some(1).into_iter().chain(own).chain(last.then_some(2)).collect();
                let next = if last { -100 } else { i64::from(token(row, offset + length)) };
                let places = own.len().next_multiple_of(4);
                lengths.push(own.len() as i32);
                labels.extend(own[1..].iter().map(|token| i64::from(*token)).chain([next]));
                labels.resize(tokens.len() + places, -100);
                segments.resize(tokens.len() + own.len(), segment as i32);
                tokens.extend(own);
                tokens.resize(labels.len(), 9);
                segments.resize(labels.len(), 0);
                positions.extend(0..places as i64);
                ends.push(labels.len() as i32);
                piece += 1;
            }
            pack_ends.push(labels.len() as i32);
        }
        assert_eq!(made.tokens.as_primitive::<Int32Type>().values(), &tokens[..]);
        assert_eq!((&*made.cu_seqlens, &*made.pack_offsets, &*made.lengths), (&*ends, &*pack_ends, &*lengths));
        assert_eq!((&*made.position_ids, &*made.segment_ids), (&*positions, &*segments));
        assert_eq!(made.labels.unwrap(), labels);
        assert_eq!(made.max_seqlen, ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap());
        assert!(pack_ends.windows(2).all(|pair| pair[1] - pair[0] <= 16));

        // As rows of the capacity.
        let rows = batch.sequences(&Sequencing { layout: PackLayout::Rows, ..how }).unwrap();
        let values = rows.tokens.as_primitive::<Int32Type>().values();
        assert_eq!(values.len(), 16 * packs.ends.len());
        for (number, pair) in pack_ends.windows(2).enumerate() {
            let [first, last] = [pair[0] as usize, pair[1] as usize];
            let (row, places) = (number * 16, last - first);
            assert_eq!(values[row..row + places], tokens[first..last]);
            assert!(values[row + places..row + 16].iter().all(|token| *token == 9));
            assert!(rows.segment_ids[row + places..row + 16].iter().all(|segment| *segment == 0));
            assert!(rows.labels.as_ref().unwrap()[row + places..row + 16].iter().all(|label| *label == -100));
            assert!(rows.position_ids[row + places..row + 16].iter().copied().eq(0..(16 - places) as i64));
        }
    }
    let none = of_packs(&texts.global(Pack::of(16)), 0, 1, 2, Tail::Even);
    let batch = texts.builder(&none).build().unwrap().next().unwrap().unwrap();
    // Without anything added the tokens stay where they are.
    let bare = batch.sequences(&Sequencing { labels: false, ..Sequencing::default() }).unwrap();
    let lists = batch.records.column(1).as_list::<i32>();
    let first = lists.value_offsets()[0] as usize;
    let values = lists.values().as_primitive::<Int32Type>().values();
    assert_eq!(bare.tokens.as_primitive::<Int32Type>().values().as_ptr(), values[first..].as_ptr());
    assert!(bare.labels.is_none());
    let error = batch.sequences(&Sequencing { bos: Some(1), ..Sequencing::default() }).unwrap_err();
    assert!(error.to_string().contains("reserve 0 extra"), "{error}");
}

#[test]
fn tokens_in_structs_and_in_large_lists_are_cut_as_others_are() {
    let lengths = [5_u64, 40, 7, 0, 33];
    let lists = |row: u64| Some((0..lengths[row as usize]).map(move |at| Some(i64::from(token(row, at)))));
    let large = LargeListArray::from_iter_primitive::<Int64Type, _, _>((0..5).map(lists));
    let field = Arc::new(Field::new("tokens", large.data_type().clone(), true));
    let kind = Arc::new(Field::new("kind", DataType::UInt64, false));
    let kinds: ArrayRef = Arc::new(UInt64Array::from_iter_values(50..55));
    let doc = arrow_array::StructArray::from(vec![(kind, kinds), (field, Arc::new(large) as ArrayRef)]);
    let (_dir, dataset) = one_file([("doc", Arc::new(doc) as ArrayRef)], 2, WriterProperties::builder());
    let packed = Packed::new(orders(true, 5), Arc::new(lengths.to_vec()), Pack::of(16)).unwrap();
    let sampler = of_packs(&Arc::new(packed), 0, 1, 2, Tail::Even);
    let mut tokens = BTreeSet::new();
    for batch in Loader::builder(&dataset, sampler).tokens("doc.tokens").epochs(1).build().unwrap() {
        let batch = batch.unwrap();
        let doc = batch.records.column(0).as_struct();
        let kinds = doc.column(0).as_primitive::<UInt64Type>();
        assert!(kinds.values().iter().zip(&batch.row_ids).all(|(kind, row)| *kind == 50 + row));
        let made = batch.sequences(&Sequencing::default()).unwrap();
        let values = made.tokens.as_primitive::<Int64Type>().values();
        tokens.extend(values.iter().copied());
        assert_eq!(values.len(), *made.pack_offsets.last().unwrap() as usize);
    }
    let all = (0..5_u64).flat_map(|row| (0..lengths[row as usize]).map(move |at| i64::from(token(row, at))));
    assert_eq!(tokens, all.collect());
}

#[test]
fn ranks_that_share_a_reader_go_on_with_buckets_that_other_ranks_cut() {
    use super::share::{all, in_time, share};

    in_time(|| {
        let lengths: Vec<u64> = (0..300).map(|row| row * 7 % 50).collect();
        let texts = texts(&lengths, 25);
        let buckets = texts.global(Pack::buckets(60));
        let state = of_packs(&buckets, 0, 5, 4, Tail::Uneven).state_after(0, 4).unwrap();
        let fresh = |rank| of_packs(&buckets, rank, 3, 2, Tail::Uneven);
        let mut samplers: Vec<_> = (0..3).map(fresh).collect();
        samplers.iter_mut().for_each(|sampler| sampler.resume(&state).unwrap());
        for serves in [false, true] {
            let share = share(3);
            let options = |sampler: &DistributedSampler| texts.builder(sampler).memory(20_000).threads(0).epochs(2);
            let server = serves.then(|| options(&fresh(1)).share(share.clone()).serve().unwrap());
            let loaders = samplers.iter().map(|sampler| options(sampler).share(share.clone()).build().unwrap());
            let steps = samplers[0].steps_left() + fresh(0).plan(1).unwrap().steps();
            let served = all(loaders.collect(), |rank, loader| texts.run(loader, &samplers[rank..=rank]));
            assert_eq!(served, [steps; 3]);
            drop(server);
        }
    });
}
