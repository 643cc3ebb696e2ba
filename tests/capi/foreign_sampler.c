/* A sampler of one's own, in C: it draws later rows more often, and rowdex serves them, as it prefetches them, one
 * batch at a time, or as an order. */
#include "check.h"

enum { SAMPLES = 20000, BATCH = 500 };

static uint64_t next(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

/* With replacement: of two rows the later one. */
static void draw(uint64_t *rows) {
  uint64_t state = 7;
  for (int i = 0; i < SAMPLES; i++) {
    uint64_t a = next(&state) % DEMO_ROWS, b = next(&state) % DEMO_ROWS;
    rows[i] = a > b ? a : b;
  }
}

static void its_rows_are_taken_batch_by_batch(const rowdex_dataset *dataset, const uint64_t *rows) {
  for (int start = 0; start < SAMPLES; start += BATCH * 8) {
    int64_t ids[BATCH];
    OK(take_ids(dataset, rows + start, BATCH, ids, &error));
    for (int i = 0; i < BATCH; i++) CHECK(ids[i] == (int64_t)rows[start + i]);
  }
}

/* Takes rows [start, end) of the order in portions of BATCH, one of them longer and one shorter, and looks at their
 * values. */
static void take_and_compare(rowdex_prefetched *prefetched, const uint64_t *rows, int start, int end) {
  for (int portion = BATCH, odd = 0; start < end; start += portion, odd++) {
    portion = odd == 1 ? BATCH + 7 : odd == 2 ? BATCH - 7 : BATCH;
    if (portion > end - start) portion = end - start;
    int64_t ids[BATCH + 7];
    OK(take_ids(prefetched, rows + start, (size_t)portion, ids, &error));
    for (int i = 0; i < portion; i++) CHECK(ids[i] == (int64_t)rows[start + i]);
  }
}

static void its_order_is_prefetched_and_taken(const rowdex_dataset *dataset, const uint64_t *rows) {
  rowdex_prefetched_options options = {.memory = 400000, .threads = 1};
  rowdex_prefetched *prefetched = NULL;
  OK(rowdex_dataset_prefetch(dataset, rows, SAMPLES / 2, &options, &prefetched, &error));
  take_and_compare(prefetched, rows, 0, SAMPLES / 4);
  /* More is prefetched while some is still ahead. */
  OK(rowdex_prefetched_prefetch(prefetched, rows + SAMPLES / 2, SAMPLES / 2, &error));
  CHECK(number_of(prefetched, "waiting") == SAMPLES - SAMPLES / 4);
  take_and_compare(prefetched, rows, SAMPLES / 4, SAMPLES);
  CHECK(number_of(prefetched, "prefetched") == SAMPLES && number_of(prefetched, "followed") == SAMPLES);
  CHECK(number_of(prefetched, "fell_back") == 0 && number_of(prefetched, "waiting") == 0);
  /* Each of the 40 portions has rows of nearly all row groups; without a plan these would be decoded for each. */
  CHECK(number_of(prefetched, "decodes") >= DEMO_ROW_GROUPS && number_of(prefetched, "decodes") < 8 * DEMO_ROW_GROUPS);

  /* Rows that were never prefetched are served as well, and so is an order that is prefetched after another was given
   * up. */
  const uint64_t other[] = {3, 199999, 3};
  struct ArrowArray array;
  struct ArrowSchema schema;
  OK(take_array(prefetched, other, 3, &array, &schema, &error));
  CHECK(array.length == 3 && int64_values(&array, 0)[1] == 199999 && strcmp(schema.children[0]->name, "id") == 0);
  schema.release(&schema);
  CHECK(number_of(prefetched, "fell_back") == 3);
  OK(rowdex_prefetched_prefetch(prefetched, rows, SAMPLES, &error));
  OK(rowdex_prefetched_clear(prefetched, &error));
  CHECK(number_of(prefetched, "waiting") == 0);
  OK(rowdex_prefetched_prefetch(prefetched, rows + 5, 1000, &error));
  rowdex_batch *batch = NULL;
  OK(rowdex_take(prefetched, rows + 5, BATCH, &batch, &error));
  CHECK(number_of(prefetched, "followed") == SAMPLES + BATCH);
  rowdex_free(prefetched);
  /* What was taken outlives the handle. */
  CHECK(int64_values(&array, 0)[2] == 3);
  array.release(&array);
  rowdex_batch_info info = {0};
  OK(rowdex_batch_get_info(batch, &info, &error));
  CHECK(info.num_rows == BATCH && info.row_ids[0] == rows[5] && info.num_substituted == 0);
  rowdex_free(batch);
}

static void what_is_not_there_cannot_be_prefetched(const rowdex_dataset *dataset) {
  const uint64_t good[] = {1, 2}, bad[] = {1, DEMO_ROWS};
  rowdex_prefetched *prefetched = NULL;
  FAILS(rowdex_dataset_prefetch(dataset, bad, 2, NULL, &prefetched, &error), ROWDEX_STATUS_OUT_OF_RANGE, "200000");
  CHECK(prefetched == NULL);
  OK(rowdex_dataset_prefetch(dataset, NULL, 0, NULL, &prefetched, &error));
  FAILS(rowdex_prefetched_prefetch(prefetched, bad, 2, &error), ROWDEX_STATUS_OUT_OF_RANGE, "place 1");
  CHECK(number_of(prefetched, "prefetched") == 0);
  OK(rowdex_prefetched_prefetch(prefetched, good, 2, &error));
  struct ArrowArray array;
  memset(&array, 1, sizeof array);
  const struct ArrowArray untouched = array;
  FAILS(take_array(prefetched, bad, 2, &array, NULL, &error), ROWDEX_STATUS_OUT_OF_RANGE, "0 to 199999");
  CHECK(memcmp(&array, &untouched, sizeof array) == 0);
  int64_t ids[2];
  OK(take_ids(prefetched, good, 2, ids, &error));
  CHECK(ids[0] == 1 && ids[1] == 2);
  OK(take_array(prefetched, NULL, 0, &array, NULL, &error));
  CHECK(array.length == 0);
  array.release(&array);
  rowdex_free(prefetched);
}

static void its_rows_are_an_order_for_the_loader(const rowdex_dataset *dataset, const uint64_t *rows) {
  rowdex_order *orders = NULL;
  uint64_t dataset_rows = 10;
  order_spec listed = {.group_rows = &dataset_rows, .num_groups = 1,
                                 .row_ids = rows, .num_row_ids = SAMPLES};
  FAILS(order_of(&listed, &orders, &error), ROWDEX_STATUS_OUT_OF_RANGE, "10 rows");
  CHECK(orders == NULL);
  dataset_rows = DEMO_ROWS;
  OK(order_of(&listed, &orders, &error));
  CHECK(number_of(orders, "rows") == SAMPLES);
  /* Two ranks take turns in the list. */
  for (uint32_t rank = 0; rank < 2; rank++) {
    rowdex_sampler_options options = {.rank = rank, .world_size = 2,
                                      .batch_size = BATCH};
    rowdex_sampler *sampler = NULL;
    OK(rowdex_sampler_new(orders, &options, &sampler, &error));
    rowdex_loader_options settings = {.memory = 200000, .threads = 1, .epochs = 1};
    rowdex_loader *loader = NULL;
    OK(rowdex_loader_new(dataset, sampler, &settings, &loader, &error));
    rowdex_free(sampler);
    int64_t place = rank;
    for (;;) {
      rowdex_batch *batch = NULL;
      OK(rowdex_loader_next(loader, &batch, &error));
      if (batch == NULL) break;
      int64_t ids[BATCH];
      ids_of(batch, ids);
      for (int i = 0; i < BATCH; i++, place += 2) CHECK(ids[i] == (int64_t)rows[place]);
      rowdex_free(batch);
    }
    CHECK(place == SAMPLES + rank);
    rowdex_free(loader);
  }
  rowdex_free(orders);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  static uint64_t rows[SAMPLES];
  draw(rows);
  rowdex_dataset *dataset = open_dataset(argv[1], "id");
  its_order_is_prefetched_and_taken(dataset, rows);
  what_is_not_there_cannot_be_prefetched(dataset);
  its_rows_are_taken_batch_by_batch(dataset, rows);
  its_rows_are_an_order_for_the_loader(dataset, rows);
  rowdex_free(dataset);
  return 0;
}
