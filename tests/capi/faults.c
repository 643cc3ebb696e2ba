/* A loader with options: rows that stand in for those of a damaged file, and strings as views. */
#include "check.h"

/* A copy of a file of the demo dataset; of its bytes those in the middle are zeros, if it is to be damaged. */
static void copy(const char *from, const char *to, int damaged) {
  static char bytes[8 << 20];
  FILE *file = fopen(from, "rb");
  CHECK(file != NULL);
  size_t len = fread(bytes, 1, sizeof bytes, file);
  CHECK(fclose(file) == 0 && len > 8 && len < sizeof bytes);
  if (damaged) memset(bytes + 4, 0, len / 2);
  file = fopen(to, "wb");
  CHECK(file != NULL && fwrite(bytes, 1, len, file) == len && fclose(file) == 0);
}

enum { ROWS = 50000, GROUP_ROWS = 6250 };

static rowdex_sampler *sampler_of(const rowdex_dataset *dataset) { return new_sampler(dataset, "global", 0, 1, 500); }

static void rows_of_a_damaged_file_are_substituted_and_reported(const char *folder) {
  char from[4096], good[4096], bad[4096], output[4096];
  snprintf(good, sizeof good, "%s/copy-00.parquet", folder);
  snprintf(bad, sizeof bad, "%s/copy-01.parquet", folder);
  snprintf(output, sizeof output, "%s/copies.rdx", folder);
  snprintf(from, sizeof from, "%s/data/part-00.parquet", folder);
  copy(from, good, 0);
  snprintf(from, sizeof from, "%s/data/part-01.parquet", folder);
  copy(from, bad, 0);
  remove(output);
  OK(build(text("{\"files\": [\"%s\", \"%s\"], \"output\": \"%s\"}", good, bad, output), &error));
  copy(from, bad, 1);

  rowdex_index *index = NULL;
  OK(rowdex_index_open(output, NULL, &index, &error));
  const char *columns[] = {"id"};
  /* Its time has changed, and what is to be seen is what decoding finds. */
  rowdex_dataset_options open = {.columns = columns, .num_columns = 1, .check = "off"};
  rowdex_dataset *dataset = NULL;
  OK(rowdex_dataset_open(index, &open, &dataset, &error));
  rowdex_free(index);
  rowdex_sampler *sampler = sampler_of(dataset);

  /* Unless it is told otherwise, a loader ends at the first step that needs such a row. */
  rowdex_loader_options options = {.epochs = 1, .threads = 1};
  rowdex_loader *loader = NULL;
  rowdex_batch *batch = NULL;
  OK(rowdex_loader_new(dataset, sampler, &options, &loader, &error));
  rowdex_error *error = NULL;
  rowdex_status status = ROWDEX_STATUS_OK;
  for (int steps = 0; status == ROWDEX_STATUS_OK; steps++) {
    CHECK(steps < ROWS / 500);
    status = rowdex_loader_next(loader, &batch, &error);
    if (status == ROWDEX_STATUS_OK) rowdex_free(batch);
  }
  CHECK(status == ROWDEX_STATUS_INVALID_PARQUET && strstr(rowdex_error_message(error), "copy-01.parquet") != NULL);
  rowdex_free(error);
  char *known = describe(loader);
  CHECK(strstr(known, "\"lost\":[]") != NULL);
  rowdex_free(known);
  rowdex_free(loader);

  options.on_error = "substitute";
  options.fault_seed = 9;
  OK(rowdex_loader_new(dataset, sampler, &options, &loader, &error));
  uint64_t served = 0, substituted = 0;
  for (;;) {
    OK(rowdex_loader_next(loader, &batch, &error));
    if (batch == NULL) break;
    rowdex_batch_info info = {0};
    OK(rowdex_batch_get_info(batch, &info, &error));
    struct ArrowArray array;
    OK(rowdex_batch_export(batch, &array, NULL, &error));
    for (uint64_t i = 0; i < info.num_rows; i++) CHECK(int64_values(&array, 0)[i] == (int64_t)info.row_ids[i]);
    array.release(&array);
    uint64_t order[500], before = 0;
    size_t len = 0;
    OK(rowdex_sampler_batch(sampler, 0, info.step, order, 500, &len, NULL, NULL, &error));
    CHECK(len == info.num_rows);
    for (uint64_t i = 0; i < info.num_substituted; i++) {
      rowdex_substituted row = info.substituted[i];
      CHECK(row.place < info.num_rows && (i == 0 || row.place > before));
      CHECK(row.lost == order[row.place] && info.row_ids[row.place] != row.lost);
      before = row.place;
    }
    served += info.num_rows;
    substituted += info.num_substituted;
    rowdex_free(batch);
  }
  CHECK(served == ROWS);
  known = describe(loader);
  size_t groups = 0;
  for (const char *at = strstr(known, "\"lost\":"); (at = strstr(at, "{\"row_group\":")) != NULL; at++, groups++) {
    CHECK(reported(at, "row_group") >= 4 && reported(at, "row_group") < 8);
    CHECK(strstr(at, "\"file\":\"copy-01.parquet\"") != NULL);
  }
  CHECK(groups >= 1 && groups <= 4 && substituted == groups * GROUP_ROWS);
  rowdex_free(known);
  rowdex_free(loader);
  rowdex_free(sampler);
  rowdex_free(dataset);
  CHECK(remove(good) == 0 && remove(bad) == 0 && remove(output) == 0);
}

