/* A sampler of one's own, in C: it draws long rows more often, and rowdex serves them, one batch at a time or as an order. */
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
    rowdex_column_buffer column = {.column = 0, .values = ids, .values_bytes = sizeof ids};
    OK(rowdex_dataset_take_into(dataset, rows + start, BATCH, &column, 1, &error));
    for (int i = 0; i < BATCH; i++) CHECK(ids[i] == (int64_t)rows[start + i]);
  }
}

static void its_rows_are_an_order_for_the_loader(const rowdex_dataset *dataset, const uint64_t *rows) {
  rowdex_orders *orders = NULL;
  FAILS(rowdex_orders_explicit(rows, SAMPLES, 10, &orders, &error), ROWDEX_STATUS_OUT_OF_RANGE, "10 rows");
  FAILS(rowdex_orders_explicit(NULL, SAMPLES, DEMO_ROWS, &orders, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "`rows`");
  FAILS(rowdex_orders_explicit(rows, SAMPLES, DEMO_ROWS, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "`orders`");
  CHECK(orders == NULL);
  OK(rowdex_orders_explicit(rows, SAMPLES, DEMO_ROWS, &orders, &error));
  CHECK(rowdex_orders_len(orders) == SAMPLES);
  /* Two ranks take turns in the list. */
  for (uint32_t rank = 0; rank < 2; rank++) {
    rowdex_sampler_options options = {.struct_size = sizeof options, .rank = rank, .world_size = 2, .batch_size = BATCH};
    rowdex_sampler *sampler = NULL;
    OK(rowdex_sampler_new(orders, &options, &sampler, &error));
    rowdex_loader_options settings = {.struct_size = sizeof settings, .memory = 200000, .threads = 1, .epochs = 1};
    rowdex_loader *loader = NULL;
    OK(rowdex_loader_new(dataset, sampler, &settings, &loader, &error));
    rowdex_sampler_free(sampler);
    int64_t place = rank;
    for (;;) {
      rowdex_batch *batch = NULL;
      OK(rowdex_loader_next(loader, &batch, &error));
      if (batch == NULL) break;
      int64_t ids[BATCH];
      rowdex_column_buffer column = {.column = 0, .values = ids, .values_bytes = sizeof ids};
      OK(rowdex_batch_copy_into(batch, &column, 1, &error));
      for (int i = 0; i < BATCH; i++, place += 2) CHECK(ids[i] == (int64_t)rows[place]);
      rowdex_batch_free(batch);
    }
    CHECK(place == SAMPLES + rank);
    rowdex_loader_free(loader);
  }
  rowdex_orders_free(orders);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  static uint64_t rows[SAMPLES];
  draw(rows);
  rowdex_dataset *dataset = open_dataset(argv[1], "id");
  its_rows_are_taken_batch_by_batch(dataset, rows);
  its_rows_are_an_order_for_the_loader(dataset, rows);
  rowdex_dataset_free(dataset);
  return 0;
}
