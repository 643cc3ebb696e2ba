//! What every [`Orders`] promises, as one list of checks to run over any of them.

use super::Orders;

/// Checks the contract of `orders` over these epochs. They must be short enough to list.
#[track_caller]
pub(super) fn assert_kept(orders: &dyn Orders, epochs: impl IntoIterator<Item = u64>) {
    let len = orders.len();
    let most = orders.rows();
    for epoch in epochs {
        let order = orders.epoch(epoch).unwrap();
        assert_eq!(order.len(), len);
        let rows: Vec<u64> = (0..len).map(|q| order.row(q).unwrap()).collect();
        assert_eq!((order.row(len), order.row(u64::MAX)), (None, None));
        assert!(rows.iter().all(|row| most.is_none_or(|most| *row < most)), "epoch {epoch}: a row beyond {most:?}");
        let again = orders.epoch(epoch).unwrap();
        assert!((0..len).rev().all(|q| again.row(q) == Some(rows[q as usize])), "epoch {epoch} is not pure");

        for row in 0..most.unwrap_or_else(|| rows.iter().max().map_or(0, |row| row + 1)) {
            match order.position(row) {
                Some(q) => assert_eq!(order.row(q), Some(row), "epoch {epoch}"),
                None => assert!(!rows.contains(&row), "epoch {epoch}: row {row} is served"),
            }
        }
        assert_eq!(order.position(u64::MAX), None);

        let mut filled = vec![0; rows.len() + 3];
        for (first, stride) in [(0, 1), (1, 1), (0, 3), (2, 7), (len / 2, 1), (len, 1), (0, len + 1), (1, u64::MAX)] {
            let expected: Vec<u64> = match usize::try_from(stride) {
                Ok(stride) => rows.iter().skip(first as usize).step_by(stride).copied().collect(),
                Err(_) => rows.iter().skip(first as usize).take(1).copied().collect(),
            };
            let written = order.fill_strided(first, stride, &mut filled);
            assert_eq!(filled[..written], expected, "epoch {epoch}, from {first} by {stride}");
            let some = expected.len() / 2;
            assert_eq!(order.fill_strided(first, stride, &mut filled[..some]), some);
            assert_eq!(filled[..some], expected[..some]);
        }
    }
}
