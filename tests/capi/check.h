/* What the test programs share: checks that say where they failed, and the dataset that `rowdex demo --keep` writes. */
#ifndef CHECK_H
#define CHECK_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rowdex.h"

/* Rows of the demo dataset, whose column "id" is 0, 1, 2, ... in the order of the row ids. */
enum { DEMO_ROWS = 200000, DEMO_FILES = 8, DEMO_ROW_GROUPS = 32 };

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);       \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

/* What an error says; a function for it, so that it can be asked in the middle of a check. */
static inline rowdex_error_info said(const rowdex_error *error) {
  rowdex_error_info info;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  CHECK(rowdex_error_get_info(error, &info) == ROWDEX_STATUS_OK);
  return info;
}

/* The call succeeds; `error` is the variable that it leaves its error in. */
#define OK(call)                                                                    \
  do {                                                                              \
    rowdex_error *error = NULL;                                                     \
    rowdex_status status_ = (call);                                                 \
    if (status_ != ROWDEX_STATUS_OK) {                                              \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, rowdex_error_message(error)); \
      exit(1);                                                                      \
    }                                                                               \
    CHECK(error == NULL);                                                           \
  } while (0)

/* The call fails with this status and with a message that has this word. */
#define FAILS(call, status, word)                                                   \
  do {                                                                              \
    rowdex_error *error = NULL;                                                     \
    rowdex_status status_ = (call);                                                 \
    CHECK(status_ == (status));                                                     \
    CHECK(error != NULL);                                                           \
    CHECK(said(error).kind == (status));                                            \
    if (strstr(rowdex_error_message(error), (word)) == NULL) {                      \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, rowdex_error_message(error)); \
      exit(1);                                                                      \
    }                                                                               \
    rowdex_free(error);                                                       \
  } while (0)

/* A text in one of some buffers that are used in turn: descriptions, which take a moment only. */
static inline const char *text(const char *format, ...) {
  static char texts[8][16384];
  static int turn;
  char *buffer = texts[turn++ % 8];
  va_list arguments;
  va_start(arguments, format);
  CHECK(vsnprintf(buffer, sizeof texts[0], format, arguments) < (int)sizeof texts[0]);
  va_end(arguments);
  return buffer;
}

/* A number of a report, by its name. */
static inline uint64_t reported(const char *report, const char *name) {
  const char *found = strstr(report, text("\"%s\":", name));
  CHECK(found != NULL);
  return strtoull(found + strlen(name) + 3, NULL, 10);
}

/* Builds an index, of which nobody asks anything. */
static inline rowdex_status build(const char *description, rowdex_error **error) {
  return rowdex_index_build(description, NULL, NULL, NULL, error);
}

