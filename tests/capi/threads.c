/* Handles that are taken as const work from many threads at once; a loader refuses a second thread and loses nothing by
 * it. */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

enum { THREADS = 8, ROUNDS = 8, ROWS = 64 };

struct shared {
  const rowdex_index *index;
  const rowdex_dataset *dataset;
  const rowdex_sampler *sampler;
  uint64_t seed;
};

static uint64_t next(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

static void *read_rows(void *argument) {
  struct shared *shared = (struct shared *)argument;
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t rows[ROWS];
    for (int i = 0; i < ROWS; i++) rows[i] = next(&shared->seed) % DEMO_ROWS;
    struct ArrowArray array;
    OK(take_array(shared->dataset, rows, ROWS, &array, NULL, &error));
    for (int i = 0; i < ROWS; i++) CHECK(int64_values(&array, 0)[i] == (int64_t)rows[i]);
    array.release(&array);
    FAILS(take_array(shared->dataset, &(uint64_t){DEMO_ROWS}, 1, &array, NULL, &error), ROWDEX_STATUS_OUT_OF_RANGE,
          "200000");
    rowdex_location location;
    OK(rowdex_index_locate(shared->index, rows, 1, &location, &error));
    CHECK(location.row_group == rows[0] / 6250);
    uint64_t one, batch[100];
    size_t len;
    OK(rowdex_sampler_batch(shared->sampler, (uint64_t)round, 3, batch, 100, &len, NULL, NULL, &error));
    OK(rowdex_sampler_fill(shared->sampler, (uint64_t)round, 301, 1, &one, NULL, &error));
    CHECK(len == 100 && one == batch[1]);
  }
  return NULL;
}

static void many_threads_read_at_once(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  rowdex_index *index = open_index(folder);
  rowdex_sampler *sampler = new_sampler(dataset, "global", 0, 1, 100);
  pthread_t threads[THREADS];
  struct shared shared[THREADS];
  for (int i = 0; i < THREADS; i++) {
    shared[i] = (struct shared){index, dataset, sampler, (uint64_t)i};
    CHECK(pthread_create(&threads[i], NULL, read_rows, &shared[i]) == 0);
  }
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  rowdex_free(sampler);
  rowdex_free(index);
  rowdex_free(dataset);
}

struct puller {
  rowdex_loader *loader;
  uint8_t *seen;
  pthread_mutex_t *lock;
};

static void *pull(void *argument) {
  struct puller *puller = (struct puller *)argument;
  for (;;) {
    rowdex_batch *batch = NULL;
    rowdex_error *error = NULL;
    rowdex_status status = rowdex_loader_next(puller->loader, &batch, &error);
    if (status != ROWDEX_STATUS_OK) {
      CHECK(status == ROWDEX_STATUS_INVALID_ARGUMENT && batch == NULL);
      CHECK(strstr(rowdex_error_message(error), "another thread") != NULL);
      rowdex_free(error);
      continue;
    }
    if (batch == NULL) return NULL;
    rowdex_batch_info info = {0};
    OK(rowdex_batch_get_info(batch, &info, &error));
    CHECK(pthread_mutex_lock(puller->lock) == 0);
    for (uint64_t i = 0; i < info.num_rows; i++) puller->seen[info.row_ids[i]] += 1;
    CHECK(pthread_mutex_unlock(puller->lock) == 0);
    rowdex_free(batch);
  }
}

static void threads_that_pull_from_one_loader_share_its_batches(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  rowdex_sampler *sampler = new_sampler(dataset, "global", 0, 1, 500);
  rowdex_loader_options options = {.threads = 1, .epochs = 1};
  rowdex_loader *loader = NULL;
  OK(rowdex_loader_new(dataset, sampler, &options, &loader, &error));
  uint8_t *seen = (uint8_t *)calloc(DEMO_ROWS, 1);
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  struct puller puller = {loader, seen, &lock};
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, pull, &puller) == 0);
  for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  for (int i = 0; i < DEMO_ROWS; i++) CHECK(seen[i] == 1);
  free(seen);
  rowdex_free(loader);
  rowdex_free(sampler);
  rowdex_free(dataset);
}

struct until_closed {
  rowdex_loader *loader;
  rowdex_prefetched *prefetched;
};

static void *pull_until_closed(void *argument) {
  struct until_closed *work = (struct until_closed *)argument;
  rowdex_status status = ROWDEX_STATUS_OK;
  rowdex_error *error = NULL;
  for (uint64_t row = 0; status == ROWDEX_STATUS_OK; row = (row + 1) % DEMO_ROWS) {
    if (work->loader != NULL) {
      rowdex_batch *batch = NULL;
      status = rowdex_loader_next(work->loader, &batch, &error);
      if (status == ROWDEX_STATUS_OK) CHECK(batch != NULL);
      rowdex_free(batch);
    } else {
      int64_t id = -1;
      status = take_ids(work->prefetched, &row, 1, &id, &error);
      if (status == ROWDEX_STATUS_OK) CHECK(id == (int64_t)row);
    }
  }
  if (status != ROWDEX_STATUS_CLOSED || strstr(rowdex_error_message(error), "closed") == NULL) {
    fprintf(stderr, "status %d: %s\n", (int)status, rowdex_error_message(error));
    exit(1);
  }
  rowdex_free(error);
  return NULL;
}

