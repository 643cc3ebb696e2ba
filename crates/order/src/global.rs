//! A permutation of all rows, another one each epoch.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::fingerprint::fingerprint;
use super::permutation::{Permutation, PermutationKey};
use super::{EpochOrder, Order, OrderKind, OrderSpec, Outline, Uses, check_len, reachable};
use rowdex_base::error::Result;

/// A true global shuffle: every epoch is a permutation of all rows, drawn from (seed, epoch) as *order v1*.
///
/// Up to 2^16 rows it is a Fisher-Yates shuffle, held as a table. Beyond, it is a keyed bijection computed for each
/// position: 88 bytes for any length, nothing to prepare, and the inverse costs what the forward direction costs.
/// `docs/orders.md` has the exact algorithm and measurements. Its sources: Luby and Rackoff, 1988 (Feistel networks);
/// Black and Rogaway, 2002 (cycle walking); Durstenfeld, 1964 (the shuffle).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Global {
    len: u64,
    seed: u64,
}

impl Global {
    const NAME: &str = "global";

    /// Global shuffles of `len` rows. Every seed is as good as any other.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `len` exceeds [`MAX_LEN`](super::MAX_LEN).
    pub fn new(len: u64, seed: u64) -> Result<Self> {
        Ok(Self { len: check_len(len)?, seed })
    }
}

impl Order for Global {
    fn len(&self) -> u64 {
        self.len
    }

    fn rows(&self) -> Option<u64> {
        Some(self.len)
    }

    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        Ok(Arc::new(GlobalEpoch(Permutation::new(self.len, &PermutationKey::order_v1(self.seed, epoch)))))
    }

    fn fingerprint(&self) -> u64 {
        fingerprint(Self::NAME, self.len, &[self.seed])
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn outline(&self) -> Outline {
        Outline::new(OrderKind::Named(OrderSpec::Global)).seeded(self.seed)
    }
}

/// One epoch of [`Global`].
#[derive(Debug)]
struct GlobalEpoch(Permutation);

impl EpochOrder for GlobalEpoch {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn row(&self, position: u64) -> Option<u64> {
        self.0.forward(position)
    }

    fn position(&self, row: u64) -> Option<u64> {
        self.0.inverse(row)
    }

    fn uses(&self) -> Uses {
        Uses::Once
    }

    fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        let count = reachable(first, stride, self.len(), rows.len());
        let rows = &mut rows[..count];
        super::stride(first, stride, rows);
        self.0.forward_all(rows);
        count
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;
    use crate::{MAX_LEN, conformance};

    fn rows(len: u64, seed: u64, epoch: u64, first: u64, count: usize) -> Vec<u64> {
        let mut rows = vec![0; count];
        let written = Global::new(len, seed).unwrap().epoch(epoch).unwrap().fill(first, &mut rows);
        rows.truncate(written);
        rows
    }

    /// Up to 1024 positions spread evenly over the order.
    fn sample_hash(len: u64, seed: u64, epoch: u64) -> u64 {
        let order = Global::new(len, seed).unwrap().epoch(epoch).unwrap();
        let step = (len / 1024).max(1);
        let bytes: Vec<u8> =
            (0..1024).map_while(|i| order.row(i * step)).flat_map(|row: u64| row.to_le_bytes()).collect();
        xxh3_64(&bytes)
    }

    #[test]
    fn global_orders_keep_the_contract() {
        let lengths = [0, 1, 2, 3, 299, 65_535, 65_536, 65_537];
        for len in lengths.into_iter().take(if cfg!(miri) { 5 } else { 8 }) {
            conformance::check(&Global::new(len, 5).unwrap(), [1]).unwrap();
        }
    }

    #[test]
    fn runs_with_other_rows_or_seed_have_other_fingerprints() {
        let fingerprint = |len, seed| Global::new(len, seed).unwrap().fingerprint();
        assert_eq!(fingerprint(10, 1), fingerprint(10, 1));
        assert_ne!(fingerprint(10, 1), fingerprint(11, 1));
        assert_ne!(fingerprint(10, 1), fingerprint(10, 2));
    }

    proptest! {
        #[test]
        fn positions_and_rows_of_large_orders_are_inverses(
            len in 65_537..=MAX_LEN, seed: u64, epoch: u64, place in 0.0..1.0_f64,
        ) {
            let order = Global::new(len, seed).unwrap().epoch(epoch).unwrap();
            let x = ((len as f64 * place) as u64).min(len - 1);
            prop_assert!(order.row(x).unwrap() < len);
            prop_assert_eq!(order.position(order.row(x).unwrap()), Some(x));
            prop_assert_eq!(order.row(order.position(x).unwrap()), Some(x));
        }
    }

