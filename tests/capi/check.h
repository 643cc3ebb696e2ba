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
    CHECK(number_of(error, "status") == (uint64_t)(status));                             \
    if (strstr(rowdex_error_message(error), (word)) == NULL) {                      \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, rowdex_error_message(error)); \
      exit(1);                                                                      \
    }                                                                               \
    rowdex_free(error);                                                       \
  } while (0)

/* Another loader, which goes on where a forked child has inherited this one. */
static inline rowdex_loader *opened_again(const rowdex_loader *inherited) {
  rowdex_loader *loader = NULL;
  OK(rowdex_loader_reopen(inherited, &loader, &error));
  return loader;
}

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

/* What is known of a handle; whoever asks frees it. */
static inline char *describe(const void *handle) {
  char *report = NULL;
  OK(rowdex_describe(handle, &report, &error));
  return report;
}

/* A number that is known of a handle. */
static inline uint64_t number_of(const void *handle, const char *name) {
  char *report = describe(handle);
  uint64_t number = reported(report, name);
  rowdex_free(report);
  return number;
}

/* Builds an index, of which nobody asks anything. */
static inline rowdex_status build(const char *description, rowdex_error **error) {
  if (description != NULL) description = text("{\"build\": %s}", description);
  return rowdex_run(description, NULL, NULL, NULL, NULL, error);
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

/* A description, and what it refers to by numbers. */
typedef struct {
  char json[8192];
  size_t len;
  rowdex_numbers numbers[16];
  const rowdex_index *indexes[8];
  const rowdex_id_set *sets[8];
  rowdex_operands operands;
} described;

static inline void say(described *to, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int more = vsnprintf(to->json + to->len, sizeof to->json - to->len, format, arguments);
  va_end(arguments);
  CHECK(more >= 0 && (to->len += (size_t)more) < sizeof to->json);
}

static inline size_t say_numbers(described *to, const void *values, size_t len) {
  CHECK(to->operands.num_numbers < 16);
  to->numbers[to->operands.num_numbers].values = values;
  to->numbers[to->operands.num_numbers].len = len;
  return to->operands.num_numbers++;
}

static inline size_t say_set(described *to, const rowdex_id_set *set) {
  CHECK(to->operands.num_sets < 8);
  to->sets[to->operands.num_sets] = set;
  return to->operands.num_sets++;
}

static inline void say_index(described *to, const rowdex_index *index) {
  CHECK(to->operands.num_indexes < 8);
  to->indexes[to->operands.num_indexes++] = index;
}

/* What the description refers to, as the library takes it. */
static inline const rowdex_operands *operands_of(described *to) {
  to->operands.numbers = to->numbers;
  to->operands.indexes = to->indexes;
  to->operands.sets = to->sets;
  return &to->operands;
}

/* An order, of which 0 and NULL are left out. */
typedef struct order_spec {
  const rowdex_index *index;
  const rowdex_index *const *indexes;
  size_t num_indexes;
  const uint64_t *group_rows;
  size_t num_groups;
  const char *order;
  const uint64_t *row_ids;
  size_t num_row_ids;
  const double *weights;
  size_t num_weights;
  const uint32_t *labels;
  size_t num_labels;
  const struct order_spec *const *parts;
  size_t num_parts;
  const struct order_spec *inner;
  const double *proportions;
  size_t num_proportions;
  const rowdex_id_set *kept;
  uint64_t size, seed;
  uint32_t paired, shards, rotated, permutation, without_replacement;
} order_spec;

static inline void say_order(described *to, const order_spec *of) {
  say(to, "{\"seed\": %llu", (unsigned long long)of->seed);
  if (of->index != NULL) say_index(to, of->index);
  for (size_t i = 0; i < of->num_indexes; i++) say_index(to, of->indexes[i]);
  for (size_t i = 0; i < of->num_groups; i++) {
    say(to, "%s%llu", i == 0 ? ", \"row_groups\": [" : ", ", (unsigned long long)of->group_rows[i]);
  }
  if (of->num_groups > 0) say(to, "]");
  if (of->order != NULL) say(to, ", \"order\": \"%s\"", of->order);
  if (of->row_ids != NULL) say(to, ", \"row_ids\": %zu", say_numbers(to, of->row_ids, of->num_row_ids));
  if (of->weights != NULL) say(to, ", \"weights\": %zu", say_numbers(to, of->weights, of->num_weights));
  if (of->labels != NULL) say(to, ", \"labels\": %zu", say_numbers(to, of->labels, of->num_labels));
  if (of->inner != NULL) {
    say(to, ", \"inner\": ");
    say_order(to, of->inner);
  }
  for (size_t i = 0; i < of->num_parts; i++) {
    say(to, i == 0 ? ", \"parts\": [" : ", ");
    say_order(to, of->parts[i]);
  }
  if (of->num_parts > 0) say(to, "]");
  for (size_t i = 0; i < of->num_proportions; i++) {
    say(to, "%s%.17g", i == 0 ? ", \"proportions\": [" : ", ", of->proportions[i]);
  }
  if (of->num_proportions > 0) say(to, "]");
  if (of->kept != NULL) say(to, ", \"kept\": %zu", say_set(to, of->kept));
  if (of->size > 0) say(to, ", \"size\": %llu", (unsigned long long)of->size);
  if (of->paired) say(to, ", \"paired\": true");
  if (of->shards > 0) say(to, ", \"shards\": %u", of->shards);
  if (of->rotated) say(to, ", \"rotated\": true");
  if (of->permutation) say(to, ", \"permutation\": true");
  if (of->without_replacement) say(to, ", \"replacement\": false");
  say(to, "}");
}

static inline rowdex_status order_of(const order_spec *of, rowdex_order **orders, rowdex_error **error) {
  described to;
  memset(&to, 0, sizeof to);
  say_order(&to, of);
  return rowdex_order_new(to.json, operands_of(&to), orders, error);
}

/* Row ids from start up to end, which is not one of them. */
typedef struct {
  uint64_t start, end;
} range_of_rows;

/* A set, of which 0 and NULL are left out. */
typedef struct {
  uint64_t rows;
  const uint64_t *ids;
  size_t num_ids;
  const range_of_rows *ranges;
  size_t num_ranges;
  const rowdex_index *index;
  const char *list_file;
  struct ArrowArrayStream *list;
  const rowdex_index *view;
  const rowdex_dataset *dataset;
  const char *filter, *split_side, *split_by;
  double split_fraction;
  uint64_t split_seed;
  const rowdex_id_set *set, *of, *or_set;
  uint64_t complement;
} set_spec;

static inline rowdex_status id_set_of(const set_spec *of, rowdex_id_set **set, rowdex_error **error) {
  described to;
  memset(&to, 0, sizeof to);
  say(&to, "{\"complement\": %s", of->complement ? "true" : "false");
  if (of->rows > 0) say(&to, ", \"rows\": %llu", (unsigned long long)of->rows);
  if (of->ids != NULL) say(&to, ", \"row_ids\": %zu", say_numbers(&to, of->ids, of->num_ids));
  if (of->ranges != NULL) say(&to, ", \"ranges\": %zu", say_numbers(&to, of->ranges, 2 * of->num_ranges));
  if (of->index != NULL) say_index(&to, of->index);
  if (of->list_file != NULL) say(&to, ", \"list\": \"%s\"", of->list_file);
  if (of->list != NULL) say(&to, ", \"stream\": true");
  if (of->view != NULL) {
    say(&to, ", \"view\": %zu", to.operands.num_indexes);
    say_index(&to, of->view);
  }
  if (of->filter != NULL) say(&to, ", \"where\": \"%s\"", of->filter);
  if (of->split_side != NULL) {
    say(&to, ", \"split\": {\"side\": \"%s\", \"validation_fraction\": %.17g, \"seed\": %llu", of->split_side,
        of->split_fraction, (unsigned long long)of->split_seed);
    say(&to, of->split_by == NULL ? "}" : ", \"by\": \"%s\"}", of->split_by);
  }
  if (of->set != NULL) say(&to, ", \"set\": %zu", say_set(&to, of->set));
  if (of->of != NULL) say(&to, ", \"of\": %zu", say_set(&to, of->of));
  if (of->or_set != NULL) say(&to, ", \"union\": %zu", say_set(&to, of->or_set));
  say(&to, "}");
  to.operands.dataset = of->dataset;
  to.operands.stream = of->list;
  return rowdex_id_set_new(to.json, operands_of(&to), set, error);
}

/* An order by name over the rows of an index. */
static inline rowdex_order *new_orders(const char *order, const rowdex_index *index, uint64_t seed) {
  order_spec options;
  memset(&options, 0, sizeof options);
  options.order = order;
  options.index = index;
  options.seed = seed;
  rowdex_order *orders = NULL;
  OK(order_of(&options, &orders, &error));
  return orders;
}

/* A sampler of the dataset, whose rows are ordered as one row group. */
static inline rowdex_sampler *new_sampler(const rowdex_dataset *dataset, const char *order, uint32_t rank,
                                          uint32_t world_size, uint64_t batch_size) {
  order_spec rows;
  memset(&rows, 0, sizeof rows);
  uint64_t len = number_of(dataset, "rows");
  rows.group_rows = &len;
  rows.num_groups = 1;
  rows.order = order;
  rows.seed = 42;
  rowdex_order *orders = NULL;
  OK(order_of(&rows, &orders, &error));
  rowdex_sampler_options options;
  memset(&options, 0, sizeof options);
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

/* Rows of a dataset, or prefetched ones, as an array. */
static inline rowdex_status take_array(const void *taken, const uint64_t *rows, size_t num_rows,
                                       struct ArrowArray *array, struct ArrowSchema *schema, rowdex_error **error) {
  rowdex_batch *batch = NULL;
  rowdex_status status = rowdex_take(taken, rows, num_rows, &batch, error);
  if (status == ROWDEX_STATUS_OK) status = rowdex_batch_export(batch, array, schema, error);
  rowdex_free(batch);
  return status;
}

/* The first column of a batch, of 64-bit integers. */
static inline void ids_of(const rowdex_batch *batch, int64_t *ids) {
  struct ArrowArray array;
  OK(rowdex_batch_export(batch, &array, NULL, &error));
  memcpy(ids, int64_values(&array, 0), (size_t)array.length * sizeof *ids);
  array.release(&array);
}

/* That of rows that are taken. */
static inline rowdex_status take_ids(const void *taken, const uint64_t *rows, size_t num_rows, int64_t *ids,
                                     rowdex_error **error) {
  rowdex_batch *batch = NULL;
  rowdex_status status = rowdex_take(taken, rows, num_rows, &batch, error);
  if (status == ROWDEX_STATUS_OK) ids_of(batch, ids);
  rowdex_free(batch);
  return status;
}

/* The sampler that has every position of an order, one a step. */
static inline rowdex_sampler *whole(const rowdex_order *orders) {
  rowdex_sampler_options options;
  memset(&options, 0, sizeof options);
  options.world_size = 1;
  options.batch_size = 1;
  rowdex_sampler *sampler = NULL;
  OK(rowdex_sampler_new(orders, &options, &sampler, &error));
  return sampler;
}

/* A set as it is described. */
static inline rowdex_id_set *set_of(set_spec options) {
  rowdex_id_set *set = NULL;
  OK(id_set_of(&options, &set, &error));
  return set;
}

/* Where weights are, of which NULL is left out. */
typedef struct {
  const char *column;
  const rowdex_dataset *dataset;
  const rowdex_index *index;
  const char *list_file;
  struct ArrowArrayStream *list;
  const rowdex_id_set *of;
} weights_spec;

static inline rowdex_status weights_of(weights_spec of, struct ArrowArray *weights, rowdex_error **error) {
  described to;
  memset(&to, 0, sizeof to);
  say(&to, "{\"weights\": {\"column\": \"%s\"", of.column);
  if (of.list_file != NULL) say(&to, ", \"list\": \"%s\"", of.list_file);
  if (of.of != NULL) say(&to, ", \"of\": %zu", say_set(&to, of.of));
  say(&to, "}}");
  if (of.index != NULL) say_index(&to, of.index);
  to.operands.dataset = of.dataset;
  to.operands.stream = of.list;
  return rowdex_column(to.json, operands_of(&to), weights, NULL, error);
}

/* The classes of rows, or how many rows each has. */
static inline rowdex_status column_of(const char *what, const rowdex_dataset *dataset, const char *column,
                                      const rowdex_id_set *of, struct ArrowArray *array, struct ArrowSchema *schema,
                                      rowdex_error **error) {
  described to;
  memset(&to, 0, sizeof to);
  say(&to, "{\"%s\": {\"column\": \"%s\"", what, column);
  if (of != NULL) say(&to, ", \"of\": %zu", say_set(&to, of));
  say(&to, "}}");
  to.operands.dataset = dataset;
  return rowdex_column(to.json, operands_of(&to), array, schema, error);
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
