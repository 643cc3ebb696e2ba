/* Rows that are written anew: in one call, in steps, stopped and resumed, and what is refused. */
#include <stdatomic.h>

#include "check.h"

struct told {
  uint64_t calls, done, all, bytes;
  /* Is set once so many rows are done with. */
  uint64_t stop_at;
  atomic_uint stop;
};

static void note(void *userdata, uint64_t done, uint64_t all, uint64_t bytes) {
  struct told *told = (struct told *)userdata;
  CHECK(done >= told->done && done <= all && bytes >= told->bytes);
  told->calls += 1;
  told->done = done;
  told->all = all;
  told->bytes = bytes;
  if (told->stop_at > 0 && done >= told->stop_at) atomic_store(&told->stop, 1);
}

static const char *in(const char *folder, const char *name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

/* The digest of the rows of an output, which has those of the dataset in their order. */
static uint64_t proven(const rowdex_dataset *dataset, const rowdex_order *order, const char *output) {
  rowdex_index *index = NULL;
  OK(rowdex_index_open(in(output, "index.rdx"), NULL, &index, &error));
  rowdex_dataset *other = NULL;
  OK(rowdex_dataset_open(index, NULL, &other, &error));
  rowdex_index_free(index);
  rowdex_digest_options options = {.struct_size = sizeof options, .other = other, .order = order};
  rowdex_digest_info info = {.struct_size = sizeof info};
  rowdex_error *difference = NULL;
  OK(rowdex_dataset_digest(dataset, &options, &info, &difference, &error));
  CHECK(difference == NULL && info.same_rows == 1 && info.in_order == 1 && info.other_rows == DEMO_ROWS);
  rowdex_dataset_free(other);
  return info.low;
}

/* The rows in a store, of which the environment says how it is talked to, and the spill in the folder. */
static void into_a_store(const rowdex_dataset *dataset, const rowdex_order *order, const char *to, const char *folder) {
  rowdex_shuffle_options options = {.struct_size = sizeof options, .order = order, .output = to, .threads = 2};
  options.memory = 1 << 20;
  options.files = 3;
  FAILS(rowdex_shuffle(dataset, &options, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "spill");
  options.spill = folder;
  rowdex_shuffle_report report = {.struct_size = sizeof report};
  OK(rowdex_shuffle(dataset, &options, &report, &error));
  CHECK(report.rows == DEMO_ROWS && report.files == 3 && report.kept_files == 0 && report.bytes_spilled > 0);
  uint64_t digest = proven(dataset, order, to);
  FAILS(rowdex_shuffle(dataset, &options, NULL, &error), ROWDEX_STATUS_ALREADY_EXISTS, to);
  options.resume = 1;
  OK(rowdex_shuffle(dataset, &options, &report, &error));
  CHECK(report.kept_files == 3 && report.bytes_written == 0 && proven(dataset, order, to) == digest);
}

int main(int argc, char **argv) {
  CHECK(argc == 2 || argc == 3);
  char output[4096], steps[4096];
  snprintf(output, sizeof output, "%s/shuffled", argv[1]);
  snprintf(steps, sizeof steps, "%s/shuffled-in-steps", argv[1]);
  rowdex_index *index = open_index(argv[1]);
  rowdex_order *order = new_orders("global", index, 7), *other = new_orders("global", index, 8);
  rowdex_dataset *dataset = open_dataset(argv[1], NULL);
  if (argc == 3) {
    into_a_store(dataset, order, argv[2], argv[1]);
    rowdex_order_free(other);
    rowdex_order_free(order);
    rowdex_dataset_free(dataset);
    rowdex_index_free(index);
    return 0;
  }
  struct told told = {0};

  rowdex_shuffle_options options = {.struct_size = sizeof options, .order = order, .output = output, .threads = 2};
  options.memory = 1 << 20;
  options.files = 3;
  options.compression = "snappy";
  options.dictionary = "no";
  options.overwrite = 1;
  options.progress = note;
  options.progress_userdata = &told;
  rowdex_shuffle_report report = {.struct_size = sizeof report};

  /* Stopped in the middle of the second pass, it leaves what it finished. */
  told.stop_at = DEMO_ROWS + DEMO_ROWS / 2;
  OK(rowdex_stop_when((const uint32_t *)&told.stop, &error));
  FAILS(rowdex_shuffle(dataset, &options, &report, &error), ROWDEX_STATUS_CLOSED, "");
  CHECK(told.stop == 1);
  memset(&told, 0, sizeof told);
  options.overwrite = 0;
  FAILS(rowdex_shuffle(dataset, &options, &report, &error), ROWDEX_STATUS_ALREADY_EXISTS, "shuffled");
  options.resume = 1;
  OK(rowdex_shuffle(dataset, &options, &report, &error));
  CHECK(report.rows == DEMO_ROWS && report.files == 3 && report.kept_files >= 1);
  CHECK(report.bytes_written > 0 && report.bytes_spilled == 0);
  CHECK(told.calls > 0 && told.done == told.all);
  OK(rowdex_stop_when(NULL, &error));
  uint64_t digest = proven(dataset, order, output);
  options.order = other;
  FAILS(rowdex_shuffle(dataset, &options, NULL, &error), ROWDEX_STATUS_STATE_MISMATCH, "another order");
  options.order = order;
  options.resume = 0;

  /* In steps, of which each has tasks of its own. */
  options.output = steps;
  options.progress = NULL;
  options.step = "spill";
  options.tasks = 3;
  for (options.task = 0; options.task < 3; options.task++) OK(rowdex_shuffle(dataset, &options, NULL, &error));
  FAILS(rowdex_shuffle(dataset, &options, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "task 3 of 3");
  options.step = "write";
  options.tasks = 2;
  for (options.task = 0; options.task < 2; options.task++) OK(rowdex_shuffle(dataset, &options, NULL, &error));
  options.step = "index";
  FAILS(rowdex_shuffle(dataset, &options, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "`task` says nothing");
  options.task = options.tasks = 0;
  OK(rowdex_shuffle(dataset, &options, &report, &error));
  CHECK(report.rows == DEMO_ROWS && proven(dataset, order, steps) == digest);

  static const struct {
    const char *step, *compression, *dictionary;
    uint64_t file_bytes;
    const char *said;
  } refused[] = {
      {"both", NULL, NULL, 0, "no step is called"},
      {NULL, "gzip", NULL, 0, "no compression is called"},
      {NULL, NULL, "maybe", 0, "`options.dictionary`"},
      {NULL, NULL, NULL, 10, "and not both"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
    rowdex_shuffle_options wrong = options;
    wrong.step = refused[i].step;
    wrong.compression = refused[i].compression;
    wrong.dictionary = refused[i].dictionary;
    wrong.file_bytes = refused[i].file_bytes;
    FAILS(rowdex_shuffle(dataset, &wrong, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT, refused[i].said);
  }
  uint64_t few = 10;
  rowdex_order_options of_few = {.struct_size = sizeof of_few, .group_rows = &few, .num_groups = 1};
  rowdex_order *short_order = NULL;
  OK(rowdex_order_new(&of_few, &short_order, &error));
  options.step = NULL;
  options.order = short_order;
  FAILS(rowdex_shuffle(dataset, &options, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "over 10 rows");
  options.order = NULL;
  FAILS(rowdex_shuffle(dataset, &options, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "`options.order` is NULL");
  FAILS(rowdex_shuffle(NULL, &options, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "`dataset` is NULL");

  rowdex_order_free(short_order);
  rowdex_order_free(other);
  rowdex_order_free(order);
  rowdex_dataset_free(dataset);
  rowdex_index_free(index);
  return 0;
}
