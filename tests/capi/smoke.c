/* Each part of the library does its work: build, locate, get, take, sample, load. */
#include <unistd.h>

#include "check.h"

static rowdex_status run_build(const char *described, rowdex_progress progress, void *userdata, char **report,
                               rowdex_error **error) {
  return rowdex_run(text("{\"build\": %s}", described), NULL, progress, userdata, report, error);
}

static void the_library_is_the_one_of_the_header(void) {
  CHECK(rowdex_abi_version() == ROWDEX_ABI_VERSION);
  char *library = describe(NULL);
  CHECK(strstr(library, "\"version\":\"") != NULL);
  rowdex_free(library);
}

struct progress {
  uint64_t calls, files_done, files, rows;
};

static void note(void *userdata, uint64_t files_done, uint64_t files, uint64_t rows) {
  struct progress *progress = (struct progress *)userdata;
  CHECK(files_done >= progress->files_done);
  progress->calls += 1;
  progress->files_done = files_done;
  progress->files = files;
  progress->rows = rows;
}

static void lengths_of_rows_are_noted_and_read(const char *folder) {
  char output[4096];
  snprintf(output, sizeof output, "%s/lengths.rdx", folder);
  OK(build(text("{\"files\": [\"%s/data\"], \"output\": \"%s\", \"overwrite\": true, \"lengths\": [\"id\"]}", folder,
                output), &error));
  rowdex_index *index = NULL;
  OK(rowdex_index_open(output, NULL, &index, &error));
  char *known = describe(index);
  CHECK(strstr(known, "\"lengths\":[{\"name\":\"id\",\"of\":\"numbers\"") != NULL);
  CHECK(reported(known, "longest") == DEMO_ROWS - 1);
  CHECK(reported(known, "sum") == (uint64_t)DEMO_ROWS * (DEMO_ROWS - 1) / 2);
  rowdex_free(known);
  const rowdex_index *indexes[] = {index};
  rowdex_operands operands = {.indexes = indexes, .num_indexes = 1};
  struct ArrowArray lengths;
  OK(rowdex_column("{\"lengths\": {\"column\": \"id\"}}", &operands, &lengths, NULL, &error));
  const uint64_t *of_rows = (const uint64_t *)lengths.buffers[1];
  CHECK(lengths.length == DEMO_ROWS && of_rows[70000] == 70000 && of_rows[DEMO_ROWS - 1] == DEMO_ROWS - 1);
  lengths.release(&lengths);
  const char *note = "{\"lengths\": {\"index\": \"%s\", \"columns\": [\"%s\"]}}";
  FAILS(rowdex_run(text(note, output, "nothing"), NULL, NULL, NULL, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT,
        "nothing");
  OK(rowdex_run(text(note, output, "id"), NULL, NULL, NULL, NULL, &error));
  /* What is open goes on with what it was opened with. */
  OK(rowdex_column("{\"lengths\": {\"column\": \"id\"}}", &operands, &lengths, NULL, &error));
  lengths.release(&lengths);

  /* Packs of rows that have from 0 to 199,999 tokens. */
  rowdex_order *orders = new_orders("sequential", index, 0);
  rowdex_sampler_options options = {.world_size = 1, .batch_size = 1, .pack = "id:1000,overflow=truncate"};
  rowdex_sampler *sampler = NULL;
  OK(rowdex_sampler_new(orders, &options, &sampler, &error));
  uint64_t rows[100], offsets[100], piece_lengths[100], packs[1], sum = 0;
  size_t len = 0, num_packs = 0;
  rowdex_pieces pieces = {
      .offsets = offsets, .lengths = piece_lengths, .packs = packs, .packs_capacity = 1, .num_packs = &num_packs};
  OK(rowdex_sampler_batch(sampler, 0, 0, rows, 100, &len, NULL, &pieces, &error));
  CHECK(num_packs == 1 && packs[0] == len && len > 0 && len <= 100);
  for (size_t i = 0; i < len; i++) {
    CHECK(offsets[i] + piece_lengths[i] <= rows[i]);
    sum += piece_lengths[i];
  }
  CHECK(sum <= 1000);
  pieces.packs_capacity = 0;
  FAILS(rowdex_sampler_batch(sampler, 0, 0, rows, 100, &len, NULL, &pieces, &error), ROWDEX_STATUS_INVALID_ARGUMENT,
        "room for 0 packs");
  options.pack = "id";
  FAILS(rowdex_sampler_new(orders, &options, &sampler, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "capacity");
  rowdex_free(sampler);
  rowdex_free(orders);
  rowdex_free(index);
}

static void an_index_is_built_and_tells_of_itself(const char *folder) {
  char output[4096];
  snprintf(output, sizeof output, "%s/built.rdx", folder);
  remove(output);
  struct progress progress = {0, 0, 0, 0};
  const char *described = "{\"files\": [\"%s/data\"], \"output\": \"%s\", \"threads\": 2%s}";
  char *report = NULL;
  OK(run_build(text(described, folder, output, ""), note, &progress, &report, &error));
  CHECK(reported(report, "files") == DEMO_FILES && reported(report, "row_groups") == DEMO_ROW_GROUPS);
  CHECK(reported(report, "rows") == DEMO_ROWS);
  CHECK(reported(report, "kept_files") == 0 && reported(report, "index_bytes") > 0);
  CHECK(strstr(report, "\"unlike_files\":0") != NULL);
  rowdex_free(report);
  CHECK(progress.calls > 0 && progress.files_done == DEMO_FILES && progress.files == DEMO_FILES);
  CHECK(progress.rows == DEMO_ROWS);

  FAILS(build(text(described, folder, output, ""), &error), ROWDEX_STATUS_ALREADY_EXISTS, "built.rdx");
  OK(run_build(text(described, folder, output, ", \"update\": true"), NULL, NULL, &report, &error));
  CHECK(reported(report, "kept_files") == DEMO_FILES);
  const uint64_t bytes = reported(report, "index_bytes");
  rowdex_free(report);

  rowdex_index *index = NULL;
  OK(rowdex_index_open(output, NULL, &index, &error));
  CHECK(number_of(index, "rows") == DEMO_ROWS);
  const rowdex_index *indexes[] = {index};
  rowdex_operands operands = {.indexes = indexes, .num_indexes = 1};
  OK(rowdex_run("{\"verify\": {}}", &operands, NULL, NULL, NULL, &error));
  CHECK(number_of(index, "files") == DEMO_FILES && number_of(index, "columns") == 6);
  CHECK(number_of(index, "size_bytes") == bytes);
  CHECK(number_of(index, "fingerprint") != 0);

  char *file = NULL;
  OK(rowdex_index_files(index, 2, 1, 0, &file, &error));
  CHECK(strstr(file, "\"path\":\"part-02.parquet\"") != NULL && reported(file, "first_row") == 50000);
  CHECK(reported(file, "rows") == 25000 && reported(file, "first_row_group") == 8 && reported(file, "row_groups") == 4);
  rowdex_free(file);
  OK(rowdex_index_files(index, 2, 1, 1, &file, &error));
  CHECK(strstr(file, "{\"first_row\":56250,\"rows\":6250,") != NULL);
  rowdex_free(file);

  rowdex_location location;
  OK(rowdex_index_locate(index, &(uint64_t){56251}, 1, &location, &error));
  CHECK(location.file == 2 && location.row_group == 9 && location.ordinal == 1 && location.row == 1
        && location.slot == 1);
  const uint64_t rows[] = {199999, 0};
  rowdex_location locations[2];
  OK(rowdex_index_locate(index, rows, 2, locations, &error));
  CHECK(locations[0].row_group == 31 && locations[0].row == 6249 && locations[1].row_group == 0
        && locations[1].row == 0);

  struct ArrowSchema schema;
  OK(rowdex_schema(index, &schema, &error));
  CHECK(strcmp(schema.format, "+s") == 0 && schema.n_children == 6 && strcmp(schema.children[0]->name, "id") == 0);
  schema.release(&schema);
  rowdex_free(index);
  CHECK(remove(output) == 0);
}

static void rows_come_as_arrow_in_the_order_asked(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  const uint64_t rows[] = {150000, 7, 7, 199999};
  struct ArrowArray array;
  struct ArrowSchema schema;
  OK(take_array(dataset, rows, 4, &array, &schema, &error));
  CHECK(array.length == 4 && array.n_children == 1 && array.null_count == 0);
  CHECK(strcmp(schema.format, "+s") == 0 && strcmp(schema.children[0]->format, "l") == 0);
  for (int i = 0; i < 4; i++) CHECK(int64_values(&array, 0)[i] == (int64_t)rows[i]);
  schema.release(&schema);

  struct ArrowArray one;
  OK(take_array(dataset, &(uint64_t){12345}, 1, &one, NULL, &error));
  /* Arrow structs live on when everything else is gone. */
  CHECK(number_of(dataset, "decodes") > 0 && number_of(dataset, "bytes_read") > 0);
  rowdex_free(dataset);
  CHECK(one.length == 1 && int64_values(&one, 0)[0] == 12345 && int64_values(&array, 0)[3] == 199999);
  one.release(&one);
  array.release(&array);
  CHECK(one.release == NULL && array.release == NULL);
}

static void two_ranks_share_all_rows(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  uint8_t *seen = (uint8_t *)calloc(DEMO_ROWS, 1);
  uint64_t *rows = (uint64_t *)malloc(DEMO_ROWS * sizeof *rows);
  for (uint32_t rank = 0; rank < 2; rank++) {
    rowdex_sampler *sampler = new_sampler(dataset, "global", rank, 2, 256);
    CHECK(number_of(sampler, "len") == DEMO_ROWS / 2 && number_of(sampler, "steps") == 391);
    CHECK(number_of(sampler, "epoch") == 0);
    OK(rowdex_sampler_fill(sampler, 0, 0, DEMO_ROWS / 2, rows, NULL, &error));
    for (int i = 0; i < DEMO_ROWS / 2; i++) seen[rows[i]] += 1;
    uint64_t batch[256];
    size_t len = 0, pads = 9;
    OK(rowdex_sampler_batch(sampler, 0, 390, batch, 256, &len, &pads, NULL, &error));
    CHECK(len == 160 && pads == 0 && memcmp(batch, rows + 390 * 256, len * sizeof *batch) == 0);
    rowdex_free(sampler);
  }
  for (int i = 0; i < DEMO_ROWS; i++) CHECK(seen[i] == 1);
  free(rows);
  free(seen);
  rowdex_free(dataset);
}

static void orders_need_no_data(void) {
  const uint64_t groups[] = {10};
  order_spec order = {.order = "sequential", .group_rows = groups,
                                .num_groups = 1};
  rowdex_order *orders = NULL;
  OK(order_of(&order, &orders, &error));
  CHECK(number_of(orders, "rows") == 10 && number_of(orders, "fingerprint") != 0);
  uint64_t rows[10];
  /* Pads wrap around to the first positions and are marked. */
  rowdex_sampler_options options = {.rank = 2, .world_size = 4, .batch_size = 2};
  rowdex_sampler *sampler = NULL;
  OK(rowdex_sampler_new(orders, &options, &sampler, &error));
  rowdex_free(orders);
  uint8_t pads[3];
  OK(rowdex_sampler_fill(sampler, 0, 0, 3, rows, pads, &error));
  CHECK(rows[0] == 2 && rows[1] == 6 && rows[2] == 0 && pads[0] == 0 && pads[1] == 0 && pads[2] == 1);
  rowdex_free(sampler);
}

static void a_loader_serves_what_the_sampler_says_and_resumes(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  rowdex_sampler *sampler = new_sampler(dataset, "global", 1, 4, 1000);
  rowdex_loader_options options = {.memory = 1 << 20, .threads = 1, .epochs = 1};
  char *told = NULL;
  OK(rowdex_loader_estimate(dataset, sampler, &options, &told, &error));
  CHECK(reported(told, "peak_bytes") > 0 && strstr(told, "\"packs\":null") != NULL);
  rowdex_free(told);
  rowdex_loader *loader = NULL;
  OK(rowdex_loader_new(dataset, sampler, &options, &loader, &error));
  rowdex_loader_info at = {0};
  OK(rowdex_loader_begin_epoch(loader, NULL, &at, &error));
  CHECK(at.epoch == 0 && at.step == 0 && at.steps == 50 && at.steps_left == 50);

  char state[ROWDEX_STATE_CAPACITY], same[ROWDEX_STATE_CAPACITY];
  uint64_t rows[1000], steps = 0;
  for (;;) {
    rowdex_batch *batch = NULL;
    OK(rowdex_loader_next(loader, &batch, &error));
    if (batch == NULL) break;
    rowdex_batch_info info = {0};
    OK(rowdex_batch_get_info(batch, &info, &error));
    CHECK(info.epoch == 0 && info.step == steps && info.steps == 50 && info.rank == 1 && info.num_pads == 0);
    size_t len;
    OK(rowdex_sampler_batch(sampler, 0, steps, rows, 1000, &len, NULL, NULL, &error));
    CHECK(info.num_rows == len && memcmp(rows, info.row_ids, len * sizeof *rows) == 0);
    int64_t ids[1000];
    ids_of(batch, ids);
    struct ArrowArray array;
    OK(rowdex_batch_export(batch, &array, NULL, &error));
    rowdex_free(batch);
    for (size_t i = 0; i < len; i++) {
      CHECK(ids[i] == (int64_t)rows[i] && int64_values(&array, 0)[i] == ids[i]);
    }
    array.release(&array);
    if (steps == 20) {
      OK(rowdex_loader_state(loader, state, sizeof state, &error));
      OK(rowdex_sampler_state(sampler, 0, steps + 1, same, sizeof same, &error));
      CHECK(strcmp(state, same) == 0);
    }
    steps += 1;
  }
  CHECK(steps == 50);

  OK(rowdex_resume(loader, state, &error));
  rowdex_batch *batch = NULL;
  OK(rowdex_loader_next(loader, &batch, &error));
  OK(rowdex_sampler_batch(sampler, 0, 21, rows, 1000, &(size_t){0}, NULL, NULL, &error));
  rowdex_batch_info info = {0};
  OK(rowdex_batch_get_info(batch, &info, &error));
  CHECK(info.step == 21 && info.steps == 50 && memcmp(rows, info.row_ids, sizeof rows) == 0);
  rowdex_free(batch);

  OK(rowdex_resume(sampler, state, &error));
  CHECK(number_of(sampler, "steps") == 50 && number_of(sampler, "steps_left") == 29);
  OK(rowdex_sampler_state(sampler, 0, 21, same, sizeof same, &error));
  CHECK(strcmp(state, same) == 0);
  FAILS(rowdex_sampler_state(sampler, 0, 0, same, sizeof same, &error), ROWDEX_STATUS_OUT_OF_RANGE, "21");
  OK(rowdex_sampler_set_epoch(sampler, 3, &error));
  CHECK(number_of(sampler, "epoch") == 3 && number_of(sampler, "steps") == 50);
  OK(rowdex_loader_begin_epoch(loader, &(uint64_t){0}, NULL, &error));
  /* Freed in the middle of an epoch, with threads at work, and before what it was made from. */
  rowdex_free(loader);
  rowdex_free(sampler);
  rowdex_free(dataset);
}

/* The ranks of a shared reader wait for each other, so nothing comes before both have asked. */
static void a_wait_may_be_limited_and_goes_on_with_the_next_call(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  char share[64];
  snprintf(share, sizeof share, "{\"job\": \"capi-waits-%ld\", \"ranks\": 2}", (long)getpid());
  rowdex_loader_options options = {.share = share, .max_wait = 10};
  rowdex_sampler *samplers[2];
  rowdex_loader *loaders[2];
  for (uint32_t rank = 0; rank < 2; rank++) {
    samplers[rank] = new_sampler(dataset, "global", rank, 2, 100);
    OK(rowdex_loader_new(dataset, samplers[rank], &options, &loaders[rank], &error));
  }
  rowdex_batch *batch = NULL;
  /* The reader waits for rank 1 for seconds, and begins alone then. */
  FAILS(rowdex_loader_next(loaders[0], &batch, &error), ROWDEX_STATUS_TIMED_OUT, "within the time");
  FAILS(rowdex_loader_peek(loaders[0], 0, 0, 1, &batch, &error), ROWDEX_STATUS_TIMED_OUT, "within the time");
  uint64_t served[2] = {0, 0};
  for (uint32_t rank = 0; served[0] < 10 || served[1] < 10; rank = 1 - rank) {
    rowdex_error *late = NULL;
    rowdex_status status = rowdex_loader_next(loaders[rank], &batch, &late);
    if (status == ROWDEX_STATUS_TIMED_OUT) {
      rowdex_free(late);
      continue;
    }
    CHECK(status == ROWDEX_STATUS_OK);
    rowdex_batch_info info = {0};
    OK(rowdex_batch_get_info(batch, &info, &error));
    uint64_t rows[100];
    OK(rowdex_sampler_batch(samplers[rank], 0, served[rank], rows, 100, &(size_t){0}, NULL, NULL, &error));
    CHECK(info.step == served[rank]++ && memcmp(rows, info.row_ids, sizeof rows) == 0);
    rowdex_free(batch);
  }
  for (int rank = 0; rank < 2; rank++) {
    rowdex_free(loaders[rank]);
    rowdex_free(samplers[rank]);
  }
  rowdex_free(dataset);
}

static void batches_are_looked_at_before_they_are_handed_out(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  rowdex_sampler *sampler = new_sampler(dataset, "global", 1, 4, 100);
  rowdex_loader *loader = NULL, *other = NULL;
  OK(rowdex_loader_new(dataset, sampler, NULL, &loader, &error));
  rowdex_loader_info at = {0};
  uint64_t several = 0;
  for (;;) {
    OK(rowdex_loader_get_info(loader, &at, &error));
    if (at.epoch > 0) break;
    rowdex_batch *batch = NULL;
    OK(rowdex_loader_peek(loader, 0, at.step, 1000, &batch, &error));
    rowdex_batch_info info = {0};
    OK(rowdex_batch_get_info(batch, &info, &error));
    CHECK(info.epoch == 0 && info.step == at.step && info.num_rows % 100 == 0 && info.num_rows <= 1000);
    int64_t ids[1000];
    ids_of(batch, ids);
    several += info.num_rows > 100;
    for (uint64_t first = 0; first < info.num_rows; first += 100, at.step++) {
      uint64_t rows[100];
      size_t len;
      OK(rowdex_sampler_batch(sampler, 0, at.step, rows, 100, &len, NULL, NULL, &error));
      for (size_t i = 0; i < len; i++) CHECK(ids[first + i] == (int64_t)rows[i] && info.row_ids[first + i] == rows[i]);
      FAILS(rowdex_loader_advance(loader, 0, at.step + 1, &error), ROWDEX_STATUS_CLOSED, "another iteration");
      OK(rowdex_loader_advance(loader, 0, at.step, &error));
    }
    rowdex_free(batch);
  }
  CHECK(several > 0 && at.epoch == 1 && at.step == 0);
  rowdex_batch *batch = NULL;
  OK(rowdex_loader_peek(loader, 0, at.steps, 1000, &batch, &error));
  CHECK(batch == NULL);

  /* To a step and back, and another loader that goes on there. */
  OK(rowdex_loader_seek(loader, 2, 7, &error));
  FAILS(rowdex_loader_seek(loader, 2, at.steps + 1, &error), ROWDEX_STATUS_OUT_OF_RANGE, "steps");
  rowdex_close(loader);
  OK(rowdex_loader_reopen(loader, &other, &error));
  FAILS(rowdex_loader_peek(loader, 2, 7, 1, &batch, &error), ROWDEX_STATUS_CLOSED, "closed");
  OK(rowdex_loader_get_info(other, &at, &error));
  CHECK(at.epoch == 2 && at.step == 7 && at.steps_left == at.steps - 7);
  char state[ROWDEX_STATE_CAPACITY], same[ROWDEX_STATE_CAPACITY];
  OK(rowdex_loader_state(other, state, sizeof state, &error));
  OK(rowdex_sampler_state(sampler, 2, 7, same, sizeof same, &error));
  CHECK(strcmp(state, same) == 0);
  OK(rowdex_loader_next(other, &batch, &error));
  rowdex_batch_info info = {0};
  OK(rowdex_batch_get_info(batch, &info, &error));
  uint64_t rows[100];
  OK(rowdex_sampler_batch(sampler, 2, 7, rows, 100, &(size_t){0}, NULL, NULL, &error));
  CHECK(info.epoch == 2 && info.step == 7 && memcmp(rows, info.row_ids, sizeof rows) == 0);
  rowdex_free(batch);
  rowdex_free(loader);
  rowdex_free(other);
  rowdex_free(sampler);
  rowdex_free(dataset);
}

/* Who looks past the end of an epoch, of which batches are left, is told so, and these are handed out. */
static void who_looks_past_the_end_leaves_what_is_left(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  rowdex_sampler *sampler = new_sampler(dataset, "global", 0, 1, 80000);
  rowdex_loader *loader = NULL;
  OK(rowdex_loader_new(dataset, sampler, NULL, &loader, &error));
  rowdex_batch *batch = NULL;
  rowdex_loader_info at = {0};
  OK(rowdex_loader_peek(loader, 0, 3, 1, &batch, &error));
  OK(rowdex_loader_get_info(loader, &at, &error));
  CHECK(batch == NULL && at.epoch == 0 && at.step == 0 && at.steps == 3);
  for (uint64_t step = 0; step <= 3; step++) {
    OK(rowdex_loader_peek(loader, 0, step, 1, &batch, &error));
    CHECK((batch == NULL) == (step == 3));
    rowdex_free(batch);
  }
  for (uint64_t step = 0; step < 3; step++) OK(rowdex_loader_advance(loader, 0, step, &error));
  OK(rowdex_loader_get_info(loader, &at, &error));
  CHECK(at.epoch == 1 && at.step == 0);
  rowdex_free(loader);
  rowdex_free(sampler);
  rowdex_free(dataset);
}

/* Checks that the batch of a step is what the sampler says, without handing it out. */
static void look_at(rowdex_loader *loader, const rowdex_sampler *sampler, uint64_t epoch, uint64_t step) {
  rowdex_batch *batch = NULL;
  OK(rowdex_loader_peek(loader, epoch, step, 1, &batch, &error));
  rowdex_batch_info info = {0};
  OK(rowdex_batch_get_info(batch, &info, &error));
  uint64_t rows[100];
  size_t len;
  OK(rowdex_sampler_batch(sampler, epoch, step, rows, 100, &len, NULL, NULL, &error));
  CHECK(info.epoch == epoch && info.step == step && info.num_rows == len);
  CHECK(memcmp(rows, info.row_ids, len * sizeof *rows) == 0);
  rowdex_free(batch);
}

static void stands_at(const rowdex_loader *loader, const rowdex_sampler *sampler, uint64_t epoch, uint64_t step) {
  rowdex_loader_info at = {0};
  OK(rowdex_loader_get_info(loader, &at, &error));
  CHECK(at.epoch == epoch && at.step == step && at.steps_left == at.steps - step);
  char state[ROWDEX_STATE_CAPACITY], same[ROWDEX_STATE_CAPACITY];
  OK(rowdex_loader_state(loader, state, sizeof state, &error));
  OK(rowdex_sampler_state(sampler, epoch, step, same, sizeof same, &error));
  CHECK(strcmp(state, same) == 0);
}

static void is_next(rowdex_loader *loader, uint32_t rank, uint64_t step) {
  rowdex_batch *batch = NULL;
  OK(rowdex_loader_next(loader, &batch, &error));
  rowdex_batch_info info = {0};
  OK(rowdex_batch_get_info(batch, &info, &error));
  CHECK(info.rank == rank && info.step == step);
  rowdex_free(batch);
}

static void a_loader_of_several_ranks_shows_its_next_batch_alone_and_loses_none(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  rowdex_sampler *sampler = new_sampler(dataset, "global", 0, 2, 100);
  rowdex_sampler *other = new_sampler(dataset, "global", 1, 2, 100);
  const rowdex_sampler *more[] = {other};
  rowdex_loader_options options = {.more_ranks = more, .num_more_ranks = 1};
  for (uint32_t served = 0; served < 2; served++) {
    rowdex_loader *loader = NULL;
    OK(rowdex_loader_new(dataset, sampler, &options, &loader, &error));
    if (served > 0) is_next(loader, 0, 0);
    rowdex_batch *batch = NULL;
    OK(rowdex_loader_peek(loader, 0, 0, 1, &batch, &error));
    rowdex_free(batch);
    FAILS(rowdex_loader_peek(loader, 0, 1, 1, &batch, &error), ROWDEX_STATUS_CLOSED, "another iteration");
    for (uint32_t place = served; place < 4; place++) is_next(loader, place % 2, place / 2);
    rowdex_free(loader);
  }
  rowdex_free(other);
  rowdex_free(sampler);
  rowdex_free(dataset);
}

static void several_batches_are_looked_at_and_the_loader_stands_before_the_first(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  rowdex_sampler *sampler = new_sampler(dataset, "global", 1, 4, 100);
  rowdex_loader *loader = NULL, *other = NULL;
  OK(rowdex_loader_new(dataset, sampler, NULL, &loader, &error));
  rowdex_loader_info at = {0};
  OK(rowdex_loader_get_info(loader, &at, &error));
  rowdex_batch *batch = NULL;
  FAILS(rowdex_loader_peek(loader, 0, 1, 1, &batch, &error), ROWDEX_STATUS_CLOSED, "another iteration");
  for (uint64_t step = 0; step < 4; step++) look_at(loader, sampler, 0, step);
  stands_at(loader, sampler, 0, 0);
  FAILS(rowdex_loader_peek(loader, 0, 5, 1, &batch, &error), ROWDEX_STATUS_CLOSED, "another iteration");
  OK(rowdex_loader_advance(loader, 0, 0, &error));
  stands_at(loader, sampler, 0, 1);
  FAILS(rowdex_loader_advance(loader, 0, 2, &error), ROWDEX_STATUS_CLOSED, "another iteration");

  /* Another loader goes on after what was handed out, and so does this one by whatever other way. */
  OK(rowdex_loader_reopen(loader, &other, &error));
  look_at(other, sampler, 0, 1);
  look_at(loader, sampler, 0, 1);
  look_at(loader, sampler, 0, 2);
  rowdex_free(describe(loader));
  OK(rowdex_loader_next(loader, &batch, &error));
  rowdex_batch_info info = {0};
  OK(rowdex_batch_get_info(batch, &info, &error));
  CHECK(info.step == 1);
  rowdex_free(batch);
  stands_at(loader, sampler, 0, 2);

  /* To the end of the epoch, which is over with the last one that is handed out. */
  for (uint64_t step = 2; step < at.steps; step++) look_at(loader, sampler, 0, step);
  stands_at(loader, sampler, 0, 2);
  for (uint64_t step = 2; step < at.steps; step++) OK(rowdex_loader_advance(loader, 0, step, &error));
  stands_at(loader, sampler, 1, 0);
  look_at(loader, sampler, 1, 0);
  look_at(loader, sampler, 1, 1);
  OK(rowdex_loader_advance(loader, 1, 0, &error));
  OK(rowdex_loader_begin_epoch(loader, NULL, &at, &error));
  CHECK(at.epoch == 2 && at.step == 0);
  look_at(loader, sampler, 2, 0);
  look_at(loader, sampler, 2, 1);
  OK(rowdex_loader_begin_epoch(loader, &(uint64_t){5}, &at, &error));
  CHECK(at.epoch == 5 && at.step == 0 && at.steps_left == at.steps);
  look_at(loader, sampler, 5, 0);
  OK(rowdex_loader_begin_epoch(loader, &(uint64_t){2}, NULL, &error));
  rowdex_close(loader);
  FAILS(rowdex_loader_advance(loader, 2, 0, &error), ROWDEX_STATUS_CLOSED, "closed");
  stands_at(loader, sampler, 2, 0);
  rowdex_free(loader);
  rowdex_free(other);
  rowdex_free(sampler);
  rowdex_free(dataset);
}

static void files_are_verified(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  struct progress progress = {0, 0, 0, 0};
  rowdex_operands operands = {.dataset = dataset};
  char *report = NULL;
  OK(rowdex_run("{\"verify\": {\"check\": \"deep\"}}", &operands, note, &progress, &report, &error));
  CHECK(progress.calls == DEMO_FILES && progress.files == DEMO_FILES);
  CHECK(reported(report, "files") == DEMO_FILES && reported(report, "rows") == DEMO_ROWS);
  CHECK(strstr(report, "\"problems\":[]") != NULL);
  rowdex_free(report);
  uint64_t bytes = 0;
  OK(rowdex_dataset_decoded_bytes(dataset, &bytes, &error));
  CHECK(bytes >= DEMO_ROWS * sizeof(int64_t));
  rowdex_free(dataset);
}

static void row_groups_are_kept_on_a_local_disk(const char *folder) {
  rowdex_index *index = open_index(folder);
  char kept[4096];
  snprintf(kept, sizeof kept, "%s/disk_cache", folder);
  rowdex_disk_cache disk_cache = {.folder = kept, .bytes = (uint64_t)1 << 30};
  rowdex_dataset_options options = {.cache_bytes = 1, .disk_cache = &disk_cache};
  uint64_t rows[300];
  for (uint64_t row = 0; row < 300; row += 1) rows[row] = row;
  for (int turn = 0; turn < 2; turn += 1) {
    rowdex_dataset *dataset = NULL;
    OK(rowdex_dataset_open(index, &options, &dataset, &error));
    struct ArrowArray array;
    OK(take_array(dataset, rows, 300, &array, NULL, &error));
    CHECK(array.length == 300);
    array.release(&array);
    char *known = describe(dataset);
    const char *kept_there = strstr(known, "\"disk_cache\":");
    CHECK(kept_there != NULL && strstr(kept_there, "\"fault\":null") != NULL);
    /* An earlier run may have left it. */
    uint64_t hits = reported(kept_there, "hits"), misses = reported(kept_there, "misses");
    CHECK(hits + misses == 1 && reported(kept_there, "writes") == misses && (turn == 0 || hits == 1));
    rowdex_free(known);
    rowdex_free(dataset);
  }
  rowdex_dataset *dataset = NULL;
  disk_cache.folder = NULL;
  FAILS(rowdex_dataset_open(index, &options, &dataset, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "folder");
  CHECK(dataset == NULL);
  rowdex_free(index);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  the_library_is_the_one_of_the_header();
  an_index_is_built_and_tells_of_itself(argv[1]);
  lengths_of_rows_are_noted_and_read(argv[1]);
  rows_come_as_arrow_in_the_order_asked(argv[1]);
  two_ranks_share_all_rows(argv[1]);
  orders_need_no_data();
  a_loader_serves_what_the_sampler_says_and_resumes(argv[1]);
  a_wait_may_be_limited_and_goes_on_with_the_next_call(argv[1]);
  batches_are_looked_at_before_they_are_handed_out(argv[1]);
  who_looks_past_the_end_leaves_what_is_left(argv[1]);
  several_batches_are_looked_at_and_the_loader_stands_before_the_first(argv[1]);
  a_loader_of_several_ranks_shows_its_next_batch_alone_and_loses_none(argv[1]);
  files_are_verified(argv[1]);
  row_groups_are_kept_on_a_local_disk(argv[1]);
  return 0;
}