/* The path of a file in the folder that the program is given. */
static inline const char *in_folder(const char *folder, const char *name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static inline rowdex_index *open_index(const char *folder) {
  rowdex_index *index = NULL;
  OK(rowdex_index_open(in_folder(folder, "train.rdx"), NULL, &index, &error));
  return index;
}

/* The demo dataset with one column, or all of them. */
static inline rowdex_dataset *open_dataset(const char *folder, const char *column) {
  rowdex_index *index = open_index(folder);
  rowdex_dataset_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.threads = 2;
  if (column != NULL) {
    options.columns = &column;
    options.num_columns = 1;
  }
  rowdex_dataset *dataset = NULL;
  OK(rowdex_dataset_open(index, &options, &dataset, &error));
  rowdex_free(index);
  return dataset;
}

/* An order by name over the rows of an index. */
static inline rowdex_order *new_orders(const char *order, const rowdex_index *index, uint64_t seed) {
  rowdex_order_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.order = order;
  options.index = index;
  options.seed = seed;
  rowdex_order *orders = NULL;
  OK(rowdex_order_new(&options, &orders, &error));
  return orders;
}

/* A sampler of the dataset, whose rows are ordered as one row group. */
static inline rowdex_sampler *new_sampler(const rowdex_dataset *dataset, const char *order, uint32_t rank,
                                          uint32_t world_size, uint64_t batch_size) {
  rowdex_order_options rows;
  memset(&rows, 0, sizeof rows);
  rows.struct_size = sizeof rows;
  uint64_t len = rowdex_dataset_len(dataset);
  rows.group_rows = &len;
  rows.num_groups = 1;
  rows.order = order;
  rows.seed = 42;
  rowdex_order *orders = NULL;
  OK(rowdex_order_new(&rows, &orders, &error));
  rowdex_sampler_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.rank = rank;
  options.world_size = world_size;
  options.batch_size = batch_size;
  rowdex_sampler *sampler = NULL;
  OK(rowdex_sampler_new(orders, &options, &sampler, &error));
  rowdex_free(orders);
  return sampler;
}

/* The values of a column of 64-bit integers without nulls, by its place in a struct array. */
static inline const int64_t *int64_values(const struct ArrowArray *array, int64_t column) {
  const struct ArrowArray *child = array->children[column];
  CHECK(child->n_buffers == 2);
  return (const int64_t *)child->buffers[1] + child->offset;
}

/* Rows as an array. */
static inline rowdex_status take_array(const rowdex_dataset *dataset, const uint64_t *rows, size_t num_rows,
                                       struct ArrowArray *array, struct ArrowSchema *schema, rowdex_error **error) {
  rowdex_batch *batch = NULL;
  rowdex_status status = rowdex_dataset_take(dataset, rows, num_rows, &batch, error);
  if (status == ROWDEX_STATUS_OK) status = rowdex_batch_export(batch, array, schema, error);
  rowdex_free(batch);
  return status;
}

/* Rows in buffers. */
static inline rowdex_status take_into(const rowdex_dataset *dataset, const uint64_t *rows, size_t num_rows,
                                      const rowdex_column_buffer *columns, size_t num_columns, rowdex_error **error) {
  rowdex_batch *batch = NULL;
  rowdex_status status = rowdex_dataset_take(dataset, rows, num_rows, &batch, error);
  if (status == ROWDEX_STATUS_OK) status = rowdex_batch_copy_into(batch, columns, num_columns, error);
  rowdex_free(batch);
  return status;
}

/* Prefetched rows as an array. */
static inline rowdex_status take_prefetched_array(rowdex_prefetched *prefetched, const uint64_t *rows, size_t num_rows,
                                                 struct ArrowArray *array, struct ArrowSchema *schema,
                                                 rowdex_error **error) {
  rowdex_batch *batch = NULL;
  rowdex_status status = rowdex_prefetched_take(prefetched, rows, num_rows, &batch, error);
  if (status == ROWDEX_STATUS_OK) status = rowdex_batch_export(batch, array, schema, error);
  rowdex_free(batch);
  return status;
}

/* Prefetched rows in buffers. */
static inline rowdex_status take_prefetched_into(rowdex_prefetched *prefetched, const uint64_t *rows, size_t num_rows,
                                                const rowdex_column_buffer *columns, size_t num_columns,
                                                rowdex_error **error) {
  rowdex_batch *batch = NULL;
  rowdex_status status = rowdex_prefetched_take(prefetched, rows, num_rows, &batch, error);
  if (status == ROWDEX_STATUS_OK) status = rowdex_batch_copy_into(batch, columns, num_columns, error);
  rowdex_free(batch);
  return status;
}

static inline rowdex_sampler_info sampler_info(const rowdex_sampler *sampler) {
  rowdex_sampler_info info;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  OK(rowdex_sampler_get_info(sampler, &info, &error));
  return info;
}

/* The sampler that has every position of an order, one a step. */
static inline rowdex_sampler *whole(const rowdex_order *orders) {
  rowdex_sampler_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.world_size = 1;
  options.batch_size = 1;
  rowdex_sampler *sampler = NULL;
  OK(rowdex_sampler_new(orders, &options, &sampler, &error));
  return sampler;
}

/* How many positions an order has, and its fingerprint. */
static inline rowdex_sampler_info order_info(const rowdex_order *orders) {
  rowdex_sampler *sampler = whole(orders);
  rowdex_sampler_info info = sampler_info(sampler);
  rowdex_free(sampler);
  return info;
}

/* A set as it is described. */
static inline rowdex_id_set *set_of(rowdex_id_set_options options) {
  options.struct_size = sizeof options;
  rowdex_id_set *set = NULL;
  OK(rowdex_id_set_new(&options, &set, &error));
  return set;
}

/* What is known of a set. */
static inline rowdex_id_set_info set_info(const rowdex_id_set *set) {
  rowdex_id_set_info info;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  OK(rowdex_id_set_get_info(set, &info, &error));
  return info;
}

/* Weights, as their options say where they are. */
static inline rowdex_status weights_of(rowdex_weights_options options, double *weights, size_t num_weights,
                                       rowdex_error **error) {
  options.struct_size = sizeof options;
  return rowdex_weights(&options, weights, num_weights, error);
}

/* The codes of labels. */
static inline const uint32_t *codes_of(const struct ArrowArray *labels) {
  CHECK(labels->n_buffers == 2 && labels->offset == 0 && labels->dictionary != NULL);
  return (const uint32_t *)labels->buffers[1];
}

/* Whether a large text of an array is this one. */
static inline bool text_is(const struct ArrowArray *texts, int64_t place, const char *text) {
  CHECK(texts->n_buffers == 3 && place < texts->length);
  const int64_t *offsets = (const int64_t *)texts->buffers[1] + texts->offset + place;
  size_t len = (size_t)(offsets[1] - offsets[0]);
  return len == strlen(text) && memcmp((const char *)texts->buffers[2] + offsets[0], text, len) == 0;
}

#endif /* CHECK_H */
