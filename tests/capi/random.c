/* Calls in random order with random arguments, right ones and hostile ones. Whatever is called, a call succeeds or says
 * why not; it never crashes, never says that the library is at fault, and rows are always the right ones.
 *
 * ROWDEX_FUZZ_SECONDS runs it for so long (by default 1000 calls, for at most 20 seconds), ROWDEX_FUZZ_SEED in another
 * order. */
#include <inttypes.h>
#include <time.h>

#include "check.h"

static uint64_t state;

/* SplitMix64, by Steele, Lea and Flood. */
static uint64_t next(void) {
  uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static uint64_t below(uint64_t n) { return next() % n; }

/* A number as callers have them: mostly a good one, sometimes one on the edge or beyond. */
static uint64_t number(uint64_t good) {
  static const uint64_t edges[] = {0,          1,          DEMO_ROWS - 1,  DEMO_ROWS,      DEMO_ROWS + 1, INT32_MAX,
                                   UINT32_MAX, 1ull << 32, INT64_MAX,      1ull << 63,     UINT64_MAX - 1, UINT64_MAX};
  return below(6) == 0 ? edges[below(sizeof edges / sizeof *edges)] : below(good);
}

static const char *word(void) {
  static const char *const words[] = {
      NULL,         "",      "id",   "label",     "train",      "validation", "wrap",
      "drop",       "uneven", "error", "global",    "sequential", "blocks(2)",  "torch",
      "nope",       "blocks(0)", "stat", "deep",    "contiguous", "never",      "\xff\xfe",
  };
  return words[below(sizeof words / sizeof *words)];
}

/* Handles of one kind that are alive; a place may be empty, which gives NULL. */
enum { PLACES = 4 };
#define POOL(type, name, free)                                         \
  static type *name##_pool[PLACES];                                    \
  static type *any_##name(void) { return name##_pool[below(PLACES)]; } \
  static void keep_##name(type *one) {                                 \
    type **place = &name##_pool[below(PLACES)];                        \
    free(*place);                                                      \
    *place = one;                                                      \
  }                                                                    \
  static void empty_##name(void) {                                     \
    for (int i = 0; i < PLACES; i++) {                                 \
      free(name##_pool[i]);                                            \
      name##_pool[i] = NULL;                                           \
    }                                                                  \
  }

static void free_labels(struct ArrowArray *labels) {
  if (labels != NULL) labels->release(labels);
  free(labels);
}

POOL(rowdex_index, index, rowdex_free)
POOL(rowdex_dataset, dataset, rowdex_free)
POOL(rowdex_order, order, rowdex_free)
POOL(rowdex_sampler, sampler, rowdex_free)
POOL(rowdex_loader, loader, rowdex_free)
POOL(rowdex_prefetched, prefetched, rowdex_free)
POOL(rowdex_id_set, set, rowdex_free)
POOL(struct ArrowArray, labels, free_labels)

static const char *folder;
static uint64_t succeeded, refused;

/* Whether a call went well. If not, the error that it left says why, and it is no defect of the library. */
static bool well(rowdex_status status, rowdex_error **left) {
  rowdex_error *error = *left;
  *left = NULL;
  if (status == ROWDEX_STATUS_OK) {
    CHECK(error == NULL);
    succeeded++;
    return true;
  }
  if (status == ROWDEX_STATUS_INTERNAL) fprintf(stderr, "%s\n", rowdex_error_message(error));
  CHECK(status != ROWDEX_STATUS_INTERNAL);
  CHECK(error != NULL && number_of(error, "status") == (uint64_t)status && strlen(rowdex_error_message(error)) > 0);
  rowdex_free(error);
  refused++;
  return false;
}

/* Some rows, most of which are there. */
enum { MOST_ROWS = 64 };
static size_t some_rows(uint64_t *rows, bool good) {
  size_t count = below(MOST_ROWS + 1);
  for (size_t i = 0; i < count; i++) rows[i] = good ? below(DEMO_ROWS) : number(DEMO_ROWS);
  return count;
}

/* A batch has the rows that it says: the column "id" of the demo is the row id. */
static void check_batch(rowdex_batch *batch) {
  CHECK(batch != NULL);
  rowdex_batch_info info = {0};
  OK(rowdex_batch_get_info(batch, &info, &error));
  CHECK(info.num_pads <= info.num_rows);
  struct ArrowArray array;
  struct ArrowSchema schema;
  rowdex_error *error = NULL;
  if (well(rowdex_batch_export(batch, &array, &schema, &error), &error)) {
    CHECK((uint64_t)array.length == info.num_rows);
    for (int64_t c = 0; c < schema.n_children; c++) {
      if (strcmp(schema.children[c]->name, "id") != 0 || strcmp(schema.children[c]->format, "l") != 0) continue;
      const int64_t *ids = int64_values(&array, c) + array.offset;
      for (uint64_t i = 0; i < info.num_rows; i++) CHECK((uint64_t)ids[i] == info.row_ids[i] % DEMO_ROWS);
    }
    array.release(&array);
    schema.release(&schema);
  }
  rowdex_free(batch);
}