/* The text at a row of a column of 32-bit offsets, or of views. */
static void text_of(const struct ArrowArray *array, const char *format, int64_t row, const char **text, int32_t *len) {
  row += array->offset;
  if (strcmp(format, "u") == 0) {
    const int32_t *offsets = (const int32_t *)array->buffers[1];
    *text = (const char *)array->buffers[2] + offsets[row];
    *len = offsets[row + 1] - offsets[row];
    return;
  }
  CHECK(strcmp(format, "vu") == 0);
  const int32_t *view = (const int32_t *)array->buffers[1] + 4 * row;
  *len = view[0];
  *text = *len <= 12 ? (const char *)(view + 1) : (const char *)array->buffers[2 + view[2]] + view[3];
}

static void strings_come_as_views_if_they_are_asked_for(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "text");
  rowdex_sampler *sampler = sampler_of(dataset);
  rowdex_loader_options options = {.epochs = 1, .read_concurrency = ROWDEX_NONE};
  rowdex_loader *loaders[2] = {NULL, NULL};
  OK(rowdex_loader_new(dataset, sampler, &options, &loaders[0], &error));
  options.views = 1;
  OK(rowdex_loader_new(dataset, sampler, &options, &loaders[1], &error));
  struct ArrowArrayStream stream;
  OK(rowdex_stream(loaders[1], &stream, &error));
  static const char *formats[] = {"u", "vu"};
  for (int step = 0; step < 10; step++) {
    struct ArrowArray arrays[2];
    for (int i = 0; i < 2; i++) {
      struct ArrowSchema schema, known;
      rowdex_batch *batch = NULL;
      OK(rowdex_schema(loaders[i], &known, &error));
      /* A batch and an array of the stream, in turn. */
      if (i == 1 && step % 2 == 1) {
        CHECK(stream.get_next(&stream, &arrays[i]) == 0 && stream.get_schema(&stream, &schema) == 0);
      } else {
        OK(rowdex_loader_next(loaders[i], &batch, &error));
        OK(rowdex_batch_export(batch, &arrays[i], &schema, &error));
      }
      CHECK(strcmp(schema.children[0]->format, formats[i]) == 0 && strcmp(known.children[0]->format, formats[i]) == 0);
      known.release(&known);
      schema.release(&schema);
      rowdex_free(batch);
    }
    CHECK(arrays[0].length == 500 && arrays[1].length == 500);
    for (int64_t row = 0; row < 500; row++) {
      const char *texts[2];
      int32_t lens[2];
      for (int i = 0; i < 2; i++) text_of(arrays[i].children[0], formats[i], row, &texts[i], &lens[i]);
      CHECK(lens[0] == lens[1] && memcmp(texts[0], texts[1], (size_t)lens[0]) == 0);
    }
    arrays[0].release(&arrays[0]);
    arrays[1].release(&arrays[1]);
  }
  stream.release(&stream);
  rowdex_free(loaders[0]);
  rowdex_free(loaders[1]);
  rowdex_free(sampler);
  rowdex_free(dataset);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  rows_of_a_damaged_file_are_substituted_and_reported(argv[1]);
  strings_come_as_views_if_they_are_asked_for(argv[1]);
  return 0;
}
