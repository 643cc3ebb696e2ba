use super::tuning::FREE;
use super::*;
use rowdex_order::{Global, Order, Sequential};
use rowdex_rows::Cutting;

fn plan(sizes: &[UnitSize], memory: u64, batch_rows: u64, cutting: Cutting) -> Plan {
    Plan::new(sizes, Budget { memory: memory as f64, batch_rows, cutting }, 1, 1)
}

/// Decodes of each epoch, of a run over units of these sizes.
fn decodes(sizes: &[UnitSize], memory: u64, orders: &dyn Order, batch: u64, epochs: u64) -> (Vec<f64>, u64) {
    let run = run(plan(sizes, memory, batch, Cutting::Packed), sizes, orders, batch, epochs);
    (run.decodes, run.peak)
}

/// What came of a run over an order.
struct Outcome {
    /// Decodes of each epoch, as a part of all units.
    decodes: Vec<f64>,
    /// Extractions of all epochs.
    extractions: usize,
    peak: u64,
}

fn run(mut plan: Plan, sizes: &[UnitSize], orders: &dyn Order, batch: u64, epochs: u64) -> Outcome {
    let mut starts = vec![0u64];
    for size in sizes {
        starts.push(starts[starts.len() - 1] + size.rows);
    }
    let place = |row: u64| {
        let unit = starts.partition_point(|start| *start <= row) - 1;
        (unit as u32, (row - starts[unit]) as u32)
    };
    let (mut counts, mut at, mut served, mut decodes, mut extractions) = (Vec::new(), 0, 0, 0, 0);
    let (len, mut epoch) = (orders.len(), 0);
    let mut order = orders.epoch(0).unwrap();
    loop {
        match plan.next(true) {
            PlanAnswer::Look if epoch == epochs => plan.ended = true,
            PlanAnswer::Look => {
                let rows = plan.segment_rows().next_multiple_of(batch).min(len - at);
                let rows: Vec<_> = (at..at + rows).map(|q| place(order.row(q).unwrap())).collect();
                at += rows.len() as u64;
                plan.push(&one_by_one(&rows), true);
                if at == len {
                    (at, epoch) = (0, epoch + 1);
                    order = orders.epoch(epoch).unwrap();
                }
            }
            PlanAnswer::Extract(extract) => {
                (decodes, extractions) = (decodes + u32::from(extract.decode), extractions + 1)
            }
            PlanAnswer::Segment(parts) => {
                served += parts.iter().map(|(_, rows)| u64::from(*rows)).sum::<u64>();
                if served == len {
                    counts.push(f64::from(decodes) / sizes.len() as f64);
                    (served, decodes) = (0, 0);
                }
            }
            PlanAnswer::End => return Outcome { decodes: counts, extractions, peak: plan.peak() },
        }
    }
}

fn one_by_one(places: &[(u32, u32)]) -> Vec<Neighbours> {
    places.iter().map(|&(unit, slot)| Neighbours { unit, slot, rows: 1, tokens: None }).collect()
}

fn even(units: usize, rows: u64) -> Vec<UnitSize> {
    vec![UnitSize { rows, bytes: rows * 100, cost: rows * 100 }; units]
}

fn bytes(sizes: &[UnitSize]) -> f64 {
    sizes.iter().map(|size| size.bytes as f64).sum()
}

#[test]
fn a_group_is_decoded_every_two_memories_under_a_global_order() {
    let sizes = even(32, 8000);
    let orders = Global::new(256_000, 1).unwrap();
    for (part, ideal) in [(0.1, 5.0), (0.25, 2.0), (0.5, 1.0), (0.75, 0.5)] {
        let memory = (bytes(&sizes) * part) as u64;
        let (epochs, peak) = decodes(&sizes, memory, &orders, 16, 4);
        for steady in &epochs[1..3] {
            assert!((ideal * 0.99..ideal * 1.1 + 0.15).contains(steady), "{part}: {epochs:?}");
        }
        assert!(epochs[0] <= ideal * 1.1 + 1.15, "{part}: {epochs:?}");
        assert!(peak as f64 <= memory as f64 * 1.1, "{part}: {peak} of {memory}");
    }
}

#[test]
fn long_rows_of_small_units_are_kept_as_long_as_those_of_large_ones() {
    const ROW: u64 = 20_000;
    let sizes = vec![UnitSize { rows: 100, bytes: 100 * ROW, cost: 100 * ROW }; 160];
    let orders = Global::new(16_000, 1).unwrap();
    for (part, ideal) in [(0.2, 2.5), (0.4, 1.25)] {
        let memory = (bytes(&sizes) * part) as u64;
        let plan = plan(&sizes, memory, 8, Cutting::Long(1280));
        let Outcome { decodes, peak, .. } = run(plan, &sizes, &orders, 8, 4);
        assert!((ideal * 0.99..ideal * 1.15 + 0.1).contains(&decodes[2]), "{part}: {decodes:?}");
        assert!(peak as f64 <= memory as f64 * 1.1, "{part}: {peak} of {memory}");
    }
}

