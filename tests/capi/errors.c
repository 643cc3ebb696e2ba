/* Failures say what went wrong, where, and what to do, and leave the caller's variables as they were. */
#include "check.h"

static void write_file(const char *path, const void *bytes, size_t len) {
  FILE *file = fopen(path, "wb");
  CHECK(file != NULL && fwrite(bytes, 1, len, file) == len);
  CHECK(fclose(file) == 0);
}

static void a_missing_index_is_not_found_and_named(const char *folder) {
  rowdex_index *index = NULL;
  rowdex_error *error = NULL;
  CHECK(rowdex_index_open(in_folder(folder, "none.rdx"), NULL, &index, &error) == ROWDEX_STATUS_NOT_FOUND);
  CHECK(index == NULL);
  char *known = describe(error);
  CHECK(reported(known, "status") == ROWDEX_STATUS_NOT_FOUND);
  const char *path = in_folder(folder, "none.rdx");
  CHECK(strstr(known, text("\"file\":\"%s\"", path)) != NULL && strstr(rowdex_error_message(error), path) != NULL);
  CHECK(strstr(known, "\"column\":null") != NULL && strstr(known, "\"row_group\":null") != NULL);
  rowdex_free(known);
  rowdex_free(error);
  /* Nobody has to want the error. */
  CHECK(rowdex_index_open(in_folder(folder, "none.rdx"), NULL, &index, NULL) == ROWDEX_STATUS_NOT_FOUND);
}

static void a_hint_is_told_and_in_the_message(const char *folder) {
  rowdex_error *error = NULL;
  const char *description = text("{\"files\": [\"%s\"], \"output\": \"%s/train.rdx\"}", folder, folder);
  CHECK(build(description, &error) == ROWDEX_STATUS_ALREADY_EXISTS);
  const char *hint = "set `overwrite` or `update`, or choose another path";
  char *known = describe(error);
  CHECK(strstr(known, text("\"hint\":\"%s\"", hint)) != NULL && strstr(rowdex_error_message(error), hint) != NULL);
  rowdex_free(known);
  rowdex_free(error);
}

static void an_index_that_is_none_is_refused(const char *folder) {
  rowdex_index *index = NULL;
  static const char *const contents[] = {"no index", ""};
  for (int i = 0; i < 2; i++) {
    const char *path = in_folder(folder, "damaged.rdx");
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fputs(contents[i], file) >= 0 && fclose(file) == 0);
    FAILS(rowdex_index_open(path, NULL, &index, &error), ROWDEX_STATUS_INVALID_INDEX, "damaged.rdx");
    CHECK(remove(path) == 0);
  }
  FAILS(rowdex_index_open(folder, NULL, &index, &error), ROWDEX_STATUS_INVALID_INDEX, folder);
  CHECK(index == NULL);
}

