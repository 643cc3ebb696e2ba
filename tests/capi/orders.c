/* Every way to order rows: from files, by weight and class, over sets of rows, over several datasets, in pieces, in
 * epochs of any size. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

/* Positions [first, first + len) of an epoch. */
static void rows_at(const rowdex_order *orders, uint64_t epoch, uint64_t first, uint64_t *rows, size_t len) {
  rowdex_sampler *sampler = whole(orders);
  OK(rowdex_sampler_fill(sampler, epoch, first, len, rows, NULL, &error));
  rowdex_free(sampler);
}

/* Orders that are described over a bare number of rows. */
static rowdex_order *orders_of(order_spec options, uint64_t len) {
  options.group_rows = &len;
  options.num_groups = 1;
  rowdex_order *orders = NULL;
  OK(order_of(&options, &orders, &error));
  return orders;
}

/* The same must fail. */
static void refused(order_spec options, uint64_t len, int status, const char *what) {
  options.group_rows = &len;
  options.num_groups = 1;
  rowdex_order *orders = NULL;
  FAILS(order_of(&options, &orders, &error), status, what);
  CHECK(orders == NULL);
}

static rowdex_order *orders_over(const char *name, uint64_t len) {
  return orders_of((order_spec){.order = name, .seed = 42}, len);
}

static rowdex_sampler *sampler_of(const rowdex_order *orders, rowdex_sampler_options options) {
  options.struct_size = sizeof options;
  rowdex_sampler *sampler = NULL;
  OK(rowdex_sampler_new(orders, &options, &sampler, &error));
  return sampler;
}

static void a_contiguous_partition_deals_consecutive_pieces(void) {
  rowdex_order *orders = orders_over("sequential", 1000);
  for (uint32_t rank = 0; rank < 4; rank++) {
    rowdex_sampler *sampler = sampler_of(
        orders, (rowdex_sampler_options){.rank = rank, .world_size = 4, .batch_size = 50, .partition = "contiguous"});
    uint64_t rows[250];
    OK(rowdex_sampler_fill(sampler, 0, 0, 250, rows, NULL, &error));
    for (uint64_t i = 0; i < 250; i++) CHECK(rows[i] == rank * 250 + i);
    rowdex_free(sampler);
  }
  /* The same by hand. */
  rowdex_order *pieces = orders_of((order_spec){.order = "sequential", .shards = 4}, 1000);
  uint64_t rows[5];
  rows_at(pieces, 0, 0, rows, 5);
  CHECK(rows[0] == 0 && rows[1] == 250 && rows[2] == 500 && rows[3] == 750 && rows[4] == 1);
  rowdex_free(pieces);
  rowdex_free(orders);
}

static void orders_that_never_change_begin_elsewhere_as_they_are_told(void) {
  rowdex_order *orders = orders_over("sequential", 10);
  static const struct {
    const char *rotation;
    uint32_t world_size;
    bool rotates;
  } cases[] = {{NULL, 4, true}, {NULL, 5, false}, {"needed", 4, true}, {"always", 5, true}, {"never", 4, false}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    rowdex_sampler *sampler = sampler_of(
        orders, (rowdex_sampler_options){
                    .world_size = cases[i].world_size, .batch_size = 1, .tail = "drop", .rotation = cases[i].rotation});
    uint64_t first, second;
    OK(rowdex_sampler_fill(sampler, 0, 0, 1, &first, NULL, &error));
    OK(rowdex_sampler_fill(sampler, 1, 0, 1, &second, NULL, &error));
    CHECK(first == 0 && (second != 0) == cases[i].rotates);
    rowdex_free(sampler);
  }
  rowdex_order *rotated = orders_of((order_spec){.order = "sequential", .rotated = 1}, 10);
  uint64_t row, other;
  rows_at(rotated, 0, 0, &row, 1);
  rows_at(rotated, 1, 0, &other, 1);
  CHECK(row == 0 && other != 0);
  rowdex_free(rotated);
  rowdex_free(orders);
}

static void write_rows(const char *path, const uint64_t *rows, size_t len, size_t more) {
  FILE *file = fopen(path, "wb");
  CHECK(file != NULL);
  for (size_t i = 0; i < len; i++) {
    unsigned char bytes[8];
    for (int byte = 0; byte < 8; byte++) bytes[byte] = (unsigned char)(rows[i] >> (8 * byte));
    CHECK(fwrite(bytes, 1, 8, file) == 8);
  }
  CHECK(fwrite("rest", 1, more, file) == more && fclose(file) == 0);
}

