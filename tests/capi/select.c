/* Views: rows that are chosen by sets, by other views and by a list from an Arrow stream. */
#include <errno.h>
#include <unistd.h>

#include "check.h"

/* A stream of one batch with a column row_id, which says when it was released. */
typedef struct {
  int64_t ids[4];
  int given;
  int released;
} list;

static void release_schema(struct ArrowSchema *schema) {
  if (schema->children != NULL) {
    schema->children[0]->release = NULL;
    free(schema->children[0]);
    free((void *)schema->children);
  }
  schema->release = NULL;
}

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *schema) {
  (void)stream;
  struct ArrowSchema *child = (struct ArrowSchema *)calloc(1, sizeof *child);
  child->format = "l";
  child->name = "row_id";
  child->release = release_schema;
  memset(schema, 0, sizeof *schema);
  schema->format = "+s";
  schema->name = "";
  schema->n_children = 1;
  schema->children = (struct ArrowSchema **)malloc(sizeof *schema->children);
  schema->children[0] = child;
  schema->release = release_schema;
  return 0;
}

static void release_array(struct ArrowArray *array) {
  if (array->children != NULL) {
    if (array->children[0]->release != NULL) array->children[0]->release(array->children[0]);
    free(array->children[0]);
    free((void *)array->children);
  }
  free((void *)array->buffers);
  array->release = NULL;
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *array) {
  list *rows = (list *)stream->private_data;
  memset(array, 0, sizeof *array);
  if (rows->given++) return 0;
  struct ArrowArray *child = (struct ArrowArray *)calloc(1, sizeof *child);
  child->length = 4;
  child->n_buffers = 2;
  child->buffers = (const void **)calloc(2, sizeof *child->buffers);
  child->buffers[1] = rows->ids;
  child->release = release_array;
  array->length = 4;
  array->n_buffers = 1;
  array->buffers = (const void **)calloc(1, sizeof *array->buffers);
  array->n_children = 1;
  array->children = (struct ArrowArray **)malloc(sizeof *array->children);
  array->children[0] = child;
  array->release = release_array;
  return 0;
}

static int fail(struct ArrowArrayStream *stream, struct ArrowArray *array) {
  (void)stream;
  (void)array;
  return EIO;
}

static const char *no_error(struct ArrowArrayStream *stream) {
  (void)stream;
  return NULL;
}

static void release_stream(struct ArrowArrayStream *stream) {
  ((list *)stream->private_data)->released = 1;
  stream->release = NULL;
}

static struct ArrowArrayStream stream_of(list *rows) {
  struct ArrowArrayStream stream = {get_schema, get_next, no_error, release_stream, rows};
  return stream;
}

/* Selects what is described. */
static rowdex_status run_select(const rowdex_index *base, const char *description, const rowdex_id_set *kept,
                                char **report, rowdex_error **error) {
  rowdex_operands operands = {0};
  if (base != NULL) {
    operands.indexes = &base;
    operands.num_indexes = 1;
  }
  if (kept != NULL) {
    operands.sets = &kept;
    operands.num_sets = 1;
  }
  description = text("{\"select\": {%s%s}}", kept == NULL ? "" : "\"kept\": 0, ", description);
  return rowdex_run(description, &operands, NULL, NULL, report, error);
}

/* The view that these fields describe, opened. */
static rowdex_index *view_of(const rowdex_index *base, const char *fields, const rowdex_id_set *kept,
                             const char *path) {
  char *report = NULL;
  OK(run_select(base, text("\"output\": \"%s\", %s", path, fields), kept, &report, &error));
  rowdex_index *view = NULL;
  OK(rowdex_index_open(path, NULL, &view, &error));
  CHECK(number_of(view, "rows") == reported(report, "rows"));
  CHECK(number_of(base, "rows") == reported(report, "base_rows"));
  rowdex_free(report);
  return view;
}

static rowdex_status select_rows(const rowdex_index *base, const char *fields, const char *path, rowdex_error **error) {
  return run_select(base, text("\"output\": \"%s\", %s", path, fields), NULL, NULL, error);
}