static void open_an_index(void) {
  rowdex_index *index = NULL;
  rowdex_error *error = NULL;
  const char *path = below(8) == 0 ? word() : in_folder(folder, "train.rdx");
  if (well(rowdex_index_open(path, NULL, &index, &error), &error)) keep_index(index);
}

static void ask_an_index(void) {
  rowdex_index *index = any_index();
  rowdex_error *error = NULL;
  char *files = NULL;
  uint64_t rows[MOST_ROWS];
  rowdex_location places[MOST_ROWS];
  if (well(rowdex_index_files(index, (uint32_t)number(DEMO_FILES), (uint32_t)number(3), below(2), &files, &error),
           &error)) {
    rowdex_free(files);
  }
  size_t count = some_rows(rows, below(2));
  if (well(rowdex_index_locate(index, rows, count, places, &error), &error)) {
    for (size_t i = 0; i < count; i++) CHECK(rows[i] < DEMO_ROWS && places[i].row_group < DEMO_ROW_GROUPS);
  }
}

static void open_a_dataset(void) {
  const char *columns[] = {"id", word()};
  rowdex_dataset_options options = {.columns = below(4) == 0 ? NULL : columns,
      .num_columns = below(3),
      .check = below(6) == 0 ? word() : NULL,
      .cache_bytes = number(1 << 24),
      .threads = below(3) == 0 ? ROWDEX_NONE : below(3),
      .max_decoded_bytes = below(8) == 0 ? number(1 << 20) : 0,
  };
  rowdex_dataset *dataset = NULL;
  rowdex_error *error = NULL;
  if (below(6) == 0) {
    const rowdex_dataset *datasets[] = {any_dataset(), any_dataset()};
    if (well(rowdex_dataset_mixed(datasets, below(3), &dataset, &error), &error)) {
      /* Mixed datasets number their rows anew, and mixed ones of mixed ones would grow without end. */
      if (number_of(dataset, "rows") > 4 * DEMO_ROWS) rowdex_free(dataset);
      else keep_dataset(dataset);
    }
  } else if (well(rowdex_dataset_open(any_index(), &options, &dataset, &error), &error)) {
    keep_dataset(dataset);
  }
}

static void take_rows(void) {
  uint64_t rows[MOST_ROWS];
  size_t count = some_rows(rows, below(4));
  rowdex_batch *batch = NULL;
  rowdex_error *error = NULL;
  if (well(rowdex_take(any_dataset(), rows, count, &batch, &error), &error)) check_batch(batch);
}

static void make_a_set(void) {
  rowdex_id_set *set = NULL;
  rowdex_error *error = NULL;
  uint64_t rows[MOST_ROWS];
  size_t count = some_rows(rows, below(2));
  range_of_rows ranges[2] = {{number(DEMO_ROWS), number(DEMO_ROWS)}, {number(DEMO_ROWS), number(DEMO_ROWS)}};
  uint64_t of = below(3) ? DEMO_ROWS : number(1 << 20);
  set_spec options = {.rows = 0};
  switch (below(8)) {
    case 0: options.rows = of, options.ids = rows, options.num_ids = count; break;
    case 1: options.rows = of, options.ranges = ranges, options.num_ranges = below(3); break;
    case 2:
      options.rows = below(4) ? DEMO_ROWS : of % (1 << 20);
      options.split_side = word(), options.split_fraction = (double)below(12) / 10 - 0.1, options.split_seed = next();
      break;
    case 3: options.set = any_set(), options.complement = 1; break;
    case 4: options.set = any_set(), options.of = any_set(); break;
    case 5: options.set = any_set(), options.or_set = any_set(); break;
    case 6: options.index = any_index(), options.view = any_index(); break;
    default:
      options.dataset = any_dataset(), options.split_by = word(), options.split_side = word();
      options.split_fraction = 0.1, options.split_seed = 3, options.of = any_set();
      break;
  }
  if (below(8) == 0) options.of = any_set();
  if (below(8) == 0) options.or_set = any_set();
  if (below(8) == 0) options.complement = 1;
  if (below(16) == 0) options.rows = of;
  if (below(16) == 0) options.index = any_index();
  if (below(16) == 0) options.dataset = any_dataset();
  if (!well(id_set_of(&options, &set, &error), &error)) return;
  CHECK(set != NULL && number_of(set, "len") <= number_of(set, "rows"));
  size_t filled = 0;
  OK(rowdex_id_set_fill(set, number(DEMO_ROWS), rows, MOST_ROWS, &filled, &error));
  for (size_t i = 0; i < filled; i++) CHECK(rowdex_id_set_contains(set, rows[i]));
  keep_set(set);
}