    /// The numbers of order v1. People resume and compare training runs over years by them: a change here changes the
    /// data of every run, so a new algorithm needs a new version, never new numbers.
    #[test]
    fn order_v1_is_frozen() {
        let golden: &[(u64, u64, u64, &[u64], u64)] = &[
            (0, 0, 0, &[], 0x2d06_8005_38d3_94c2),
            (0, 0, 1, &[], 0x2d06_8005_38d3_94c2),
            (0, 1, 0, &[], 0x2d06_8005_38d3_94c2),
            (0, u64::MAX, 1_000_000, &[], 0x2d06_8005_38d3_94c2),
            (1, 0, 0, &[0], 0xc77b_3abb_6f87_acd9),
            (1, 0, 1, &[0], 0xc77b_3abb_6f87_acd9),
            (1, 1, 0, &[0], 0xc77b_3abb_6f87_acd9),
            (1, u64::MAX, 1_000_000, &[0], 0xc77b_3abb_6f87_acd9),
            (2, 0, 0, &[0, 1], 0x0cfb_aea7_4a8c_c0e5),
            (2, 0, 1, &[1, 0], 0x26f2_a114_8cf5_2011),
            (2, 1, 0, &[1, 0], 0x26f2_a114_8cf5_2011),
            (2, u64::MAX, 1_000_000, &[0, 1], 0x0cfb_aea7_4a8c_c0e5),
            (10, 0, 0, &[9, 7, 4, 3, 0, 1], 0xdf4e_72ab_8bc2_0839),
            (10, 0, 1, &[5, 0, 9, 7, 1, 8], 0xf70a_f74e_4f91_932e),
            (10, 1, 0, &[6, 9, 7, 4, 0, 8], 0x1e91_b1bd_466a_9e58),
            (10, u64::MAX, 1_000_000, &[3, 1, 0, 9, 6, 2], 0x6e53_3c0e_c1cb_6930),
            (1000, 0, 0, &[240, 940, 592, 407, 691, 99], 0xe52b_9c05_9b81_a024),
            (1000, 0, 1, &[745, 84, 191, 25, 75, 314], 0x9cdd_ecb2_5105_97c5),
            (1000, 1, 0, &[285, 974, 803, 749, 827, 859], 0x395c_b2fa_8485_c81b),
            (1000, u64::MAX, 1_000_000, &[782, 272, 899, 698, 818, 884], 0xa81d_e9cf_5bb6_2fd9),
            (65_536, 0, 0, &[41_318, 59_296, 56_740, 61_856, 3320, 19_376], 0x54f7_7912_23e2_bd9a),
            (65_536, 0, 1, &[58_014, 42_993, 37_473, 2957, 38_807, 6350], 0xc944_ea78_6d14_58cf),
            (65_536, 1, 0, &[17_104, 37_488, 34_413, 30_421, 6146, 6124], 0x683b_9281_237c_7adc),
            (65_536, u64::MAX, 1_000_000, &[22_570, 23_281, 2964, 20_903, 56_395, 27_019], 0x6241_37ff_5f17_20b1),
            (65_537, 0, 0, &[62_957, 55_725, 2259, 12_692, 11_390, 55_982], 0x8450_2d11_bf62_d52d),
            (65_537, 0, 1, &[9436, 58_826, 18_182, 25_279, 4631, 8290], 0x8996_64e2_7fed_4125),
            (65_537, 1, 0, &[21_869, 62_783, 13_813, 51_959, 16_557, 33_361], 0x9e48_c5a5_d9ef_974e),
            (65_537, u64::MAX, 1_000_000, &[20_869, 51_343, 9300, 48_095, 18_937, 19_839], 0x3902_cc39_b1c0_272b),
            (1_000_000, 0, 0, &[478_892, 320_958, 984_369, 479_941, 345_310, 32_241], 0x5476_e0f0_3bc7_73c2),
            (1_000_000, 0, 1, &[556_401, 994_364, 894_178, 633_327, 767_209, 478_934], 0xa6fa_7ec7_7294_2daa),
            (1_000_000, 1, 0, &[645_418, 885_816, 456_281, 780_123, 89_942, 657_307], 0x2386_8460_4c47_56d6),
            (
                1_000_000,
                u64::MAX,
                1_000_000,
                &[340_839, 384_749, 252_398, 446_023, 607_127, 152_490],
                0x681a_e547_8f84_b6b4,
            ),
            (
                1_000_000_000,
                0,
                0,
                &[944_491_240, 47_387_184, 248_602_598, 307_691_399, 835_206_625, 808_990_085],
                0xe87a_3e2f_4cf8_f008,
            ),
            (
                1_000_000_000,
                0,
                1,
                &[517_400_773, 553_065_303, 711_439_745, 13_080_324, 487_927_676, 280_512_040],
                0x162a_dfa8_2cd3_1f66,
            ),
            (
                1_000_000_000,
                1,
                0,
                &[182_345_243, 272_212_210, 92_953_646, 392_314_529, 862_282_013, 407_183_068],
                0x9882_4871_0dea_1e91,
            ),
            (
                1_000_000_000,
                u64::MAX,
                1_000_000,
                &[642_072_993, 462_971_575, 335_802_389, 209_491_939, 322_546_466, 562_719_550],
                0xfe61_da0a_23bc_117d,
            ),
            (
                (1 << 40) + 7,
                0,
                0,
                &[540_145_441_809, 516_234_214_810, 148_038_277_598, 364_017_984_063, 255_775_769_518, 510_330_915_428],
                0x3d51_1bea_bfee_6c64,
            ),
            (
                (1 << 40) + 7,
                0,
                1,
                &[393_307_656_226, 434_813_791_224, 273_365_303_391, 837_092_145_980, 145_164_113_138, 662_329_808_213],
                0x6af3_0f9f_94f6_c5a1,
            ),
            (
                (1 << 40) + 7,
                1,
                0,
                &[615_162_470_910, 5_873_931_084, 611_416_344_028, 957_970_373_426, 370_839_459_304, 536_486_133_515],
                0x8127_2e4e_693f_9936,
            ),
            (
                (1 << 40) + 7,
                u64::MAX,
                1_000_000,
                &[51_853_183_142, 1_039_387_322_884, 61_947_987_990, 282_255_597_892, 361_475_496_011, 696_899_618_056],
                0xaf0c_5275_3e80_c710,
            ),
            (
                1_000_000_000_000,
                0,
                0,
                &[726_020_918_018, 74_971_182_029, 479_035_136_305, 256_409_036_178, 24_508_650_845, 476_712_783_635],
                0xe365_1023_bb42_1132,
            ),
            (
                1_000_000_000_000,
                0,
                1,
                &[318_328_049_188, 512_337_614_363, 656_949_872_128, 413_225_699_206, 615_086_864_282, 491_483_697_637],
                0xc8e0_72a3_29b0_8c2b,
            ),
            (
                1_000_000_000_000,
                1,
                0,
                &[574_395_845_212, 386_263_182_940, 827_515_318_092, 159_159_707_518, 999_574_351_267, 771_207_906_511],
                0xe7ee_3cb3_b10d_2a43,
            ),
            (
                1_000_000_000_000,
                u64::MAX,
                1_000_000,
                &[892_699_904_943, 702_781_541_750, 793_740_943_528, 245_567_672_310, 244_626_976, 555_088_485_731],
                0x78fc_240e_3f26_1eca,
            ),
            (
                MAX_LEN,
                0,
                0,
                &[
                    8_638_877_219_978_879_965,
                    2_761_224_851_090_023_502,
                    7_359_836_496_936_545_679,
                    8_669_680_152_538_583_011,
                    8_554_748_958_658_030_463,
                    891_438_722_013_456_646,
                ],
                0x7118_2081_a297_d937,
            ),
            (
                MAX_LEN,
                0,
                1,
                &[
                    1_397_014_396_912_595_683,
                    4_729_070_029_653_208_748,
                    1_460_509_512_356_868_729,
                    2_731_718_065_725_578_498,
                    4_711_517_167_826_606_497,
                    7_969_224_780_257_602_012,
                ],
                0x830f_a86f_1ad5_0bee,
            ),
            (
                MAX_LEN,
                1,
                0,
                &[
                    1_649_095_782_455_907_403,
                    1_295_428_169_361_134_494,
                    7_534_449_042_482_702_792,
                    5_191_721_562_029_145_032,
                    6_788_309_883_231_206_002,
                    3_337_419_280_753_982_362,
                ],
                0x8ad9_d6a3_7244_c376,
            ),
            (
                MAX_LEN,
                u64::MAX,
                1_000_000,
                &[
                    1_538_334_807_510_919_189,
                    5_272_106_340_729_595_205,
                    7_388_412_888_653_418_829,
                    7_827_405_365_543_598_583,
                    3_844_263_953_380_318_419,
                    3_138_952_019_517_082_699,
                ],
                0xf1ba_f698_417f_8b9e,
            ),
        ];
        for &(len, seed, epoch, first, hash) in golden {
            assert_eq!(rows(len, seed, epoch, 0, 6), first, "{len} {seed} {epoch}");
            assert_eq!(sample_hash(len, seed, epoch), hash, "{len} {seed} {epoch}");
        }
    }
}
