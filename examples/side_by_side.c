/* Columns of two indexes of the same rows, by two loaders in lockstep: ./side_by_side INDEX [OTHER] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rowdex.h>

static void check(rowdex_status status, rowdex_error *error) {
  if (status != ROWDEX_STATUS_OK) exit(fprintf(stderr, "%s\n", rowdex_error_message(error)) > 0);
}

int main(int argc, char **argv) {
  rowdex_error *error = NULL;
  rowdex_sampler *sampler = NULL; /* of both: the order, the rank and the state are those of the run */
  rowdex_loader *loaders[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++) {
    rowdex_index *index = NULL;
    check(rowdex_index_open(argv[i < argc - 1 ? i + 1 : 1], NULL, &index, &error), error);
    rowdex_dataset *dataset = NULL;
    check(rowdex_dataset_open(index, NULL, &dataset, &error), error);
    rowdex_operands rows = {.indexes = (const rowdex_index *const[]){index}, .num_indexes = 1};
    rowdex_order *orders = NULL;
    check(rowdex_order_new("{\"order\": \"global\", \"seed\": 42}", &rows, &orders, &error), error);
    rowdex_sampler_options share = {.rank = 1, .world_size = 4, .batch_size = 512};
    if (i == 0) check(rowdex_sampler_new(orders, &share, &sampler, &error), error);
    rowdex_loader_options how = {.memory = 32 << 20, .epochs = 1}; /* more for the one with more bytes */
    check(rowdex_loader_new(dataset, sampler, &how, &loaders[i], &error), error);
    rowdex_free(orders), rowdex_free(dataset), rowdex_free(index);
  }
  for (rowdex_batch *batches[2];; rowdex_free(batches[0]), rowdex_free(batches[1])) {
    rowdex_batch_info of[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) check(rowdex_loader_next(loaders[i], &batches[i], &error), error);
    if (batches[0] == NULL) return 0; /* the end of the last epoch */
    for (int i = 0; i < 2; i++) check(rowdex_batch_get_info(batches[i], &of[i], &error), error);
    if (memcmp(of[0].row_ids, of[1].row_ids, of[0].num_rows * sizeof *of[0].row_ids) != 0) return 1;
    /* rowdex_batch_export of both: row i of one and row i of the other are the same row. */
    if (of[0].step % 50 == 0) printf("step %d: %d rows\n", (int)of[0].step, (int)of[1].num_rows);
  }
}