static void make_labels(void) {
  struct ArrowArray *labels = (struct ArrowArray *)malloc(sizeof *labels);
  rowdex_error *error = NULL;
  if (well(column_of("labels", any_dataset(), word(), any_set(), labels, NULL, &error), &error)) {
    for (int64_t row = 0; row < labels->length; row++) CHECK(codes_of(labels)[row] < labels->dictionary->length);
    keep_labels(labels);
  } else {
    free(labels);
  }
}

static void make_an_order(void) {
  uint64_t rows[MOST_ROWS], groups[] = {below(1000), below(1 << below(20))};
  double weights[] = {1, below(8) == 0 ? -1 : 2, 0.5};
  size_t num_rows = some_rows(rows, below(3));
  struct ArrowArray *labels = any_labels();
  order_spec inner = {.order = word()};
  order_spec options = {.seed = next()};
  if (below(3)) options.index = any_index();
  if (options.index == NULL) options.group_rows = groups, options.num_groups = 1 + below(2);
  switch (below(5)) {
    case 0: options.row_ids = rows, options.num_row_ids = num_rows; break;
    case 1: options.weights = weights, options.num_weights = below(4); break;
    case 2:
      if (labels != NULL) options.labels = codes_of(labels), options.num_labels = (size_t)labels->length;
      break;
    case 3: options.inner = &inner; break;
    default: options.order = word(); break;
  }
  if (below(4) == 0) options.kept = any_set();
  if (below(4) == 0) options.size = number(1 << 20);
  options.paired = below(8) == 0;
  options.shards = below(6) ? 0 : (uint32_t)number(16);
  options.rotated = below(8) == 0, options.permutation = below(8) == 0, options.without_replacement = below(8) == 0;
  rowdex_order *order = NULL;
  rowdex_error *error = NULL;
  if (!well(order_of(&options, &order, &error), &error)) return;
  keep_order(order);
}

static void make_a_sampler(void) {
  rowdex_sampler_options options = {.rank = (uint32_t)number(2),
      .world_size = (uint32_t)number(4) + 1,
      .batch_size = below(3) ? 1 + below(MOST_ROWS) : number(MOST_ROWS),
      .tail = below(3) ? NULL : word(),
      .replication = below(6) ? 0 : (uint32_t)number(3),
      .drop_last_batch = below(2),
      .partition = below(6) ? NULL : word(),
      .rotation = below(6) ? NULL : word(),
  };
  rowdex_sampler *sampler = NULL;
  rowdex_error *error = NULL;
  if (below(6) == 0) {
    if (well(rowdex_sampler_worker(any_sampler(), number(3), number(4), &sampler, &error), &error)) {
      keep_sampler(sampler);
    }
  } else if (well(rowdex_sampler_new(any_order(), &options, &sampler, &error), &error)) {
    keep_sampler(sampler);
  }
}

static void ask_a_sampler(void) {
  rowdex_sampler *sampler = any_sampler();
  rowdex_error *error = NULL;
  uint64_t rows[MOST_ROWS], epoch = number(4);
  uint8_t pads[MOST_ROWS];
  size_t len = 0, num_pads = 0;
  char text[ROWDEX_STATE_CAPACITY];
  switch (below(5)) {
    case 0: well(rowdex_sampler_set_epoch(sampler, number(100), &error), &error); break;
    case 1: well(rowdex_sampler_fill(sampler, epoch, number(1000), below(MOST_ROWS + 1), rows, pads, &error), &error);
      break;
    case 2: well(rowdex_sampler_batch(sampler, epoch, number(20), rows, below(MOST_ROWS + 1), &len, &num_pads, NULL,
                                      &error),
                 &error);
      break;
    case 3: well(rowdex_resume(sampler, word(), &error), &error); break;
    default:
      if (well(rowdex_sampler_state(sampler, epoch, number(20), text, below(sizeof text + 1), &error), &error)) {
        well(rowdex_resume(any_sampler(), text, &error), &error);
      }
  }
}

