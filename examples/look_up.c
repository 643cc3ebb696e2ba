/*
 * Rows by their row id, as Arrow: where a row is, what its columns are called, and a few of them at once.
 *
 *   tools/install.sh /usr/local
 *   cc examples/look_up.c $(pkg-config --cflags --libs rowdex) -o look_up
 *   rowdex demo --keep demo && ./look_up demo/train.rdx
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rowdex.h>

static void check(rowdex_status status, rowdex_error *error) {
  if (status == ROWDEX_STATUS_OK) return;
  fprintf(stderr, "%s\n", rowdex_error_message(error));
  rowdex_free(error);
  exit(1);
}

/* A column of 64-bit integers ("l" in Arrow's language), or of strings ("u"), row by row. */
static void print_column(const struct ArrowArray *column, const struct ArrowSchema *type) {
  printf("  %-10s", type->name);
  if (strcmp(type->format, "l") == 0) {
    const int64_t *values = (const int64_t *)column->buffers[1] + column->offset;
    for (int64_t i = 0; i < column->length; i++) printf(" %" PRId64, values[i]);
  } else if (strcmp(type->format, "u") == 0) {
    const int32_t *ends = (const int32_t *)column->buffers[1] + column->offset;
    const char *bytes = (const char *)column->buffers[2];
    for (int64_t i = 0; i < column->length; i++) printf(" \"%.*s\"", ends[i + 1] - ends[i], bytes + ends[i]);
  } else {
    printf(" (%s)", type->format);
  }
  printf("\n");
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: look_up INDEX\n");
    return 2;
  }
  rowdex_error *error = NULL;
  rowdex_index *index = NULL;
  check(rowdex_index_open(argv[1], NULL, &index, &error), error);
  /* All columns, with the defaults. */
  rowdex_dataset *dataset = NULL;
  check(rowdex_dataset_open(index, NULL, &dataset, &error), error);
  const uint64_t len = rowdex_dataset_len(dataset);
  if (len == 0) {
    printf("no rows\n");
    rowdex_free(dataset);
    rowdex_free(index);
    return 0;
  }
  const uint64_t rows[] = {len - 1, 0, len / 2};
  enum { ROWS = sizeof rows / sizeof *rows };

  rowdex_location places[ROWS];
  check(rowdex_index_locate(index, rows, ROWS, places, &error), error);
  for (int i = 0; i < ROWS; i++) {
    /* What is known of its file, as JSON. */
    char *file = NULL;
    check(rowdex_index_files(index, places[i].file, 1, 0, &file, &error), error);
    printf("row id %" PRIu64 ": row group %" PRIu32 ", row %" PRIu64 " of %s\n", rows[i], places[i].ordinal,
           places[i].row, file);
    rowdex_free(file);
  }

  rowdex_batch *batch = NULL;
  check(rowdex_take(dataset, rows, ROWS, &batch, &error), error);
  struct ArrowArray array;
  struct ArrowSchema schema;
  check(rowdex_batch_export(batch, &array, &schema, &error), error);
  rowdex_free(batch);
  for (int64_t i = 0; i < array.n_children; i++) print_column(array.children[i], schema.children[i]);
  array.release(&array);
  schema.release(&schema);

  rowdex_free(dataset);
  rowdex_free(index);
  return 0;
}
