/* What orders are made of: classes and weights of a column, sets of rows, several datasets; and the launcher. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

static rowdex_sampler *sampler_of(const rowdex_order *orders, rowdex_sampler_options options) {
  rowdex_sampler *sampler = NULL;
  OK(rowdex_sampler_new(orders, &options, &sampler, &error));
  return sampler;
}

static void a_column_says_which_classes_and_weights_rows_have(const char *folder) {
  rowdex_index *index = open_index(folder);
  /* The columns that decide are not among those served. */
  rowdex_dataset *dataset = open_dataset(folder, "time");
  struct ArrowArray labels;
  struct ArrowSchema type;
  OK(column_of("labels", dataset, "label", NULL, &labels, &type, &error));
  CHECK(strcmp(type.format, "I") == 0 && strcmp(type.dictionary->format, "U") == 0);
  type.release(&type);
  CHECK(labels.length == DEMO_ROWS && labels.dictionary->length == 5);
  CHECK(text_is(labels.dictionary, 0, "awful") && text_is(labels.dictionary, 4, "poor"));
  const uint32_t *codes = codes_of(&labels);

  uint64_t row;
  rowdex_order *orders = NULL;
  order_spec by_class = {.index = index, .labels = codes, .num_labels = DEMO_ROWS, .size = 1000};
  OK(order_of(&by_class, &orders, &error));
  rowdex_sampler *sampler = whole(orders);
  OK(rowdex_sampler_fill(sampler, 2, 999, 1, &row, NULL, &error));
  CHECK(row < DEMO_ROWS);
  rowdex_free(sampler);
  rowdex_free(orders);
  rowdex_free(index);
  labels.release(&labels);
  FAILS(column_of("labels", dataset, "price", NULL, &labels, NULL, &error), ROWDEX_STATUS_SCHEMA, "price");
  FAILS(column_of("labels", dataset, "colour", NULL, &labels, &type, &error), ROWDEX_STATUS_INVALID_ARGUMENT,
        "colour");
  CHECK(labels.release == NULL && type.release == NULL);

  const range_of_rows some[] = {{10, 12}, {199999, 200000}};
  rowdex_id_set *set = set_of((set_spec){.rows = DEMO_ROWS, .ranges = some, .num_ranges = 2});
  struct ArrowArray weights;
  weights_spec ids = {.dataset = dataset, .column = "id", .of = set};
  OK(weights_of(ids, &weights, &error));
  const double *numbers = (const double *)weights.buffers[1];
  CHECK(weights.length == 3 && numbers[0] == 10 && numbers[1] == 11 && numbers[2] == 199999);
  weights.release(&weights);
  ids.column = "label";
  FAILS(weights_of(ids, &weights, &error), ROWDEX_STATUS_SCHEMA, "label");
  CHECK(weights.release == NULL);
  rowdex_free(set);
  rowdex_free(dataset);
}

/* What is described cannot be a set. */
static void no_set_of(set_spec options, int status, const char *what) {
  rowdex_id_set *set = NULL;
  FAILS(id_set_of(&options, &set, &error), status, what);
  CHECK(set == NULL);
}