#[test]
fn rows_of_units_that_stay_are_asked_for_many_at_a_time() {
    const ROW: u64 = 2_670;
    let sizes = vec![UnitSize { rows: 1_000, bytes: 1_000 * ROW, cost: 1_000 * ROW }; 100];
    let memory = bytes(&sizes) as u64 / 10 * 11;
    let run = |cutting| run(plan(&sizes, memory, 256, cutting), &sizes, &Global::new(100_000, 1).unwrap(), 256, 3);
    let (pointed_at, copied) = (run(Cutting::Long(1792)), run(Cutting::Short(1792)));
    assert_eq!((&pointed_at.decodes, &copied.decodes), (&vec![1.0, 0.0, 0.0], &vec![1.0, 0.0, 0.0]));
    assert!(pointed_at.extractions < 300_000 / 100, "{}", pointed_at.extractions);
    assert!(copied.extractions > pointed_at.extractions * 10, "rows that are copied take memory");
    assert!(pointed_at.peak <= memory, "{} of {memory}", pointed_at.peak);
}

#[test]
fn what_is_known_of_rows_is_a_part_of_the_memory_where_it_is_as_much_as_the_rows() {
    let rows = 150_000;
    let sizes = vec![UnitSize { rows, bytes: rows, cost: rows }; 10];
    let memory = bytes(&sizes) * 0.5;
    let (epochs, peak) = decodes(&sizes, memory as u64, &Global::new(10 * rows, 1).unwrap(), 256, 3);
    assert!(peak as f64 <= memory * 1.1, "{peak} of {memory}");
    // Three bytes are known of each row of one, but for a megabyte in all, and more while it is got out of its
    // unit.
    // Rows alone would need one pass.
    let law = bytes(&sizes) * (1.0 + 3.2) / 2.0 / (memory + FREE as f64);
    assert!((law..law * 2.2).contains(&epochs[1]), "{epochs:?}, {law}");
}

#[test]
fn everything_is_decoded_once_when_it_fits() {
    let sizes = even(64, 2000);
    for memory in [1.0, 3.0] {
        let memory = (bytes(&sizes) * memory) as u64;
        let (epochs, _) = decodes(&sizes, memory, &Global::new(128_000, 1).unwrap(), 16, 3);
        assert_eq!(epochs, [1.0, 0.0, 0.0]);
    }
}

#[test]
fn an_order_that_follows_the_files_is_a_scan() {
    let sizes = even(64, 2000);
    for part in [0.03, 0.1, 0.5] {
        let memory = (bytes(&sizes) * part) as u64;
        let (epochs, peak) = decodes(&sizes, memory, &Sequential::new(128_000).unwrap(), 16, 3);
        assert!(epochs.iter().all(|epoch| *epoch <= 1.1), "{part}: {epochs:?}");
        assert!(peak as f64 <= memory as f64 * 1.05, "{part}: {peak} of {memory}");
    }
}

#[test]
fn groups_of_all_sizes_keep_to_the_memory() {
    let size = |unit: u64| UnitSize { rows: 50 * (unit % 17), bytes: 5000 * (unit % 17), cost: 5000 * (unit % 17) };
    let sizes: Vec<UnitSize> = (0..200).map(size).collect();
    let rows = sizes.iter().map(|size| size.rows).sum();
    let memory = bytes(&sizes) / 10.0;
    let (epochs, peak) = decodes(&sizes, memory as u64, &Global::new(rows, 1).unwrap(), 16, 4);
    assert!(epochs[1..3].iter().all(|epoch| (4.0..8.0).contains(epoch)), "{epochs:?}");
    assert!(peak as f64 <= memory * 1.1, "{peak} of {memory}");
}

#[test]
fn groups_that_cost_more_are_decoded_less_often() {
    let mut sizes = even(64, 2000);
    sizes[..8].iter_mut().for_each(|size| size.cost *= 9);
    let mut plan = plan(&sizes, bytes(&sizes) as u64 / 10, 16, Cutting::Packed);
    plan.units.iter_mut().for_each(|unit| unit.seen = true);
    let dear = plan.until(0, 0) as f64 / plan.until(63, 0) as f64;
    assert!((2.5..3.1).contains(&dear), "{dear}");
}

#[test]
fn the_first_batch_asks_for_no_group_but_its_own() {
    let mut plan = plan(&even(64, 2000), 1 << 20, 4, Cutting::Packed);
    let mut asked = 0;
    loop {
        match plan.next(true) {
            PlanAnswer::Look => {
                let rows: Vec<_> = (0..plan.segment_rows()).map(|i| ((i * 7 % 64) as u32, 0)).collect();
                plan.push(&one_by_one(&rows), true);
            }
            PlanAnswer::Extract(_) => asked += 1,
            _ => break,
        }
    }
    assert_eq!(asked, 4);
}