static void an_order_comes_from_a_file(const char *folder) {
  char path[4096];
  snprintf(path, sizeof path, "%s/order.u64", folder);
  uint64_t rows[100];
  for (uint64_t i = 0; i < 100; i++) rows[i] = i * 37 % 100;
  write_rows(path, rows, 100, 0);
  order_spec from_file = {.order_file = path, .permutation = 1};
  order_spec from_list = {.row_ids = rows, .num_row_ids = 100, .permutation = 1};
  rowdex_order *orders = orders_of(from_file, 100), *listed = orders_of(from_list, 100);
  CHECK(number_of(orders, "fingerprint") == number_of(listed, "fingerprint"));
  uint64_t found[100];
  rows_at(orders, 7, 0, found, 100);
  CHECK(memcmp(rows, found, sizeof rows) == 0);
  rowdex_free(listed);
  rowdex_free(orders);

  rows[3] = rows[4];
  refused(from_list, 100, ROWDEX_STATUS_INVALID_ARGUMENT, "48");
  from_list.permutation = 0;
  rowdex_free(orders_of(from_list, 100));
  refused((order_spec){.order = "global", .permutation = 1}, 100, ROWDEX_STATUS_INVALID_ARGUMENT, "global");
  refused((order_spec){.order = "global", .row_ids = rows, .num_row_ids = 1}, 100,
          ROWDEX_STATUS_INVALID_ARGUMENT, "exclude each other");

  refused(from_file, 99, ROWDEX_STATUS_OUT_OF_RANGE, "order.u64");
  write_rows(path, rows, 3, 4);
  refused(from_file, 100, ROWDEX_STATUS_INVALID_ARGUMENT, "28 bytes");
  CHECK(remove(path) == 0);
  refused(from_file, 100, ROWDEX_STATUS_NOT_FOUND, "order.u64");

  /* An empty list is a list. */
  rowdex_order *none = orders_of((order_spec){.row_ids = rows}, 100);
  CHECK(number_of(none, "rows") == 0);
  rowdex_free(none);
}

static void rows_are_drawn_by_weight(void) {
  double weights[100];
  for (int i = 0; i < 100; i++) weights[i] = i % 2 * 0.5;
  order_spec drawn = {.weights = weights, .num_weights = 100, .size = 300, .seed = 1};
  rowdex_order *orders = orders_of(drawn, 100);
  uint64_t rows[300];
  CHECK(number_of(orders, "rows") == 300);
  rows_at(orders, 0, 0, rows, 300);
  for (int i = 0; i < 300; i++) CHECK(rows[i] % 2 == 1 && rows[i] < 100);
  rowdex_free(orders);
  drawn.without_replacement = 1;
  drawn.size = 0;
  orders = orders_of(drawn, 100);
  CHECK(number_of(orders, "rows") == 50);
  rows_at(orders, 3, 0, rows, 50);
  int seen[100] = {0};
  for (int i = 0; i < 50; i++) CHECK(rows[i] % 2 == 1 && seen[rows[i]]++ == 0);
  rowdex_free(orders);
  drawn.size = 51;
  refused(drawn, 100, ROWDEX_STATUS_INVALID_ARGUMENT, "50");
  drawn.size = 9;
  refused(drawn, 99, ROWDEX_STATUS_INVALID_ARGUMENT, "100 weights for 99 rows");
  weights[5] = -1;
  refused(drawn, 100, ROWDEX_STATUS_INVALID_ARGUMENT, "-1");
}

