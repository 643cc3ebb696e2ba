/* What callers get wrong: NULL, sizes, doing things twice. None of it crashes. */
#include "check.h"

static void every_free_takes_null(void) {
  rowdex_free(NULL);
}

static void questions_without_a_status_take_null(void) {
  CHECK(rowdex_error_message(NULL) == NULL);
  CHECK(rowdex_dataset_len(NULL) == 0);
  CHECK(!rowdex_id_set_contains(NULL, 0));
}

#define IS_NULL(call, name) FAILS(call, ROWDEX_STATUS_INVALID_ARGUMENT, "`" name "` is NULL")

static void null_is_named_by_orders_and_sets(const char *folder) {
  rowdex_index *index = open_index(folder);
  rowdex_dataset *dataset = open_dataset(folder, "id"), *no_dataset = NULL;
  rowdex_order *no_orders = NULL;
  rowdex_id_set *set = NULL, *no_set = NULL;
  const uint64_t ids[] = {5};
  OK(id_set_of(&(set_spec){.rows = DEMO_ROWS, .ids = ids}, &set, &error));
  size_t size;

#define SET(...) id_set_of(&(set_spec){__VA_ARGS__}, &no_set, &error)
  IS_NULL(rowdex_id_set_new(NULL, NULL, &no_set, &error), "description");
  IS_NULL(rowdex_id_set_new("{\"set\": 0}", NULL, NULL, &error), "set");
  FAILS(SET(.list_file = "x"), ROWDEX_STATUS_INVALID_ARGUMENT, "no index 0");
  FAILS(SET(.split_by = "id", .split_side = "train"), ROWDEX_STATUS_INVALID_ARGUMENT, "no dataset");
  FAILS(SET(.filter = "id > 3"), ROWDEX_STATUS_INVALID_ARGUMENT, "no dataset");
  FAILS(SET(.rows = 5), ROWDEX_STATUS_INVALID_ARGUMENT, "not just one of");
  FAILS(SET(.rows = 5, .ids = ids, .set = set), ROWDEX_STATUS_INVALID_ARGUMENT, "not just one of");
  FAILS(SET(.rows = 5, .set = set), ROWDEX_STATUS_INVALID_ARGUMENT, "`rows`");
  FAILS(rowdex_id_set_new("{\"set\": 2}", NULL, &no_set, &error), ROWDEX_STATUS_INVALID_ARGUMENT,
        "set 2, and there are 0");
  FAILS(rowdex_id_set_new("{\"sets\": 2}", NULL, &no_set, &error), ROWDEX_STATUS_INVALID_ARGUMENT,
        "unknown field `sets`");
  rowdex_operands operands = {.num_sets = 1};
  IS_NULL(rowdex_id_set_new("{\"set\": 0}", &operands, &no_set, &error), "operands.sets");
  operands.num_sets = 0;
  operands.num_numbers = 1;
  IS_NULL(rowdex_id_set_new("{\"set\": 0}", &operands, &no_set, &error), "operands.numbers");
  const rowdex_numbers none = {NULL, 2};
  operands.numbers = &none;
  IS_NULL(rowdex_id_set_new("{\"row_ids\": 0, \"rows\": 9}", &operands, &no_set, &error),
          "operands.numbers[…].values");
#undef SET
  IS_NULL(rowdex_id_set_fill(NULL, 0, NULL, 0, &size, &error), "set");
  IS_NULL(rowdex_id_set_fill(set, 0, NULL, 1, &size, &error), "ids");
  IS_NULL(rowdex_id_set_fill(set, 0, NULL, 0, NULL, &error), "filled");


  order_spec order = {.index = index};
  IS_NULL(rowdex_order_new(NULL, NULL, &no_orders, &error), "description");
  IS_NULL(order_of(&order, NULL, &error), "orders");
  const rowdex_index *no_indexes[] = {index, NULL};
  order_spec several = {.indexes = no_indexes, .num_indexes = 2};
  IS_NULL(order_of(&several, &no_orders, &error), "operands.indexes[…]");
  /* Rows in two places. */
  const uint64_t rows = 5;
  order_spec inner = {.group_rows = &rows, .num_groups = 1};
  order.inner = &inner;
  FAILS(order_of(&order, &no_orders, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "its own rows");
  IS_NULL(rowdex_dataset_mixed(NULL, 1, &no_dataset, &error), "datasets");
  const rowdex_dataset *datasets[] = {NULL};
  IS_NULL(rowdex_dataset_mixed(datasets, 1, &no_dataset, &error), "datasets[…]");
  IS_NULL(rowdex_dataset_mixed(NULL, 0, NULL, &error), "mixed");

  CHECK(no_orders == NULL && no_set == NULL && no_dataset == NULL);
  rowdex_free(set);
  rowdex_free(dataset);
  rowdex_free(index);
}

static void null_is_named_by_prefetched_rows(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  rowdex_prefetched *prefetched = NULL;
  rowdex_batch *batch = NULL;
  struct ArrowArray array;
  IS_NULL(rowdex_dataset_prefetch(NULL, NULL, 0, NULL, &prefetched, &error), "dataset");
  IS_NULL(rowdex_dataset_prefetch(dataset, NULL, 1, NULL, &prefetched, &error), "rows");
  IS_NULL(rowdex_dataset_prefetch(dataset, NULL, 0, NULL, NULL, &error), "prefetched");
  CHECK(prefetched == NULL);
  OK(rowdex_dataset_prefetch(dataset, NULL, 0, NULL, &prefetched, &error));
  IS_NULL(rowdex_prefetched_prefetch(NULL, NULL, 0, &error), "prefetched");
  IS_NULL(rowdex_prefetched_prefetch(prefetched, NULL, 1, &error), "rows");
  IS_NULL(rowdex_prefetched_clear(NULL, &error), "prefetched");
  IS_NULL(take_array(NULL, NULL, 0, &array, NULL, &error), "handle");
  IS_NULL(take_array(prefetched, NULL, 1, &array, NULL, &error), "rows");
  IS_NULL(take_array(prefetched, NULL, 0, NULL, NULL, &error), "array");
  IS_NULL(rowdex_take(NULL, NULL, 0, &batch, &error), "handle");
  IS_NULL(rowdex_take(prefetched, NULL, 0, NULL, &error), "batch");
  rowdex_free(prefetched);
  rowdex_free(dataset);
}

static void null_is_named(const char *folder) {
  rowdex_index *index = open_index(folder), *no_index = NULL;
  rowdex_dataset *dataset = open_dataset(folder, "id"), *no_dataset = NULL;
  rowdex_sampler *sampler = new_sampler(dataset, "sequential", 0, 1, 10), *no_sampler = NULL;
  rowdex_loader *loader = NULL;
  rowdex_batch *batch = NULL;
  struct ArrowArray array;
  struct ArrowSchema schema;
  struct ArrowArrayStream stream;
  rowdex_location location;
  uint64_t number;
  char state[ROWDEX_STATE_CAPACITY];
  size_t size;

  IS_NULL(build(NULL, &error), "description");
  IS_NULL(rowdex_index_open(NULL, NULL, &no_index, &error), "path");
  IS_NULL(rowdex_index_open("x.rdx", NULL, NULL, &error), "index");
  FAILS(rowdex_index_open("x.rdx", "{\"retry\": 1}", &no_index, &error), ROWDEX_STATUS_INVALID_ARGUMENT,
        "unknown field `retry`");
  IS_NULL(rowdex_index_files(NULL, 0, 1, 0, NULL, &error), "index");
  char *report = NULL;
  IS_NULL(rowdex_schema(NULL, &schema, &error), "handle");
  IS_NULL(rowdex_schema(index, NULL, &error), "schema");
  IS_NULL(rowdex_stream(NULL, &stream, &error), "handle");
  /* Not every handle has what is asked for. */
  FAILS(rowdex_schema(sampler, &schema, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "no columns");
  FAILS(rowdex_stream(index, &stream, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "no rows to stream");
  char *known = describe(index);
  FAILS(rowdex_describe(known, &report, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "nothing is known");
  rowdex_close(known);
  rowdex_free(known);
  IS_NULL(rowdex_run(NULL, NULL, NULL, NULL, NULL, &error), "description");
  IS_NULL(rowdex_run("{\"verify\": {}}", NULL, NULL, NULL, NULL, &error), "operands.dataset");
  FAILS(rowdex_run("{\"check\": {}}", NULL, NULL, NULL, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT,
        "unknown variant `check`");
  IS_NULL(rowdex_column("{\"labels\": {\"column\": \"id\"}}", NULL, &array, NULL, &error), "operands.dataset");
  IS_NULL(rowdex_column("{\"labels\": {\"column\": \"id\"}}", NULL, NULL, NULL, &error), "array");
  IS_NULL(rowdex_column("{\"weights\": {\"column\": \"id\", \"list\": \"x\"}}", NULL, &array, NULL, &error),
          "operands.indexes");
  FAILS(rowdex_column("{\"weights\": {\"column\": \"id\"}}", NULL, &array, NULL, &error),
        ROWDEX_STATUS_INVALID_ARGUMENT, "not just one of");
  FAILS(rowdex_column("{\"labels\": {}}", NULL, &array, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT,
        "missing field `column`");
  IS_NULL(rowdex_index_locate(NULL, NULL, 0, NULL, &error), "index");
  IS_NULL(rowdex_index_locate(index, NULL, 1, &location, &error), "rows");
  number = 0;
  IS_NULL(rowdex_index_locate(index, &number, 1, NULL, &error), "locations");

  IS_NULL(rowdex_dataset_open(NULL, NULL, &no_dataset, &error), "index");
  IS_NULL(rowdex_dataset_open(index, NULL, NULL, &error), "dataset");
  rowdex_dataset_options no_columns = {.num_columns = 1};
  IS_NULL(rowdex_dataset_open(index, &no_columns, &no_dataset, &error), "options.columns");
  IS_NULL(rowdex_dataset_decoded_bytes(NULL, &number, &error), "dataset");
  IS_NULL(rowdex_dataset_decoded_bytes(dataset, NULL, &error), "bytes");
  IS_NULL(take_array(NULL, &(uint64_t){0}, 1, &array, NULL, &error), "handle");
  IS_NULL(take_array(dataset, &(uint64_t){0}, 1, NULL, NULL, &error), "array");
  IS_NULL(take_array(NULL, NULL, 0, &array, NULL, &error), "handle");
  IS_NULL(take_array(dataset, NULL, 1, &array, NULL, &error), "rows");
  IS_NULL(take_array(dataset, NULL, 0, NULL, NULL, &error), "array");

  rowdex_order *orders = new_orders("global", index, 0);
  IS_NULL(rowdex_sampler_new(NULL, NULL, &no_sampler, &error), "orders");
  IS_NULL(rowdex_sampler_new(orders, NULL, NULL, &error), "sampler");
  IS_NULL(rowdex_sampler_set_epoch(NULL, 0, &error), "sampler");
  IS_NULL(rowdex_sampler_fill(NULL, 0, 0, 0, NULL, NULL, &error), "sampler");
  IS_NULL(rowdex_sampler_fill(sampler, 0, 0, 1, NULL, NULL, &error), "rows");
  IS_NULL(rowdex_sampler_batch(NULL, 0, 0, NULL, 0, &size, NULL, NULL, &error), "sampler");
  IS_NULL(rowdex_sampler_batch(sampler, 0, 0, NULL, 10, &size, NULL, NULL, &error), "rows");
  IS_NULL(rowdex_sampler_batch(sampler, 0, 0, NULL, 0, NULL, NULL, NULL, &error), "len");
  IS_NULL(rowdex_sampler_state(NULL, 0, 0, state, sizeof state, &error), "sampler");
  IS_NULL(rowdex_sampler_state(sampler, 0, 0, NULL, 5, &error), "buffer");
  IS_NULL(rowdex_resume(NULL, "", &error), "handle");
  IS_NULL(rowdex_resume(sampler, NULL, &error), "state");

  IS_NULL(rowdex_loader_new(NULL, sampler, NULL, &loader, &error), "dataset");
  IS_NULL(rowdex_loader_new(dataset, NULL, NULL, &loader, &error), "sampler");
  IS_NULL(rowdex_loader_new(dataset, sampler, NULL, NULL, &error), "loader");
  IS_NULL(rowdex_loader_estimate(NULL, sampler, NULL, NULL, &error), "dataset");
  rowdex_loader_options options = {.num_more_ranks = 1};
  IS_NULL(rowdex_loader_new(dataset, sampler, &options, &loader, &error), "options.more_ranks");
  const rowdex_sampler *more[] = {NULL};
  options.more_ranks = more;
  IS_NULL(rowdex_loader_new(dataset, sampler, &options, &loader, &error), "options.more_ranks[…]");
  IS_NULL(rowdex_loader_next(NULL, &batch, &error), "loader");
  IS_NULL(rowdex_loader_begin_epoch(NULL, NULL, NULL, &error), "loader");
  rowdex_loader_info at;
  IS_NULL(rowdex_loader_get_info(NULL, &at, &error), "loader");
  IS_NULL(rowdex_loader_peek(NULL, 0, 0, 1, &batch, &error), "loader");
  IS_NULL(rowdex_loader_advance(NULL, 0, 0, &error), "loader");
  IS_NULL(rowdex_loader_seek(NULL, 0, 0, &error), "loader");
  IS_NULL(rowdex_loader_reopen(NULL, &loader, &error), "loader");
  IS_NULL(rowdex_loader_state(NULL, state, sizeof state, &error), "loader");
  OK(rowdex_loader_new(dataset, sampler, NULL, &loader, &error));
  IS_NULL(rowdex_loader_next(loader, NULL, &error), "batch");
  IS_NULL(rowdex_loader_get_info(loader, NULL, &error), "info");
  IS_NULL(rowdex_loader_peek(loader, 0, 0, 1, NULL, &error), "batch");
  IS_NULL(rowdex_loader_reopen(loader, NULL, &error), "reopened");
  IS_NULL(rowdex_resume(loader, NULL, &error), "state");
  IS_NULL(rowdex_loader_state(loader, NULL, 9, &error), "buffer");
  rowdex_batch_info info;
  IS_NULL(rowdex_batch_get_info(NULL, &info, &error), "batch");
  IS_NULL(rowdex_batch_export(NULL, &array, NULL, &error), "batch");
  IS_NULL(rowdex_batch_sequences(NULL, NULL, &array, NULL, &error), "batch");
  OK(rowdex_loader_next(loader, &batch, &error));
  IS_NULL(rowdex_batch_get_info(batch, NULL, &error), "info");
  IS_NULL(rowdex_batch_export(batch, NULL, NULL, &error), "array");
  IS_NULL(rowdex_batch_sequences(batch, NULL, NULL, NULL, &error), "array");
  FAILS(rowdex_batch_sequences(batch, NULL, &array, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "whole rows");
  rowdex_sequence_options sequences = {.layout = "columns"};
  FAILS(rowdex_batch_sequences(batch, &sequences, &array, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "columns");

  CHECK(no_index == NULL && no_dataset == NULL && no_sampler == NULL && report == NULL);
  rowdex_free(batch);
  rowdex_free(loader);
  rowdex_free(sampler);
  rowdex_free(orders);
  rowdex_free(dataset);
  rowdex_free(index);
}

/* What nothing uses is refused by its name. */
static void numbers_that_would_change_nothing_are_refused(const char *folder) {
  rowdex_index *index = open_index(folder);
  rowdex_dataset *dataset = open_dataset(folder, "id"), *no_dataset = NULL;
  rowdex_order *orders = new_orders("global", index, 0);
  rowdex_sampler *sampler = new_sampler(dataset, "sequential", 0, 1, 10), *no_sampler = NULL;
  rowdex_loader *no_loader = NULL;
#define IS_UNUSED(call, name) FAILS(call, ROWDEX_STATUS_INVALID_ARGUMENT, "`" name "` says nothing")
  rowdex_loader_options loader = {.fault_seed = 1};
  IS_UNUSED(rowdex_loader_new(dataset, sampler, &loader, &no_loader, &error), "options.fault_seed");
  loader.on_error = "raise";
  IS_UNUSED(rowdex_loader_new(dataset, sampler, &loader, &no_loader, &error), "options.fault_seed");
  rowdex_sampler_options packs = {.world_size = 1, .batch_size = 1};
  packs.pack = "x:8,cost=1";
  FAILS(rowdex_sampler_new(orders, &packs, &no_sampler, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "cost");
  rowdex_operands operands = {.dataset = dataset, .order = orders};
  const char *whole = "{\"rewrite\": {\"output\": \"x\", \"task\": [1, 2]}}";
  IS_UNUSED(rowdex_run(whole, &operands, NULL, NULL, NULL, &error), "task");
  operands.order = NULL;
  IS_UNUSED(rowdex_run("{\"digest\": {\"epoch\": 1}}", &operands, NULL, NULL, NULL, &error), "epoch");
#undef IS_UNUSED
  rowdex_disk_cache disk_cache = {.folder = "x"};
  rowdex_dataset_options cached = {.disk_cache = &disk_cache};
  FAILS(rowdex_dataset_open(index, &cached, &no_dataset, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "0 bytes");
  CHECK(no_dataset == NULL && no_sampler == NULL && no_loader == NULL);
  rowdex_free(sampler);
  rowdex_free(orders);
  rowdex_free(dataset);
  rowdex_free(index);
}

static void empty_arrays_may_be_null(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  struct ArrowArray array;
  OK(take_array(dataset, NULL, 0, &array, NULL, &error));
  CHECK(array.length == 0 && array.n_children == 1);
  array.release(&array);
  rowdex_index *index = open_index(folder);
  OK(rowdex_index_locate(index, NULL, 0, NULL, &error));
  rowdex_free(index);
  rowdex_free(dataset);
}

static void impossible_arrays_are_refused(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  struct ArrowArray array;
  uint64_t rows[2] = {0, 0};
  const uint64_t *crooked = (const uint64_t *)(const void *)((const char *)rows + 1);
  FAILS(take_array(dataset, crooked, 1, &array, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "aligned");
  FAILS(take_array(dataset, rows, SIZE_MAX, &array, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "`rows`");
  rowdex_sampler *sampler = new_sampler(dataset, "sequential", 0, 1, 10);
  FAILS(rowdex_sampler_fill(sampler, 0, 0, SIZE_MAX / 8, rows, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "`rows`");
  rowdex_free(sampler);
  rowdex_free(dataset);
}

static void things_can_be_done_twice(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  rowdex_sampler *sampler = new_sampler(dataset, "sequential", 0, 1, DEMO_ROWS / 2);
  /* One sampler in two loaders, one dataset under both, an end that stays the end. */
  rowdex_loader_options options = {.epochs = 1, .threads = ROWDEX_NONE};
  for (int twice = 0; twice < 2; twice++) {
    rowdex_loader *loader = NULL;
    OK(rowdex_loader_new(dataset, sampler, &options, &loader, &error));
    for (int i = 0; i < 4; i++) {
      rowdex_batch *batch = NULL;
      OK(rowdex_loader_next(loader, &batch, &error));
      CHECK((batch != NULL) == (i < 2));
      if (batch == NULL) continue;
      struct ArrowArray once, again;
      OK(rowdex_batch_export(batch, &once, NULL, &error));
      OK(rowdex_batch_export(batch, &again, NULL, &error));
      once.release(&once);
      rowdex_free(batch);
      CHECK(int64_values(&again, 0)[1] == i * (DEMO_ROWS / 2) + 1);
      again.release(&again);
    }
    rowdex_free(loader);
  }
  CHECK(number_of(sampler, "epoch") == 0);
  rowdex_free(sampler);
  rowdex_free(dataset);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  every_free_takes_null();
  questions_without_a_status_take_null();
  null_is_named(argv[1]);
  null_is_named_by_orders_and_sets(argv[1]);
  null_is_named_by_prefetched_rows(argv[1]);
  numbers_that_would_change_nothing_are_refused(argv[1]);
  empty_arrays_may_be_null(argv[1]);
  impossible_arrays_are_refused(argv[1]);
  things_can_be_done_twice(argv[1]);
  return 0;
}
