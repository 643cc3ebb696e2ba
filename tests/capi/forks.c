/* A forked child goes on with what it inherited, or opens it again, whatever threads its parent had. */
#define _POSIX_C_SOURCE 200809L
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void take_a_few(const rowdex_dataset *dataset) {
  uint64_t rows[50];
  int64_t ids[50];
  for (uint64_t i = 0; i < 50; i++) rows[i] = (i * 77777) % DEMO_ROWS;
  OK(take_ids(dataset, rows, 50, ids, &error));
  for (int i = 0; i < 50; i++) CHECK(ids[i] == (int64_t)rows[i]);
}

/* The first id of the next batch. */
static uint64_t pull(rowdex_loader *loader) {
  rowdex_batch *batch = NULL;
  OK(rowdex_loader_next(loader, &batch, &error));
  CHECK(batch != NULL);
  rowdex_batch_info info = {0};
  OK(rowdex_batch_get_info(batch, &info, &error));
  uint64_t id = info.row_ids[0];
  rowdex_free(batch);
  return id;
}

enum { PREFETCHED = 2000, PORTION = 100 };

/* Takes a portion of an order that was prefetched: every 97th row. */
static void take_portion(rowdex_prefetched *prefetched, uint64_t portion) {
  uint64_t rows[PORTION];
  int64_t ids[PORTION];
  for (uint64_t i = 0; i < PORTION; i++) rows[i] = (portion * PORTION + i) * 97;
  OK(take_ids(prefetched, rows, PORTION, ids, &error));
  for (int i = 0; i < PORTION; i++) CHECK(ids[i] == (int64_t)rows[i]);
}

/* All portions that are left, and that they were followed. */
static void take_the_rest(rowdex_prefetched *prefetched, uint64_t portion) {
  for (; portion < PREFETCHED / PORTION; portion++) take_portion(prefetched, portion);
  CHECK(number_of(prefetched, "followed") == PREFETCHED && number_of(prefetched, "fell_back") == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  for (int used = 0; used < 2; used++) {
    rowdex_dataset *dataset = open_dataset(argv[1], "id");
    rowdex_sampler *sampler = new_sampler(dataset, "sequential", 0, 1, 100);
    rowdex_loader *loader = NULL;
    OK(rowdex_loader_new(dataset, sampler, NULL, &loader, &error));
    uint64_t ids[4];
    OK(rowdex_sampler_fill(sampler, 0, 100, 1, &ids[1], NULL, &error));
    static uint64_t order[PREFETCHED];
    for (uint64_t i = 0; i < PREFETCHED; i++) order[i] = i * 97;
    rowdex_prefetched *prefetched = NULL;
    OK(rowdex_dataset_prefetch(dataset, order, PREFETCHED, NULL, &prefetched, &error));
    if (used) {
      take_a_few(dataset);
      pull(loader);
      take_portion(prefetched, 0);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      alarm(600); /* so that a child that hangs is seen */
      take_a_few(dataset);
      if (used) {
        rowdex_batch *batch = NULL;
        rowdex_loader *inherited = loader;
        loader = opened_again(inherited);
        FAILS(rowdex_loader_next(inherited, &batch, &error), ROWDEX_STATUS_CLOSED, "forked");
        OK(rowdex_prefetched_clear(prefetched, &error));
        OK(rowdex_prefetched_prefetch(prefetched, order, PREFETCHED, &error));
      }
      if (!used) pull(loader);
      CHECK(pull(loader) == ids[1]);
      for (uint64_t portion = 0; portion < PREFETCHED / PORTION; portion++) take_portion(prefetched, portion);
      rowdex_free(prefetched);
      rowdex_free(loader);
      rowdex_free(sampler);
      rowdex_free(dataset);
      _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    take_a_few(dataset);
    if (!used) pull(loader);
    CHECK(pull(loader) == ids[1]);
    take_the_rest(prefetched, used ? 1 : 0);
    rowdex_free(prefetched);
    rowdex_free(loader);
    rowdex_free(sampler);
    rowdex_free(dataset);
  }
  return 0;
}