static void what_lies_beyond_the_end_is_out_of_range(const char *folder) {
  rowdex_index *index = open_index(folder);
  rowdex_location locations[2];
  memset(locations, 1, sizeof locations);
  const rowdex_location before = locations[0];
  const uint64_t rows[] = {5, DEMO_ROWS};
  FAILS(rowdex_index_locate(index, &(uint64_t){DEMO_ROWS}, 1, locations, &error), ROWDEX_STATUS_OUT_OF_RANGE, "200000");
  FAILS(rowdex_index_locate(index, rows, 2, locations, &error), ROWDEX_STATUS_OUT_OF_RANGE, "200000");
  CHECK(memcmp(&before, locations, sizeof before) == 0);
  char *files = NULL;
  FAILS(rowdex_index_files(index, DEMO_FILES, 1, 0, &files, &error), ROWDEX_STATUS_OUT_OF_RANGE, "0 to 7");
  FAILS(rowdex_index_files(index, 1, UINT32_MAX, 1, &files, &error), ROWDEX_STATUS_OUT_OF_RANGE, "file");
  CHECK(files == NULL);
  rowdex_free(index);

  rowdex_dataset *dataset = open_dataset(folder, "id");
  struct ArrowArray array;
  memset(&array, 1, sizeof array);
  const struct ArrowArray untouched = array;
  FAILS(take_array(dataset, rows, 2, &array, NULL, &error), ROWDEX_STATUS_OUT_OF_RANGE, "0 to 199999");
  FAILS(take_array(dataset, &(uint64_t){UINT64_MAX}, 1, &array, NULL, &error), ROWDEX_STATUS_OUT_OF_RANGE,
        "0 to 199999");
  CHECK(memcmp(&array, &untouched, sizeof array) == 0);

  rowdex_sampler *sampler = new_sampler(dataset, "global", 0, 1, 1000);
  uint64_t ids[1000] = {9};
  size_t len = 8;
  FAILS(rowdex_sampler_fill(sampler, 0, DEMO_ROWS - 1, 2, ids, NULL, &error), ROWDEX_STATUS_OUT_OF_RANGE, "200000");
  FAILS(rowdex_sampler_fill(sampler, 0, UINT64_MAX, 2, ids, NULL, &error), ROWDEX_STATUS_OUT_OF_RANGE, "200000");
  FAILS(rowdex_sampler_batch(sampler, 0, 200, ids, 1000, &len, NULL, NULL, &error), ROWDEX_STATUS_OUT_OF_RANGE,
        "step 200");
  FAILS(rowdex_sampler_batch(sampler, 0, 0, ids, 999, &len, NULL, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT,
        "1000");
  FAILS(rowdex_sampler_fill(sampler, 0, DEMO_ROWS, 1, ids, NULL, &error), ROWDEX_STATUS_OUT_OF_RANGE, "200000");
  CHECK(ids[0] == 9 && len == 8);
  char state[ROWDEX_STATE_CAPACITY] = "x";
  FAILS(rowdex_sampler_state(sampler, 0, 201, state, sizeof state, &error), ROWDEX_STATUS_OUT_OF_RANGE, "200");
  FAILS(rowdex_sampler_state(sampler, 0, 0, state, 10, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "10 bytes");
  CHECK(strcmp(state, "x") == 0);
  rowdex_free(sampler);
  rowdex_free(dataset);
}

static void unknown_words_are_refused_with_the_known_ones(const char *folder) {
  rowdex_index *index = open_index(folder);
  rowdex_order *orders = NULL;
  order_spec order = {.order = "glob\xff", .index = index};
  FAILS(order_of(&order, &orders, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "invalid unicode");
  CHECK(orders == NULL);
  orders = new_orders("global", index, 0);
  rowdex_sampler *sampler = NULL;
  rowdex_sampler_options options = {.world_size = 3, .batch_size = 1, .tail = "cut"};
  FAILS(rowdex_sampler_new(orders, &options, &sampler, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "wrap, drop");
  options.tail = "\xff";
  FAILS(rowdex_sampler_new(orders, &options, &sampler, &error), ROWDEX_STATUS_INVALID_ARGUMENT,
        "`options.tail` is not UTF-8");
  options.tail = NULL;
  options.rotation = "often";
  FAILS(rowdex_sampler_new(orders, &options, &sampler, &error), ROWDEX_STATUS_INVALID_ARGUMENT,
        "needed, always or never");
  FAILS(rowdex_sampler_new(orders, NULL, &sampler, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "world of 0");
  CHECK(sampler == NULL);
  rowdex_free(orders);

  rowdex_dataset *dataset = NULL;
  const char *columns[] = {"id", "nothing"};
  rowdex_dataset_options open = {.columns = columns, .num_columns = 2};
  FAILS(rowdex_dataset_open(index, &open, &dataset, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "nothing");
  CHECK(dataset == NULL);
  rowdex_free(index);
  FAILS(build("{\"files\": [\".\"], \"output\": \"unused.rdx\", \"inputs\": []}", &error),
        ROWDEX_STATUS_INVALID_ARGUMENT, "unknown field `inputs`");
}

static void a_state_of_another_run_is_refused(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  rowdex_sampler *sampler = new_sampler(dataset, "global", 0, 1, 10);
  rowdex_sampler *other = new_sampler(dataset, "sequential", 0, 1, 10);
  char state[ROWDEX_STATE_CAPACITY], same[ROWDEX_STATE_CAPACITY];
  OK(rowdex_sampler_state(other, 0, 4, state, sizeof state, &error));
  FAILS(rowdex_resume(sampler, state, &error), ROWDEX_STATUS_STATE_MISMATCH, "seed");
  FAILS(rowdex_resume(sampler, "step 3", &error), ROWDEX_STATUS_INVALID_ARGUMENT, "rowdex-state-v1");
  rowdex_loader *loader = NULL;
  OK(rowdex_loader_new(dataset, sampler, NULL, &loader, &error));
  FAILS(rowdex_resume(loader, state, &error), ROWDEX_STATUS_STATE_MISMATCH, "seed");
  OK(rowdex_loader_state(loader, same, sizeof same, &error));
  OK(rowdex_sampler_state(sampler, 0, 0, state, sizeof state, &error));
  CHECK(strcmp(state, same) == 0);
  rowdex_free(loader);
  rowdex_loader_options faults = {.on_error = "ignore"};
  FAILS(rowdex_loader_new(dataset, sampler, &faults, &loader, &error), ROWDEX_STATUS_INVALID_ARGUMENT,
        "raise or substitute");
  /* Ranks of one loader differ in nothing but the rank. */
  const rowdex_sampler *more[] = {other};
  rowdex_loader_options options = {.more_ranks = more, .num_more_ranks = 1};
  loader = NULL;
  FAILS(rowdex_loader_new(dataset, sampler, &options, &loader, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "rank");
  more[0] = sampler;
  FAILS(rowdex_loader_new(dataset, sampler, &options, &loader, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "given twice");
  CHECK(loader == NULL);
  rowdex_free(other);
  rowdex_free(sampler);
  rowdex_free(dataset);
}

/* The folder gets a file that is not Parquet, and then one that is not the one that was indexed. */
static void a_bad_file_is_named(const char *folder) {
  char bad[4096], output[4096];
  snprintf(bad, sizeof bad, "%s/bad.parquet", folder);
  snprintf(output, sizeof output, "%s/bad.rdx", folder);
  write_file(bad, "PAR1 and nothing else that is Parquet", 37);
  const char *description = text("{\"files\": [\"%s\"], \"output\": \"%s\"}", bad, output);
  FAILS(build(description, &error), ROWDEX_STATUS_INVALID_PARQUET, "bad.parquet");
  CHECK(remove(bad) == 0);
  FILE *file = fopen(output, "rb");
  CHECK(file == NULL);

  /* A copy of a file, indexed, and then cut short. */
  file = fopen(in_folder(folder, "data/part-00.parquet"), "rb");
  CHECK(file != NULL);
  static char bytes[8 << 20];
  size_t len = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  CHECK(len > 0 && len < sizeof bytes);
  write_file(bad, bytes, len);
  OK(build(description, &error));
  write_file(bad, bytes, len / 2);
  rowdex_index *index = NULL;
  rowdex_dataset *dataset = NULL;
  OK(rowdex_index_open(output, NULL, &index, &error));
  OK(rowdex_dataset_open(index, NULL, &dataset, &error));
  rowdex_free(index);
  struct ArrowArray array;
  rowdex_error *error = NULL;
  CHECK(take_array(dataset, &(uint64_t){7000}, 1, &array, NULL, &error) == ROWDEX_STATUS_STALE);
  char *known = describe(error);
  CHECK(strstr(known, "\"file\":\"bad.parquet\"") != NULL && reported(known, "row_group") == 1);
  rowdex_free(known);
  rowdex_free(error);

  rowdex_operands operands = {.dataset = dataset};
  OK(rowdex_run("{\"verify\": {\"check\": \"stat\"}}", &operands, NULL, NULL, &known, &error));
  CHECK(reported(known, "files") == 1 && reported(known, "status") == ROWDEX_STATUS_STALE);
  CHECK(strstr(known, "\"file\":\"bad.parquet\"") != NULL);
  rowdex_free(known);

  /* A loader says an error again. */
  rowdex_sampler *sampler = new_sampler(dataset, "sequential", 0, 1, 100);
  rowdex_loader *loader = NULL;
  OK(rowdex_loader_new(dataset, sampler, NULL, &loader, &error));
  rowdex_batch *batch = NULL;
  FAILS(rowdex_loader_next(loader, &batch, &error), ROWDEX_STATUS_STALE, "bad.parquet");
  OK(rowdex_loader_begin_epoch(loader, &(uint64_t){3}, NULL, &error));
  FAILS(rowdex_loader_next(loader, &batch, &error), ROWDEX_STATUS_STALE, "bad.parquet");
  FAILS(rowdex_loader_peek(loader, 0, 0, 1, &batch, &error), ROWDEX_STATUS_STALE, "bad.parquet");
  FAILS(rowdex_loader_peek(loader, 0, 1, 1, &batch, &error), ROWDEX_STATUS_CLOSED, "another iteration");
  FAILS(rowdex_loader_seek(loader, 0, 1, &error), ROWDEX_STATUS_STALE, "bad.parquet");
  rowdex_free(loader);
  rowdex_free(sampler);
  rowdex_free(dataset);
  CHECK(remove(bad) == 0 && remove(output) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  a_missing_index_is_not_found_and_named(argv[1]);
  a_hint_is_told_and_in_the_message(argv[1]);
  an_index_that_is_none_is_refused(argv[1]);
  what_lies_beyond_the_end_is_out_of_range(argv[1]);
  unknown_words_are_refused_with_the_known_ones(argv[1]);
  a_state_of_another_run_is_refused(argv[1]);
  a_bad_file_is_named(argv[1]);
  return 0;
}