static void closing_ends_the_wait_of_another_thread(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  rowdex_sampler *sampler = new_sampler(dataset, "global", 0, 1, 100);
  for (uint64_t round = 0; round < 12; round++) {
    rowdex_loader_options options = {.threads = round % 2 ? 2 : ROWDEX_NONE,
                                     .memory = 200000};
    struct until_closed work = {NULL, NULL};
    if (round % 3 < 2) OK(rowdex_loader_new(dataset, sampler, &options, &work.loader, &error));
    else OK(rowdex_dataset_prefetch(dataset, NULL, 0, NULL, &work.prefetched, &error));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, pull_until_closed, &work) == 0);
    for (volatile uint64_t wait = 0; wait < round * 100000; wait++) continue;
    if (work.loader != NULL) {
      rowdex_free(describe(work.loader));
      rowdex_close(work.loader);
    } else {
      rowdex_close(work.prefetched);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    if (work.loader != NULL) {
      rowdex_batch *batch = NULL;
      FAILS(rowdex_loader_next(work.loader, &batch, &error), ROWDEX_STATUS_CLOSED, "closed");
      char state[ROWDEX_STATE_CAPACITY];
      OK(rowdex_loader_state(work.loader, state, sizeof state, &error));
    }
    rowdex_free(work.loader);
    rowdex_free(work.prefetched);
  }
  rowdex_close(NULL);
  rowdex_free(sampler);
  rowdex_free(dataset);
}

struct described {
  rowdex_loader *loader;
  atomic_bool done;
};

static void *describe_until_done(void *argument) {
  struct described *work = (struct described *)argument;
  while (!atomic_load(&work->done)) rowdex_free(describe(work->loader));
  return NULL;
}

static void a_loader_serves_while_another_thread_describes_it(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  rowdex_sampler *sampler = new_sampler(dataset, "global", 0, 1, 10);
  struct described work = {.done = false};
  OK(rowdex_loader_new(dataset, sampler, NULL, &work.loader, &error));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, describe_until_done, &work) == 0);
  for (int step = 0; step < 1000; step++) {
    rowdex_batch *batch = NULL;
    OK(rowdex_loader_next(work.loader, &batch, &error));
    rowdex_free(batch);
  }
  atomic_store(&work.done, true);
  CHECK(pthread_join(thread, NULL) == 0);
  rowdex_free(work.loader);
  rowdex_free(sampler);
  rowdex_free(dataset);
}

static void *set_epochs(void *sampler) {
  for (uint64_t epoch = 0; epoch < 2000; epoch++)
    OK(rowdex_sampler_set_epoch((rowdex_sampler *)sampler, epoch, &error));
  return NULL;
}

/* A rank that believed it had no steps would leave the others waiting. */
static void a_sampler_always_has_its_length(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  rowdex_sampler *sampler = new_sampler(dataset, "global", 0, 1, 100);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, set_epochs, sampler) == 0);
  for (int i = 0; i < 2000; i++) {
    char *known = describe(sampler);
    CHECK(reported(known, "len") == DEMO_ROWS && reported(known, "steps") == DEMO_ROWS / 100);
    CHECK(reported(known, "epoch") <= 2000);
    rowdex_free(known);
  }
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(number_of(sampler, "epoch") == 1999);
  rowdex_free(sampler);
  rowdex_free(dataset);
}

struct taker {
  rowdex_prefetched *prefetched;
  int taken;
};

static void *take_prefetched(void *argument) {
  struct taker *taker = (struct taker *)argument;
  for (uint64_t row = 0; row < 400; row++) {
    struct ArrowArray array;
    rowdex_error *error = NULL;
    rowdex_status status = take_array(taker->prefetched, &row, 1, &array, NULL, &error);
    if (status != ROWDEX_STATUS_OK) {
      CHECK(status == ROWDEX_STATUS_INVALID_ARGUMENT && strstr(rowdex_error_message(error), "another thread") != NULL);
      rowdex_free(error);
      continue;
    }
    CHECK(int64_values(&array, 0)[0] == (int64_t)row);
    array.release(&array);
    taker->taken += 1;
  }
  return NULL;
}

static void prefetched_rows_refuse_a_second_thread_and_stay_right(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  uint64_t rows[400];
  for (uint64_t i = 0; i < 400; i++) rows[i] = i;
  rowdex_prefetched *prefetched = NULL;
  OK(rowdex_dataset_prefetch(dataset, rows, 400, NULL, &prefetched, &error));
  rowdex_free(dataset);
  pthread_t threads[3];
  struct taker takers[3];
  for (int i = 0; i < 3; i++) {
    takers[i] = (struct taker){prefetched, 0};
    CHECK(pthread_create(&threads[i], NULL, take_prefetched, &takers[i]) == 0);
  }
  uint64_t taken = 0;
  for (int i = 0; i < 3; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
    taken += (uint64_t)takers[i].taken;
  }
  CHECK(taken > 0 && number_of(prefetched, "followed") + number_of(prefetched, "fell_back") == taken);
  rowdex_free(prefetched);
}

static void *free_it(void *dataset) {
  rowdex_free((rowdex_dataset *)dataset);
  return NULL;
}

static void another_thread_may_free(const char *folder) {
  rowdex_dataset *dataset = open_dataset(folder, "id");
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, free_it, dataset) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  many_threads_read_at_once(argv[1]);
  threads_that_pull_from_one_loader_share_its_batches(argv[1]);
  prefetched_rows_refuse_a_second_thread_and_stay_right(argv[1]);
  closing_ends_the_wait_of_another_thread(argv[1]);
  a_loader_serves_while_another_thread_describes_it(argv[1]);
  a_sampler_always_has_its_length(argv[1]);
  another_thread_may_free(argv[1]);
  return 0;
}