static void make_a_loader(void) {
  const rowdex_sampler *more[] = {any_sampler()};
  rowdex_loader_options options = {.memory = number(1 << 24),
      .threads = below(2) ? ROWDEX_NONE : below(3),
      .read_ahead = number(8),
      .epochs = number(3),
      .more_ranks = more,
      .num_more_ranks = below(8) == 0,
      .on_error = below(8) ? NULL : word(),
      .views = below(4) == 0,
      .max_wait = below(4) == 0 ? below(5) : 0,
  };
  rowdex_loader *loader = NULL;
  rowdex_error *error = NULL;
  rowdex_sampler *sampler = any_sampler();
  /* Some orders are walked row by row, which takes as long as the epoch is. */
  if (below(8) == 0 && (sampler == NULL || number_of(sampler, "len") <= 4096)) {
    well(rowdex_loader_estimate(any_dataset(), sampler, &options, NULL, &error), &error);
  } else if (below(8) == 0) {
    if (well(rowdex_loader_reopen(any_loader(), &loader, &error), &error)) keep_loader(loader);
  } else if (well(rowdex_loader_new(any_dataset(), any_sampler(), &options, &loader, &error), &error)) {
    keep_loader(loader);
  }
}

static void use_a_loader(void) {
  rowdex_loader *loader = any_loader();
  rowdex_error *error = NULL;
  rowdex_batch *batch = NULL;
  rowdex_loader_info info = {0};
  char *known = NULL;
  char text[ROWDEX_STATE_CAPACITY];
  switch (below(8)) {
    case 0: well(rowdex_loader_begin_epoch(loader, &(uint64_t){number(5)}, &info, &error), &error); break;
    case 1: well(rowdex_loader_seek(loader, number(3), number(20), &error), &error); break;
    case 2:
      if (well(rowdex_loader_begin_epoch(loader, NULL, &info, &error), &error)) {
        if (well(rowdex_loader_peek(loader, info.epoch, number(3), number(500), &batch, &error), &error)) {
          rowdex_free(batch);
        }
      }
      break;
    case 3: well(rowdex_loader_advance(loader, number(3), number(3), &error), &error); break;
    case 4:
      if (well(rowdex_loader_state(loader, text, sizeof text, &error), &error)) {
        well(rowdex_resume(any_loader(), text, &error), &error);
      }
      break;
    case 5:
      if (well(rowdex_describe(loader, &known, &error), &error)) rowdex_free(known);
      break;
    case 6:
      if (below(4) == 0 && loader != NULL) rowdex_close(loader);
      break;
    default:
      for (uint64_t i = below(4); i > 0; i--) {
        batch = NULL;
        if (!well(rowdex_loader_next(loader, &batch, &error), &error) || batch == NULL) break;
        check_batch(batch);
      }
  }
}

static void use_prefetched(void) {
  uint64_t rows[MOST_ROWS];
  size_t count = some_rows(rows, below(4));
  rowdex_prefetched *prefetched = NULL;
  rowdex_batch *batch = NULL;
  rowdex_error *error = NULL;
  rowdex_prefetched_options options = {.memory = number(1 << 22), .threads = below(2) ? ROWDEX_NONE : 1};
  switch (below(4)) {
    case 0:
      if (well(rowdex_dataset_prefetch(any_dataset(), rows, count, &options, &prefetched, &error), &error)) {
        keep_prefetched(prefetched);
      }
      break;
    case 1: well(rowdex_prefetched_prefetch(any_prefetched(), rows, count, &error), &error); break;
    case 2: well(rowdex_prefetched_clear(any_prefetched(), &error), &error); break;
    default:
      if (well(rowdex_take(any_prefetched(), rows, count, &batch, &error), &error)) check_batch(batch);
  }
}

int main(int argc, char **argv) {
  (void)argc;
  folder = argv[1];
  const char *seconds = getenv("ROWDEX_FUZZ_SECONDS"), *seed = getenv("ROWDEX_FUZZ_SEED");
  state = seed == NULL ? 1 : strtoull(seed, NULL, 10);
  const double limit = seconds == NULL ? 20 : atof(seconds);
  const time_t start = time(NULL);
  static void (*const calls[])(void) = {
      open_an_index, ask_an_index,   open_a_dataset, take_rows,    make_a_set,   make_labels, make_an_order,
      make_a_sampler, ask_a_sampler, make_a_loader,  use_a_loader, use_a_loader, use_prefetched,
  };
  for (int i = 0; i < PLACES; i++) keep_index(open_index(folder));
  keep_dataset(open_dataset(folder, "id"));
  uint64_t done = 0;
  while ((seconds != NULL || done < 1000) && difftime(time(NULL), start) < limit) {
    calls[below(sizeof calls / sizeof *calls)]();
    done++;
  }
  empty_loader(), empty_prefetched(), empty_sampler(), empty_order(), empty_labels(), empty_set(), empty_dataset();
  empty_index();
  /* Enough of both, or it has tried nothing. The first calls mostly find nothing to call with. */
  CHECK(done < 300 || (succeeded > done / 4 && refused > done / 20));
  printf("%" PRIu64 " calls, of which %" PRIu64 " succeeded and %" PRIu64 " were refused\n", done, succeeded, refused);
  return 0;
}