static void a_column_says_which_classes_and_weights_rows_have(const char *folder) {
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

  enum { LEN = 1000 };
  uint64_t rows[LEN];
  order_spec by_class = {.labels = codes, .num_labels = DEMO_ROWS, .size = LEN,
                                   .seed = 1};
  rowdex_order *orders = orders_of(by_class, DEMO_ROWS);
  rows_at(orders, 2, 0, rows, LEN);
  int counts[5] = {0};
  for (int i = 0; i < LEN; i++) counts[codes[rows[i]]] += 1;
  for (int class = 0; class < 5; class++) CHECK(counts[class] == LEN / 5);
  rowdex_free(orders);
  const double proportions[] = {3, 0, 0, 0, 1};
  by_class.proportions = proportions;
  by_class.num_proportions = 5;
  orders = orders_of(by_class, DEMO_ROWS);
  rows_at(orders, 0, 0, rows, LEN);
  int awful = 0;
  for (int i = 0; i < LEN; i++) {
    CHECK(codes[rows[i]] == 0 || codes[rows[i]] == 4);
    awful += codes[rows[i]] == 0;
  }
  CHECK(awful == LEN * 3 / 4);
  rowdex_free(orders);
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

  /* A list in a file, and two sides of a split, by row id and by the values of a column. */
  char path[4096];
  snprintf(path, sizeof path, "%s/skip.txt", folder);
  FILE *file = fopen(path, "w");
  CHECK(file != NULL && fputs("17\n25000\n17\n", file) > 0 && fclose(file) == 0);
  rowdex_index *index = open_index(folder);
  set_spec from_file = {.index = index, .list_file = path};
  OK(id_set_of(&from_file, &rest, &error));
  CHECK(number_of(rest, "len") == 2 && rowdex_id_set_contains(rest, 25000));
  CHECK(number_of(rest, "repeated") == 1 && number_of(rest, "unserved") == 0);
  no_set_of((set_spec){.set = set, .of = rest}, ROWDEX_STATUS_INVALID_ARGUMENT, "10");
  CHECK(remove(path) == 0);
  rowdex_free(set);
  rowdex_free(rest);

  set_spec split = {.rows = DEMO_ROWS, .split_side = "train", .split_fraction = 0.1, .split_seed = 3};
  rowdex_id_set *train = set_of(split);
  split.split_side = "validation";
  rowdex_id_set *validation = set_of(split);
  common = set_of((set_spec){.set = train, .of = validation});
  CHECK(number_of(common, "len") == 0);
  CHECK(number_of(train, "len") + number_of(validation, "len") == DEMO_ROWS);
  CHECK(number_of(validation, "len") > 19000 && number_of(validation, "len") < 21000);
  rowdex_free(common);
  rowdex_dataset *dataset = open_dataset(folder, "id");
  struct ArrowArray labels;
  OK(column_of("labels", dataset, "label", NULL, &labels, NULL, &error));
  set_spec by_value = {.dataset = dataset, .split_by = "label", .split_side = "train",
                                    .split_fraction = 0.5, .split_seed = 1};
  rowdex_id_set *by_label = set_of(by_value);
  by_value.of = validation;
  rowdex_id_set *within = set_of(by_value);
  int sides[5] = {-1, -1, -1, -1, -1};
  for (uint64_t row = 0; row < DEMO_ROWS; row++) {
    int side = rowdex_id_set_contains(by_label, row), *of_class = &sides[codes_of(&labels)[row]];
    CHECK(*of_class == -1 || *of_class == side);
    *of_class = side;
    CHECK(rowdex_id_set_contains(within, row) == (side && rowdex_id_set_contains(validation, row)));
  }
  split.split_fraction = 1.5;
  no_set_of(split, ROWDEX_STATUS_INVALID_ARGUMENT, "from 0 to 1");
  labels.release(&labels);
  rowdex_free(within);
  rowdex_free(by_label);
  rowdex_free(validation);
  rowdex_free(train);
  rowdex_free(dataset);
  rowdex_free(index);
}