static void sets_of_rows_are_made_and_put_together(const char *folder) {
  const uint64_t ids[] = {7, 3, 7, 5};
  rowdex_id_set *set = set_of((set_spec){.rows = 10, .ids = ids, .num_ids = 4});
  CHECK(number_of(set, "len") == 3 && number_of(set, "rows") == 10);
  CHECK(rowdex_id_set_contains(set, 5) && !rowdex_id_set_contains(set, 6) && !rowdex_id_set_contains(set, UINT64_MAX));
  uint64_t found[4] = {0, 0, 0, 99};
  size_t filled = 0;
  OK(rowdex_id_set_fill(set, 1, found, 4, &filled, &error));
  CHECK(filled == 2 && found[0] == 5 && found[1] == 7 && found[3] == 99);
  OK(rowdex_id_set_fill(set, UINT64_MAX, found, 4, &filled, &error));
  CHECK(filled == 0);
  rowdex_id_set *rest = set_of((set_spec){.set = set, .complement = 1});
  CHECK(number_of(rest, "len") == 7 && !rowdex_id_set_contains(rest, 5));
  rowdex_id_set *common = set_of((set_spec){.set = set, .of = rest});
  CHECK(number_of(common, "len") == 0);
  rowdex_free(common);
  rowdex_free(rest);
  /* Those of the set that are in the range, and 9; and all others. */
  const range_of_rows range = {4, 8};
  const uint64_t nine = 9;
  rowdex_id_set *last = set_of((set_spec){.rows = 10, .ids = &nine, .num_ids = 1});
  set_spec steps = {.rows = 10, .ranges = &range, .num_ranges = 1, .of = set, .or_set = last};
  rest = set_of(steps);
  OK(rowdex_id_set_fill(rest, 0, found, 4, &filled, &error));
  CHECK(filled == 3 && found[0] == 5 && found[1] == 7 && found[2] == 9);
  rowdex_free(rest);
  steps.complement = 1;
  rest = set_of(steps);
  CHECK(number_of(rest, "len") == 7 && rowdex_id_set_contains(rest, 3) && !rowdex_id_set_contains(rest, 9));
  rowdex_free(rest);
  rowdex_free(last);
  no_set_of((set_spec){.rows = 7, .ids = ids, .num_ids = 4}, ROWDEX_STATUS_OUT_OF_RANGE, "row id 7");
  const range_of_rows backwards = {5, 3};
  no_set_of((set_spec){.rows = 7, .ranges = &backwards, .num_ranges = 1}, ROWDEX_STATUS_INVALID_ARGUMENT,
            "before");

  rowdex_index *index = open_index(folder);
  rowdex_id_set *listed = NULL;
  char path[4096];
  snprintf(path, sizeof path, "%s/skip.txt", folder);
  FILE *file = fopen(path, "w");
  CHECK(file != NULL && fputs("17\n25000\n17\n", file) > 0 && fclose(file) == 0);
  OK(id_set_of(&(set_spec){.index = index, .list_file = path}, &listed, &error));
  CHECK(number_of(listed, "len") == 2 && number_of(listed, "repeated") == 1 && number_of(listed, "unserved") == 0);
  no_set_of((set_spec){.set = set, .of = listed}, ROWDEX_STATUS_INVALID_ARGUMENT, "10");
  CHECK(remove(path) == 0);
  rowdex_free(listed);
  rowdex_free(index);
  rowdex_free(set);
}

