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
  rowdex_free(index);
  rowdex_operands operands = {.dataset = dataset, .other = other, .order = order};
  char *report = NULL;
  OK(rowdex_run("{\"digest\": {}}", &operands, NULL, NULL, &report, &error));
  CHECK(strstr(report, "\"difference\":null") != NULL && strstr(report, "\"same_rows\":true") != NULL);
  CHECK(strstr(report, "\"in_order\":true") != NULL && reported(report, "other_rows") == DEMO_ROWS);
  const char *digest = strstr(report, "\"digest\":\"");
  CHECK(digest != NULL);
  char low[17] = {0};
  memcpy(low, digest + strlen("\"digest\":\"") + 16, 16);
  rowdex_free(report);
  rowdex_free(other);
  return strtoull(low, NULL, 16);
}

/* What a rewrite does that is described, of which somebody may be told. */
static rowdex_status told_of(const rowdex_dataset *dataset, const rowdex_order *order, const char *description,
                             struct told *told, char **report, rowdex_error **error) {
  rowdex_operands operands = {.dataset = dataset, .order = order};
  return rowdex_run(text("{\"rewrite\": %s}", description), &operands, told == NULL ? NULL : note, told, report, error);
}

static uint64_t rewritten(const rowdex_dataset *dataset, const rowdex_order *order, const char *description,
                          const char *field) {
  char *report = NULL;
  OK(told_of(dataset, order, description, NULL, &report, &error));
  CHECK(reported(report, "rows") == DEMO_ROWS);
  uint64_t told = reported(report, field);
  rowdex_free(report);
  return told;
}

static rowdex_status rewrite(const rowdex_dataset *dataset, const rowdex_order *order, const char *description,
                             rowdex_error **error) {
  return told_of(dataset, order, description, NULL, NULL, error);
}

/* The rows in a store, of which the environment says how it is talked to, and the spill in the folder. */
static void into_a_store(const rowdex_dataset *dataset, const rowdex_order *order, const char *to, const char *folder) {
  const char *whole = "{\"output\": \"%s\", \"threads\": 2, \"memory\": 1048576, \"files\": 3%s}";
  FAILS(rewrite(dataset, order, text(whole, to, ""), &error), ROWDEX_STATUS_INVALID_ARGUMENT, "spill");
  char spill[4096];
  snprintf(spill, sizeof spill, ", \"spill\": \"%s\"", folder);
  CHECK(rewritten(dataset, order, text(whole, to, spill), "bytes_spilled") > 0);
  uint64_t digest = proven(dataset, order, to);
  FAILS(rewrite(dataset, order, text(whole, to, spill), &error), ROWDEX_STATUS_ALREADY_EXISTS, to);
  const char *resume = text(whole, to, text("%s, \"resume\": true", spill));
  CHECK(rewritten(dataset, order, resume, "kept_files") == 3 && proven(dataset, order, to) == digest);
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
    rowdex_free(other);
    rowdex_free(order);
    rowdex_free(dataset);
    rowdex_free(index);
    return 0;
  }
  struct told told = {0};
  const char *whole = "{\"output\": \"%s\", \"threads\": 2, \"memory\": 1048576, \"files\": 3, "
                      "\"compression\": \"snappy\", %s}";

  /* Stopped in the middle of the second pass, it leaves what it finished. */
  told.stop_at = DEMO_ROWS + DEMO_ROWS / 2;
  OK(rowdex_stop_when((const uint32_t *)&told.stop, &error));
  FAILS(told_of(dataset, order, text(whole, output, "\"overwrite\": true"), &told, NULL, &error),
        ROWDEX_STATUS_CLOSED, "");
  CHECK(told.stop == 1);
  memset(&told, 0, sizeof told);
  FAILS(rewrite(dataset, order, text(whole, output, "\"step\": null"), &error), ROWDEX_STATUS_ALREADY_EXISTS,
        "shuffled");
  char *report = NULL;
  OK(told_of(dataset, order, text(whole, output, "\"resume\": true"), &told, &report, &error));
  CHECK(reported(report, "rows") == DEMO_ROWS && reported(report, "files") == 3);
  CHECK(reported(report, "kept_files") >= 1 && reported(report, "bytes_written") > 0);
  CHECK(reported(report, "bytes_spilled") == 0 && strstr(report, "index.rdx") != NULL);
  rowdex_free(report);
  CHECK(told.calls > 0 && told.done == told.all);
  OK(rowdex_stop_when(NULL, &error));
  uint64_t digest = proven(dataset, order, output);
  FAILS(rewrite(dataset, other, text(whole, output, "\"resume\": true"), &error), ROWDEX_STATUS_STATE_MISMATCH,
        "another order");

  /* In steps, of which each has tasks of its own. */
  for (int task = 0; task < 3; task++) {
    OK(rewrite(dataset, order, text(whole, steps, text("\"step\": \"spill\", \"task\": [%d, 3]", task)), &error));
  }
  FAILS(rewrite(dataset, order, text(whole, steps, "\"step\": \"spill\", \"task\": [3, 3]"), &error),
        ROWDEX_STATUS_INVALID_ARGUMENT, "task 3 of 3");
  for (int task = 0; task < 2; task++) {
    OK(rewrite(dataset, order, text(whole, steps, text("\"step\": \"write\", \"task\": [%d, 2]", task)), &error));
  }
  CHECK(rewritten(dataset, order, text(whole, steps, "\"step\": \"index\""), "files") == 3);
  CHECK(proven(dataset, order, steps) == digest);
  FAILS(rewrite(dataset, order, text(whole, steps, "\"speed\": 1"), &error), ROWDEX_STATUS_INVALID_ARGUMENT,
        "unknown field `speed`");
  uint64_t few = 10;
  order_spec of_few = {.group_rows = &few, .num_groups = 1};
  rowdex_order *short_order = NULL;
  OK(order_of(&of_few, &short_order, &error));
  const char *described = text(whole, steps, "\"step\": null");
  FAILS(rewrite(dataset, short_order, described, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "over 10 rows");
  FAILS(rewrite(dataset, NULL, described, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "`operands.order` is NULL");
  FAILS(rewrite(NULL, order, described, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "`operands.dataset` is NULL");

  rowdex_free(short_order);
  rowdex_free(other);
  rowdex_free(order);
  rowdex_free(dataset);
  rowdex_free(index);
  return 0;
}
