/*
 * The data side of a training loop in C: shuffled batches of one rank, checkpoints, and a resumed run.
 *
 *   tools/install.sh /usr/local
 *   cc examples/train_loop.c $(pkg-config --cflags --libs rowdex) -o train_loop
 *   rowdex demo --keep demo && ./train_loop demo/train.rdx
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rowdex.h>

enum { BATCH_SIZE = 512, WORLD_SIZE = 4, EPOCHS = 2 };

static void check(rowdex_status status, rowdex_error *error) {
  if (status == ROWDEX_STATUS_OK) return;
  fprintf(stderr, "%s\n", rowdex_error_message(error));
  rowdex_free(error);
  exit(1);
}

/* What a model would do: here, the mean of the column. */
static double train(const int64_t *ids, size_t len) {
  double sum = 0;
  for (size_t i = 0; i < len; i++) sum += (double)ids[i];
  return sum / (double)len;
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: train_loop INDEX\n");
    return 2;
  }
  rowdex_error *error = NULL;

  /* Which rows there are, and which columns are wanted. */
  rowdex_index *index = NULL;
  check(rowdex_index_open(argv[1], NULL, &index, &error), error);
  const char *columns[] = {"id"};
  rowdex_dataset_options open = {.columns = columns, .num_columns = 1};
  rowdex_dataset *dataset = NULL;
  check(rowdex_dataset_open(index, &open, &dataset, &error), error);

  /* All rows shuffled among all rows, with the same seed on every rank; this rank's share of them. */
  const rowdex_index *indexes[] = {index};
  rowdex_operands rows = {.indexes = indexes, .num_indexes = 1};
  rowdex_order *orders = NULL;
  check(rowdex_order_new("{\"order\": \"global\", \"seed\": 42}", &rows, &orders, &error), error);
  rowdex_sampler_options share = {.rank = 1, .world_size = WORLD_SIZE, .batch_size = BATCH_SIZE};
  rowdex_sampler *sampler = NULL;
  check(rowdex_sampler_new(orders, &share, &sampler, &error), error);

  /* Batches, within 64 MiB. */
  rowdex_loader_options how = {.memory = 64 << 20, .epochs = EPOCHS};
  rowdex_loader *loader = NULL;
  check(rowdex_loader_new(dataset, sampler, &how, &loader, &error), error);
  /* Nothing depends on each other: what made the loader can go. */
  rowdex_free(sampler);
  rowdex_free(orders);
  rowdex_free(dataset);
  rowdex_free(index);

  char checkpoint[ROWDEX_STATE_CAPACITY];
  int resumed = 0;
  for (;;) {
    rowdex_batch *batch = NULL;
    check(rowdex_loader_next(loader, &batch, &error), error);
    if (batch == NULL) break; /* the end of the last epoch */
    rowdex_batch_info info = {0};
    check(rowdex_batch_get_info(batch, &info, &error), error);

    /* A struct of columns; of one of 64-bit integers the values are in its second buffer. */
    struct ArrowArray columns_of;
    check(rowdex_batch_export(batch, &columns_of, NULL, &error), error);
    const struct ArrowArray *id = columns_of.children[0];
    double mean = train((const int64_t *)id->buffers[1] + id->offset, info.num_rows);
    columns_of.release(&columns_of);
    if (info.step % 50 == 0) {
      printf("epoch %" PRIu64 " step %2" PRIu64 " of %" PRIu64 ": %" PRIu64 " rows, mean id %.1f\n",
             info.epoch, info.step,
             info.steps, info.num_rows, mean);
    }
    int interrupted = !resumed && info.epoch == 1 && info.step == 20;
    rowdex_free(batch);

    if (interrupted) {
      /* In another process, a day later, this text is all that is needed; here the loader just goes back to it. */
      check(rowdex_loader_state(loader, checkpoint, sizeof checkpoint, &error), error);
      check(rowdex_resume(loader, checkpoint, &error), error);
      printf("resumed from %s\n", checkpoint);
      resumed = 1;
    }
  }
  rowdex_free(loader);
  return 0;
}