static void views_serve_what_was_chosen(const char *folder) {
  rowdex_index *base = open_index(folder);
  char low_path[4096], path[4096];
  snprintf(low_path, sizeof low_path, "%s/low-%d.rdx", folder, (int)getpid());
  snprintf(path, sizeof path, "%s/view-%d.rdx", folder, (int)getpid());
  range_of_rows range = {0, 1000};
  rowdex_id_set *first = set_of((set_spec){.rows = DEMO_ROWS, .ranges = &range, .num_ranges = 1});
  rowdex_index *low = view_of(base, "\"note\": \"the first\"", first, low_path);
  CHECK(number_of(low, "rows") == 1000);
  rowdex_id_set *found = set_of((set_spec){.index = base, .view = low});
  CHECK(number_of(found, "len") == 1000 && rowdex_id_set_contains(found, 999));

  rowdex_index *view = view_of(base, text("\"exclude\": [\"%s\"]", low_path), NULL, path);
  CHECK(number_of(view, "rows") == DEMO_ROWS - 1000);
  FAILS(select_rows(base, "\"rows\": \"x\"", path, &error), ROWDEX_STATUS_ALREADY_EXISTS, "exists");

  list rows = {{5, 2000, 5, 3}, 0, 0};
  struct ArrowArrayStream stream = stream_of(&rows);
  rowdex_id_set *listed = NULL;
  set_spec from_stream = {.index = base, .list = &stream};
  OK(id_set_of(&from_stream, &listed, &error));
  CHECK(rows.released && stream.release == NULL);
  CHECK(number_of(listed, "len") == 3 && number_of(listed, "repeated") == 1 && number_of(listed, "unserved") == 0);
  rowdex_id_set *both = set_of((set_spec){.set = first, .or_set = listed});
  CHECK(number_of(both, "len") == 1001);

  /* A list that cannot be right is released as well. */
  list wrong = {{0, 1, 2, DEMO_ROWS}, 0, 0};
  stream = stream_of(&wrong);
  rowdex_id_set *none = NULL;
  FAILS(id_set_of(&from_stream, &none, &error), ROWDEX_STATUS_OUT_OF_RANGE, "200000");
  CHECK(wrong.released && none == NULL);
  list failing = {{0}, 0, 0};
  stream = stream_of(&failing);
  stream.get_next = fail;
  FAILS(id_set_of(&from_stream, &none, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "does not say why");
  CHECK(failing.released && none == NULL);
  list alone = {{0, 1, 2, 3}, 0, 0};
  stream = stream_of(&alone);
  from_stream.index = NULL;
  FAILS(id_set_of(&from_stream, &none, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "no index 0");
  CHECK(alone.released && none == NULL);
  FAILS(select_rows(NULL, "\"where\": \"id < 5\"", path, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "no index");

  rowdex_free(first);
  rowdex_free(found);
  rowdex_free(listed);
  rowdex_free(both);
  rowdex_free(view);
  rowdex_free(low);
  rowdex_free(base);
  remove(low_path);
  remove(path);
}

static void weights_come_from_a_list(const char *folder) {
  rowdex_index *base = open_index(folder);
  range_of_rows range = {2, 5};
  rowdex_id_set *some = set_of((set_spec){.rows = DEMO_ROWS, .ranges = &range, .num_ranges = 1});
  /* Row ids of any kind are numbers, too. */
  list rows = {{4, 2, 3, 9}, 0, 0};
  struct ArrowArrayStream stream = stream_of(&rows);
  struct ArrowArray weights;
  weights_spec listed = {.index = base, .list = &stream, .column = "row_id", .of = some};
  OK(weights_of(listed, &weights, &error));
  const double *found = (const double *)weights.buffers[1];
  CHECK(rows.released && weights.length == 3 && found[0] == 2 && found[1] == 3 && found[2] == 4);
  weights.release(&weights);
  list few = {{4, 2, 9, 8}, 0, 0};
  stream = stream_of(&few);
  FAILS(weights_of(listed, &weights, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "row id 3 is not listed");
  CHECK(few.released);
  /* A list is released whatever else is wrong. */
  list unused = {{4, 2, 9, 8}, 0, 0};
  stream = stream_of(&unused);
  FAILS(weights_of(listed, NULL, &error), ROWDEX_STATUS_INVALID_ARGUMENT, "`array` is NULL");
  CHECK(unused.released && stream.release == NULL);
  weights_spec nowhere = {.index = base, .list_file = "nowhere.txt", .column = "w", .of = some};
  FAILS(weights_of(nowhere, &weights, &error), ROWDEX_STATUS_NOT_FOUND, "nowhere");
  rowdex_free(some);
  rowdex_free(base);
}

static void rows_are_counted_by_class(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  rowdex_id_set *some = set_of((set_spec){.dataset = dataset, .filter = "label in ('good', 'fair')"});
  struct ArrowArray counts;
  struct ArrowSchema schema;
  OK(column_of("counts", dataset, "label", some, &counts, &schema, &error));
  CHECK(strcmp(schema.children[0]->name, "value") == 0 && strcmp(schema.children[0]->format, "U") == 0);
  CHECK(strcmp(schema.children[1]->name, "rows") == 0 && strcmp(schema.children[1]->format, "L") == 0);
  schema.release(&schema);
  CHECK(counts.length == 2 && counts.n_children == 2);
  CHECK(text_is(counts.children[0], 0, "fair") && text_is(counts.children[0], 1, "good"));
  const uint64_t *rows = (const uint64_t *)counts.children[1]->buffers[1];
  CHECK(rows[0] > 0 && rows[1] > 0 && rows[0] + rows[1] == number_of(some, "len"));
  counts.release(&counts);
  OK(column_of("counts", dataset, "id", some, &counts, &schema, &error));
  CHECK((uint64_t)counts.length == number_of(some, "len") && strcmp(schema.children[0]->format, "l") == 0);
  schema.release(&schema);
  counts.release(&counts);
  FAILS(column_of("counts", dataset, "labels", NULL, &counts, &schema, &error), ROWDEX_STATUS_INVALID_ARGUMENT,
        "did you mean");
  CHECK(counts.release == NULL && schema.release == NULL);
  rowdex_free(some);
  rowdex_free(dataset);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  views_serve_what_was_chosen(argv[1]);
  weights_come_from_a_list(argv[1]);
  rows_are_counted_by_class(argv[1]);
  return 0;
}