static void an_order_of_a_set_serves_just_its_rows(const char *folder) {
  rowdex_index *index = open_index(folder);
  set_spec split = {.rows = DEMO_ROWS, .split_side = "validation", .split_fraction = 0.01,
                                 .split_seed = 3};
  rowdex_id_set *kept = set_of(split);
  uint64_t len = number_of(kept, "len");
  uint64_t *rows = (uint64_t *)malloc(len * sizeof *rows);
  static const char *specs[] = {"global", "blocks(2)", "sequential"};
  for (int i = 0; i < 3; i++) {
    order_spec options = {.order = specs[i], .index = index, .kept = kept,
                                    .seed = 5};
    rowdex_order *orders = NULL;
    OK(order_of(&options, &orders, &error));
    CHECK(number_of(orders, "rows") == len);
    rows_at(orders, 1, 0, rows, len);
    uint64_t sum = 0, expected = 0, row;
    size_t filled;
    for (uint64_t place = 0; place < len; place++) {
      CHECK(rowdex_id_set_contains(kept, rows[place]));
      sum += rows[place];
      OK(rowdex_id_set_fill(kept, place, &row, 1, &filled, &error));
      expected += row;
      if (i == 2) CHECK(row == rows[place]);
    }
    CHECK(sum == expected);
    rowdex_free(orders);
  }
  free(rows);
  /* Any other order of the rows that are kept, too; and no set out of other rows. */
  order_spec inner = {.order = "global", .size = 7};
  order_spec outer = {.index = index, .inner = &inner, .kept = kept};
  rowdex_order *subset = NULL;
  OK(order_of(&outer, &subset, &error));
  uint64_t row;
  rows_at(subset, 0, 0, &row, 1);
  CHECK(rowdex_id_set_contains(kept, row) && number_of(subset, "rows") == 7);
  rowdex_free(subset);
  subset = NULL;
  split.rows = DEMO_ROWS - 1;
  rowdex_id_set *other = set_of(split);
  outer.kept = other;
  FAILS(order_of(&outer, &subset, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "199999");
  CHECK(subset == NULL);
  rowdex_free(other);
  rowdex_free(kept);
  rowdex_free(index);
}

static void epochs_of_another_size_go_on_where_the_one_before_ended(void) {
  rowdex_order *inner = orders_over("global", 100);
  rowdex_order *resized = orders_of((order_spec){.order = "global", .seed = 42, .size = 70}, 100);
  CHECK(number_of(resized, "rows") == 70);
  uint64_t rows[70], all[200];
  rows_at(inner, 0, 0, all, 100);
  rows_at(inner, 1, 0, all + 100, 100);
  rows_at(resized, 1, 0, rows, 60);
  CHECK(memcmp(rows, all + 70, 60 * sizeof *rows) == 0);
  rowdex_free(resized);
  rowdex_free(inner);
  refused((order_spec){.size = 1 << 20}, 1, ROWDEX_STATUS_INVALID_ARGUMENT, "65536 times");
}

static void several_datasets_are_served_by_proportion(const char *folder) {
  rowdex_dataset *one = open_dataset(folder, "id"), *other = open_dataset(folder, "id"), *mixed = NULL;
  const rowdex_dataset *datasets[] = {one, other};
  OK(rowdex_dataset_mixed(datasets, 2, &mixed, &error));
  rowdex_free(other);
  CHECK(rowdex_dataset_len(mixed) == 2 * DEMO_ROWS);
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
  rowdex_loader_options options = {.struct_size = sizeof options, .threads = 1, .epochs = 1, .memory = 1 << 20};
  rowdex_loader *loader = NULL;
  OK(rowdex_loader_new(mixed, sampler, &options, &loader, &error));
  rowdex_free(mixed);
  int64_t of_second = 0;
  for (int step = 0; step < 16; step++) {
    rowdex_batch *batch = NULL;
    OK(rowdex_loader_next(loader, &batch, &error));
    rowdex_batch_info info = {.struct_size = sizeof info};
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
  static const char *names[] = {
      "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
      "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "SLURM_PROCID", "SLURM_NTASKS",
  };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) CHECK(unsetenv(names[i]) == 0);
  rowdex_launch launch = {.struct_size = sizeof launch, .rank = 77};
  FAILS(rowdex_launch_from_env(&launch, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "WORLD_SIZE");
  CHECK(launch.rank == 77);
  CHECK(setenv("RANK", "3", 1) == 0);
  FAILS(rowdex_launch_from_env(&launch, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "WORLD_SIZE is not");
  CHECK(setenv("WORLD_SIZE", "8", 1) == 0 && setenv("LOCAL_RANK", "1", 1) == 0);
  OK(rowdex_launch_from_env(&launch, &error));
  CHECK(launch.rank == 3 && launch.world_size == 8 && launch.local_rank == 1
        && launch.local_world_size == ROWDEX_UNKNOWN);
  CHECK(strcmp(launch.launcher, "torchrun") == 0);
  CHECK(setenv("PMI_RANK", "4", 1) == 0 && setenv("PMI_SIZE", "8", 1) == 0);
  FAILS(rowdex_launch_from_env(&launch, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "PMI_RANK");
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  a_contiguous_partition_deals_consecutive_pieces();
  orders_that_never_change_begin_elsewhere_as_they_are_told();
  an_order_comes_from_a_file(argv[1]);
  rows_are_drawn_by_weight();
  a_column_says_which_classes_and_weights_rows_have(argv[1]);
  sets_of_rows_are_made_and_put_together(argv[1]);
  an_order_of_a_set_serves_just_its_rows(argv[1]);
  epochs_of_another_size_go_on_where_the_one_before_ended();
  several_datasets_are_served_by_proportion(argv[1]);
  the_launcher_says_which_rank_this_is();
  return 0;
}