static void several_datasets_are_served_by_proportion(const char *folder) {
  rowdex_dataset *one = open_dataset(folder, "id"), *other = open_dataset(folder, "id"), *mixed = NULL;
  const rowdex_dataset *datasets[] = {one, other};
  OK(rowdex_dataset_mixed(datasets, 2, &mixed, &error));
  rowdex_free(other);
  CHECK(number_of(mixed, "rows") == 2 * DEMO_ROWS);
  const uint64_t rows[] = {DEMO_ROWS + 5, 6, 2 * DEMO_ROWS - 1};
  struct ArrowArray array;
  OK(take_array(mixed, rows, 3, &array, NULL, &error));
  CHECK(int64_values(&array, 0)[0] == 5 && int64_values(&array, 0)[1] == 6
        && int64_values(&array, 0)[2] == DEMO_ROWS - 1);
  array.release(&array);
  OK(take_array(mixed, &(uint64_t){DEMO_ROWS}, 1, &array, NULL, &error));
  CHECK(int64_values(&array, 0)[0] == 0);
  array.release(&array);
  uint64_t bytes = 0, half = 0;
  OK(rowdex_dataset_decoded_bytes(mixed, &bytes, &error));
  OK(rowdex_dataset_decoded_bytes(one, &half, &error));
  CHECK(bytes == 2 * half);

  /* What is about one index or one cache is refused, and so are datasets of other columns. */
  rowdex_prefetched *prefetched = NULL;
  struct ArrowArray labels;
  rowdex_dataset *unlike = NULL, *times = open_dataset(folder, "time");
  CHECK(number_of(mixed, "rows") == 2 * DEMO_ROWS);
  FAILS(rowdex_dataset_prefetch(mixed, rows, 3, NULL, &prefetched, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "mixed");
  FAILS(column_of("labels", mixed, "label", NULL, &labels, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "mixed");
  CHECK(prefetched == NULL);
  datasets[1] = times;
  FAILS(rowdex_dataset_mixed(datasets, 2, &unlike, &error), ROWDEX_STATUS_SCHEMA, "time");
  datasets[1] = mixed;
  FAILS(rowdex_dataset_mixed(datasets, 2, &unlike, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "mixed");
  FAILS(rowdex_dataset_mixed(NULL, 0, &unlike, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "no datasets");
  CHECK(unlike == NULL);
  rowdex_free(times);

  rowdex_index *index = open_index(folder);
  const rowdex_index *indexes[] = {index, index};
  const order_spec shuffled = {.seed = 0};
  const order_spec in_order = {.order = "sequential"};
  const order_spec *parts[] = {&shuffled, &in_order};
  const double proportions[] = {3, 1};
  order_spec by_proportion = {.indexes = indexes, .num_indexes = 2, .parts = parts, .num_parts = 2,
      .proportions = proportions, .num_proportions = 2, .size = 8000, .seed = 1};
  rowdex_order *orders = NULL;
  OK(order_of(&by_proportion, &orders, &error));
  rowdex_order *wrong = NULL;
  by_proportion.num_indexes = 1;
  FAILS(order_of(&by_proportion, &wrong, &error), ROWDEX_STATUS_INVALID_ARGUMENT,
        "2 proportions for 1 datasets");
  by_proportion.num_proportions = 1;
  FAILS(order_of(&by_proportion, &wrong, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "1 proportions for 2 orders");
  rowdex_free(index);
  rowdex_sampler *sampler = sampler_of(orders, (rowdex_sampler_options){.world_size = 1, .batch_size = 500});
  rowdex_free(orders);
  rowdex_loader_options options = {.threads = 1, .epochs = 1, .memory = 1 << 20};
  rowdex_loader *loader = NULL;
  OK(rowdex_loader_new(mixed, sampler, &options, &loader, &error));
  rowdex_free(mixed);
  int64_t of_second = 0;
  for (int step = 0; step < 16; step++) {
    rowdex_batch *batch = NULL;
    OK(rowdex_loader_next(loader, &batch, &error));
    rowdex_batch_info info = {0};
    OK(rowdex_batch_get_info(batch, &info, &error));
    OK(rowdex_batch_export(batch, &array, NULL, &error));
    for (uint64_t i = 0; i < info.num_rows; i++) {
      uint64_t row = info.row_ids[i];
      CHECK(int64_values(&array, 0)[i] == (int64_t)(row % DEMO_ROWS));
      if (row >= DEMO_ROWS) of_second += 1;
    }
    array.release(&array);
    rowdex_free(batch);
  }
  CHECK(of_second == 2000);
  rowdex_free(loader);
  rowdex_free(sampler);
  rowdex_free(one);
}

static void the_launcher_says_which_rank_this_is(void) {
  CHECK(setenv("RANK", "3", 1) == 0 && unsetenv("WORLD_SIZE") == 0);
  FAILS(rowdex_run("{\"launch\": {}}", NULL, NULL, NULL, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT,
        "WORLD_SIZE is not");
  CHECK(setenv("WORLD_SIZE", "8", 1) == 0 && unsetenv("LOCAL_RANK") == 0);
  char *launch = NULL;
  OK(rowdex_run("{\"launch\": {}}", NULL, NULL, NULL, &launch, &error));
  CHECK(reported(launch, "rank") == 3 && reported(launch, "world_size") == 8);
  CHECK(strstr(launch, "\"launcher\":\"torchrun\"") != NULL && strstr(launch, "\"local_rank\":null") != NULL);
  rowdex_free(launch);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  a_column_says_which_classes_and_weights_rows_have(argv[1]);
  sets_of_rows_are_made_and_put_together(argv[1]);
  several_datasets_are_served_by_proportion(argv[1]);
  the_launcher_says_which_rank_this_is();
  return 0;
}
