/* A loader as an Arrow stream: the same batches, in the same order, one with the loader. */
#include "check.h"

static rowdex_loader *new_loader(const rowdex_dataset *dataset, const rowdex_sampler *sampler) {
  rowdex_loader_options options = {.memory = 1 << 20, .threads = 1, .epochs = 1};
  rowdex_loader *loader = NULL;
  OK(rowdex_loader_new(dataset, sampler, &options, &loader, &error));
  return loader;
}

static void a_stream_serves_the_batches_of_the_sampler(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  rowdex_sampler *sampler = new_sampler(dataset, "global", 2, 3, 3000);
  rowdex_loader *loader = new_loader(dataset, sampler);
  struct ArrowArrayStream stream;
  OK(rowdex_stream(loader, &stream, &error));
  struct ArrowSchema schema;
  CHECK(stream.get_schema(&stream, &schema) == 0);
  CHECK(strcmp(schema.format, "+s") == 0 && schema.n_children == 1 && strcmp(schema.children[0]->name, "id") == 0);
  struct ArrowSchema copy;
  OK(rowdex_schema_copy(&schema, &copy, &error));
  CHECK(strcmp(copy.children[0]->name, "id") == 0 && strcmp(copy.children[0]->format, "l") == 0);
  rowdex_schema_release(&schema);
  CHECK(schema.release == NULL);
  FAILS(rowdex_schema_copy(&schema, &copy, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "released");
  struct ArrowSchema again;
  copy.release(&copy);
  FAILS(rowdex_schema_copy(&copy, &again, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "released");
  memset(&schema, 0, sizeof schema);
  FAILS(rowdex_schema_copy(&schema, &copy, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "released");
  rowdex_schema_release(&schema);

  uint64_t *rows = (uint64_t *)malloc(3000 * sizeof *rows);
  char state[ROWDEX_STATE_CAPACITY], same[ROWDEX_STATE_CAPACITY];
  uint64_t step = 0;
  for (;; step++) {
    struct ArrowArray array;
    CHECK(stream.get_next(&stream, &array) == 0);
    if (array.release == NULL) break;
    size_t len;
    OK(rowdex_sampler_batch(sampler, 0, step, rows, 3000, &len, NULL, NULL, &error));
    CHECK((size_t)array.length == len);
    for (size_t i = 0; i < len; i++) CHECK(int64_values(&array, 0)[i] == (int64_t)rows[i]);
    rowdex_array_release(&array);
    CHECK(array.release == NULL);
    /* The loader tells where the stream is. */
    OK(rowdex_loader_state(loader, state, sizeof state, &error));
    OK(rowdex_sampler_state(sampler, 0, step + 1, same, sizeof same, &error));
    CHECK(strcmp(state, same) == 0);
  }
  CHECK(step == number_of(sampler, "steps"));
  /* The end stays the end. */
  struct ArrowArray array;
  CHECK(stream.get_next(&stream, &array) == 0 && array.release == NULL);
  stream.release(&stream);
  CHECK(stream.release == NULL);
  free(rows);
  rowdex_free(loader);
  rowdex_free(sampler);
  rowdex_free(dataset);
}

static void stream_and_loader_are_one_and_either_may_go_first(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  rowdex_sampler *sampler = new_sampler(dataset, "sequential", 0, 1, 1000);
  rowdex_loader *loader = new_loader(dataset, sampler);
  rowdex_free(sampler);
  rowdex_free(dataset);
  struct ArrowArrayStream first, second;
  OK(rowdex_stream(loader, &first, &error));
  OK(rowdex_stream(loader, &second, &error));
  struct ArrowArray array;
  for (int turn = 0; turn < 3; turn++) {
    struct ArrowArrayStream *stream = turn % 2 == 0 ? &first : &second;
    CHECK(stream->get_next(stream, &array) == 0);
    CHECK(int64_values(&array, 0)[0] == turn * 1000);
    array.release(&array);
  }
  first.release(&first);
  rowdex_batch *batch = NULL;
  OK(rowdex_loader_next(loader, &batch, &error));
  OK(rowdex_batch_export(batch, &array, NULL, &error));
  CHECK(int64_values(&array, 0)[0] == 3000);
  array.release(&array);
  rowdex_free(batch);
  rowdex_free(loader);
  CHECK(second.get_next(&second, &array) == 0 && int64_values(&array, 0)[0] == 4000);
  array.release(&array);
  second.release(&second);
}

static void a_stream_hands_over_the_error(const char *folder) {
  char gone[4096], output[4096];
  snprintf(gone, sizeof gone, "%s/gone.parquet", folder);
  snprintf(output, sizeof output, "%s/gone.rdx", folder);
  static char bytes[8 << 20];
  FILE *file = fopen(in_folder(folder, "data/part-00.parquet"), "rb");
  CHECK(file != NULL);
  size_t len = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  file = fopen(gone, "wb");
  CHECK(file != NULL && fwrite(bytes, 1, len, file) == len && fclose(file) == 0);
  OK(build(text("{\"files\": [\"%s\"], \"output\": \"%s\"}", gone, output), &error));
  CHECK(remove(gone) == 0);

  rowdex_index *index = NULL;
  rowdex_dataset *dataset = NULL;
  OK(rowdex_index_open(output, NULL, &index, &error));
  OK(rowdex_dataset_open(index, NULL, &dataset, &error));
  rowdex_sampler *sampler = new_sampler(dataset, "global", 0, 1, 100);
  rowdex_loader *loader = new_loader(dataset, sampler);
  struct ArrowArrayStream stream;
  OK(rowdex_stream(loader, &stream, &error));
  struct ArrowArray array;
  CHECK(stream.get_next(&stream, &array) != 0);
  const char *message = stream.get_last_error(&stream);
  CHECK(message != NULL && strstr(message, "gone.parquet") != NULL);
  stream.release(&stream);
  rowdex_free(loader);
  rowdex_free(sampler);
  rowdex_free(dataset);
  rowdex_free(index);
  CHECK(remove(output) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  a_stream_serves_the_batches_of_the_sampler(argv[1]);
  stream_and_loader_are_one_and_either_may_go_first(argv[1]);
  a_stream_hands_over_the_error(argv[1]);
  return 0;
}
