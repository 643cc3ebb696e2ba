/* Packs and buckets served through the C API: every token is compared with the source, which this program writes itself
 * as a Parquet file. */
#include "check.h"

enum { ROWS = 3000, GROUPS = 6, RANKS = 3, BOS = 2000000007, EOS = 2000000009, LONGEST = 400 };

/* How many tokens a row has, and which: most are short, some are longer than a pack, and some have none. */
static uint32_t length_of(uint64_t row) {
  uint32_t drawn = (uint32_t)((row * 2654435761u) >> 7);
  return drawn % 11 == 0 ? 0 : drawn % 17 == 0 ? 1 + drawn % LONGEST : 1 + drawn % 40;
}
static int32_t token_of(uint64_t row, uint64_t at) { return (int32_t)(row * 1000 + at); }

/* A buffer that grows. */
typedef struct {
  uint8_t *bytes;
  size_t len, room;
} buffer;

static void put(buffer *to, const void *bytes, size_t len) {
  if (to->len + len > to->room) {
    to->room = 2 * (to->len + len);
    to->bytes = (uint8_t *)realloc(to->bytes, to->room);
    CHECK(to->bytes != NULL);
  }
  if (len > 0) memcpy(to->bytes + to->len, bytes, len);
  to->len += len;
}
static void put_byte(buffer *to, uint8_t byte) { put(to, &byte, 1); }

/* Thrift's compact protocol, as far as Parquet's metadata needs it. */
enum { STOP = 0, I32 = 5, I64 = 6, BINARY = 8, LIST = 9, STRUCT = 12 };

static void varint(buffer *to, uint64_t number) {
  for (; number >= 128; number >>= 7) put_byte(to, (uint8_t)(number | 128));
  put_byte(to, (uint8_t)number);
}
/* The head of a field, so many behind the one before. */
static void field(buffer *to, int behind, int type) { put_byte(to, (uint8_t)(behind << 4 | type)); }
static void number(buffer *to, int behind, int type, uint64_t value) {
  field(to, behind, type);
  varint(to, 2 * value);
}
static void put_text(buffer *to, const char *value) {
  varint(to, strlen(value));
  put(to, value, strlen(value));
}
static void list(buffer *to, int behind, int type, size_t count) {
  field(to, behind, LIST);
  CHECK(count < 15);
  put_byte(to, (uint8_t)(count << 4 | (size_t)type));
}

/* Levels of one bit each, as one run of packed bits, with their length before them. */
static void levels(buffer *to, const uint8_t *bits, size_t count) {
  buffer run = {NULL, 0, 0};
  size_t bytes = (count + 7) / 8;
  varint(&run, bytes << 1 | 1);
  for (size_t i = 0; i < bytes; i++) {
    uint8_t byte = 0;
    for (size_t bit = 0; bit < 8 && 8 * i + bit < count; bit++) byte |= (uint8_t)(bits[8 * i + bit] << bit);
    put_byte(&run, byte);
  }
  uint32_t len = (uint32_t)run.len;
  put(to, &len, sizeof len);
  put(to, run.bytes, run.len);
  free(run.bytes);
}

/* A column chunk of one page, plain: where it begins and how long it is. */
typedef struct {
  size_t begins, len, values;
} chunk;

static chunk page(buffer *file, const buffer *content, size_t values) {
  chunk written = {file->len, 0, values};
  number(file, 1, I32, 0);
  number(file, 1, I32, content->len);
  number(file, 1, I32, content->len);
  field(file, 2, STRUCT);
  number(file, 1, I32, values);
  number(file, 1, I32, 0);
  number(file, 1, I32, 3);
  number(file, 1, I32, 3);
  put_byte(file, STOP);
  put_byte(file, STOP);
  put(file, content->bytes, content->len);
  written.len = file->len - written.begins;
  return written;
}

static chunk ids(buffer *file, uint64_t first, uint64_t end) {
  buffer content = {NULL, 0, 0};
  for (uint64_t row = first; row < end; row++) {
    int64_t id = (int64_t)row;
    put(&content, &id, sizeof id);
  }
  chunk written = page(file, &content, end - first);
  free(content.bytes);
  return written;
}

static chunk tokens(buffer *file, uint64_t first, uint64_t end) {
  buffer content = {NULL, 0, 0}, repeated = {NULL, 0, 0}, defined = {NULL, 0, 0}, values = {NULL, 0, 0};
  for (uint64_t row = first; row < end; row++) {
    uint32_t length = length_of(row);
    for (uint32_t at = 0; at < length || at == 0; at++) {
      put_byte(&repeated, at > 0);
      put_byte(&defined, length > 0);
      int32_t token = token_of(row, at);
      if (length > 0) put(&values, &token, sizeof token);
    }
  }
  levels(&content, repeated.bytes, repeated.len);
  levels(&content, defined.bytes, defined.len);
  put(&content, values.bytes, values.len);
  chunk written = page(file, &content, repeated.len);
  free(repeated.bytes);
  free(defined.bytes);
  free(values.bytes);
  free(content.bytes);
  return written;
}

/* The element of the schema, of a type (or none: -1), how often it comes, and how many it has below it. */
static void element(buffer *to, int type, int comes, const char *name, size_t children, bool is_list) {
  int last = 0;
  if (type >= 0) number(to, 1, I32, (uint64_t)type), last = 1;
  if (comes >= 0) number(to, 3 - last, I32, (uint64_t)comes), last = 3;
  field(to, 4 - last, BINARY);
  put_text(to, name);
  if (children > 0) number(to, 1, I32, children);
  if (is_list) number(to, children > 0 ? 1 : 2, I32, 3);
  put_byte(to, STOP);
}

static void column(buffer *to, int type, chunk of, const char *const *path, size_t depth) {
  number(to, 2, I64, of.begins);
  field(to, 1, STRUCT);
  number(to, 1, I32, (uint64_t)type);
  list(to, 1, I32, 1);
  varint(to, 0);
  list(to, 1, BINARY, depth);
  for (size_t i = 0; i < depth; i++) put_text(to, path[i]);
  number(to, 1, I32, 0);
  number(to, 1, I64, of.values);
  number(to, 1, I64, of.len);
  number(to, 1, I64, of.len);
  number(to, 2, I64, of.begins);
  put_byte(to, STOP);
  put_byte(to, STOP);
}

/* Rows with an id and a list of tokens, in several row groups. */
static void write_parquet(const char *path) {
  enum { INT32 = 1, INT64 = 2, REQUIRED = 0, REPEATED = 2 };
  static const char *const of_id[] = {"id"}, *const of_tokens[] = {"tokens", "list", "element"};
  buffer file = {NULL, 0, 0}, footer = {NULL, 0, 0};
  put(&file, "PAR1", 4);
  number(&footer, 1, I32, 1);
  list(&footer, 1, STRUCT, 5);
  element(&footer, -1, -1, "schema", 2, false);
  element(&footer, INT64, REQUIRED, "id", 0, false);
  element(&footer, -1, REQUIRED, "tokens", 1, true);
  element(&footer, -1, REPEATED, "list", 1, false);
  element(&footer, INT32, REQUIRED, "element", 0, false);
  number(&footer, 1, I64, ROWS);
  list(&footer, 1, STRUCT, GROUPS);
  for (uint64_t group = 0; group < GROUPS; group++) {
    uint64_t first = group * ROWS / GROUPS, end = (group + 1) * ROWS / GROUPS;
    chunk id = ids(&file, first, end), of_list = tokens(&file, first, end);
    list(&footer, 1, STRUCT, 2);
    column(&footer, INT64, id, of_id, 1);
    column(&footer, INT32, of_list, of_tokens, 3);
    number(&footer, 1, I64, id.len + of_list.len);
    number(&footer, 1, I64, end - first);
    put_byte(&footer, STOP);
  }
  put_byte(&footer, STOP);
  uint32_t len = (uint32_t)footer.len;
  put(&file, footer.bytes, footer.len);
  put(&file, &len, sizeof len);
  put(&file, "PAR1", 4);
  FILE *out = fopen(path, "wb");
  CHECK(out != NULL && fwrite(file.bytes, 1, file.len, out) == file.len && fclose(out) == 0);
  free(file.bytes);
  free(footer.bytes);
}

/* An array of a batch by its name: its values, of which there are `count`. */
static const void *values(const struct ArrowArray *array, const struct ArrowSchema *schema, const char *name,
                          int64_t *count) {
  for (int64_t i = 0; i < schema->n_children; i++) {
    if (strcmp(schema->children[i]->name, name) != 0) continue;
    const struct ArrowArray *of = array->children[i], *items = of->children[0];
    CHECK(array->length == 1 && of->length == 1 && items->n_buffers == 2);
    const int32_t *ends = (const int32_t *)of->buffers[1] + of->offset;
    const char *kind = schema->children[i]->children[0]->format;
    CHECK(strcmp(kind, "i") == 0 || strcmp(kind, "l") == 0);
    *count = ends[1] - ends[0];
    return (const uint8_t *)items->buffers[1] + (size_t)(items->offset + ends[0]) * (*kind == 'i' ? 4 : 8);
  }
  fprintf(stderr, "no array is called %s\n", name);
  exit(1);
}

/* How packs are planned and served. */
typedef struct {
  struct {
    uint64_t capacity, extra, multiple, block;
    uint32_t max_pieces;
    const char *algorithm, *overflow;
  } pack;
  rowdex_sequence_options how;
  uint64_t batch_size, first_step;
  bool bos_eos;
} packing;

/* Which tokens were served how often, a token a byte. */
static uint8_t *served[ROWS];

/* Checks a piece in the arrays of a batch from place `at` on: `length` places of it have tokens. */
static void check_piece(uint64_t row, uint64_t offset, int64_t length, const int32_t *token, const int64_t *positions,
                        const int32_t *segments, const int64_t *labels, int32_t segment, const packing *of) {
  uint32_t whole = length_of(row);
  int64_t in_row = (int64_t)offset;
  for (int64_t i = 0; i < length; i++) {
    CHECK(positions[i] == i && segments[i] == segment);
    bool bos = of->bos_eos && offset == 0 && i == 0, eos = of->bos_eos && in_row == whole && !bos;
    CHECK(token[i] == (bos ? BOS : eos ? EOS : token_of(row, (uint64_t)in_row)));
    if (!bos && !eos) {
      CHECK(in_row < whole);
      served[row][in_row++]++;
    }
    bool last = eos || (!of->bos_eos && in_row == whole);
    CHECK(labels[i] == (last ? -100 : in_row == whole ? EOS : token_of(row, (uint64_t)in_row)));
  }
}

/* Checks all arrays of a batch. Returns how many packs it has. */
static int64_t check_batch(const rowdex_batch *batch, const packing *of) {
  struct ArrowArray array;
  struct ArrowSchema schema;
  OK(rowdex_batch_sequences(batch, &of->how, &array, &schema, &error));
  rowdex_batch_info info = {.struct_size = sizeof info};
  OK(rowdex_batch_get_info(batch, &info, &error));
  int64_t places, positions_count, segments_count, labels_count, ends, packs, one, pieces, rows_count, offsets_count;
  const int32_t *token = (const int32_t *)values(&array, &schema, "tokens", &places);
  const int64_t *positions = (const int64_t *)values(&array, &schema, "position_ids", &positions_count);
  const int32_t *segments = (const int32_t *)values(&array, &schema, "segment_ids", &segments_count);
  const int64_t *labels = (const int64_t *)values(&array, &schema, "labels", &labels_count);
  const int32_t *cu_seqlens = (const int32_t *)values(&array, &schema, "cu_seqlens", &ends);
  const int32_t *pack_offsets = (const int32_t *)values(&array, &schema, "pack_offsets", &packs);
  const int32_t *max_seqlen = (const int32_t *)values(&array, &schema, "max_seqlen", &one);
  const int32_t *lengths = (const int32_t *)values(&array, &schema, "lengths", &pieces);
  const int64_t *row_ids = (const int64_t *)values(&array, &schema, "row_ids", &rows_count);
  const int64_t *offsets = (const int64_t *)values(&array, &schema, "offsets", &offsets_count);
  CHECK(positions_count == places && segments_count == places && labels_count == places && one == 1);
  CHECK(ends == pieces + 1 && rows_count == pieces && offsets_count == pieces && (uint64_t)pieces == info.num_rows);
  packs -= 1;
  CHECK(packs >= 1 && pack_offsets[0] == 0 && pack_offsets[packs] == places);
  bool flat = of->how.layout == NULL;
  bool buckets = of->pack.algorithm != NULL && strcmp(of->pack.algorithm, "buckets") == 0;
  int32_t longest = 0;
  int64_t pack = -1;
  int32_t segment = 0, at = 0;
  for (int64_t i = 0; i < pieces; i++) {
    CHECK(row_ids[i] == (int64_t)info.row_ids[i]);
    /* Buckets have a row in each pack, of which some have no place. */
    if (buckets || pack < 0 || (at == pack_offsets[pack + 1] && pack + 1 < packs)) {
      pack++;
      segment = 0;
      at = pack_offsets[pack];
    }
    CHECK(!flat || cu_seqlens[i] == at);
    check_piece((uint64_t)row_ids[i], (uint64_t)offsets[i], lengths[i], token + at, positions + at, segments + at,
                labels + at, ++segment, of);
    int32_t multiple = (int32_t)of->pack.multiple, filled = (lengths[i] + multiple - 1) / multiple * multiple;
    for (int32_t fill = lengths[i]; fill < filled; fill++) {
      CHECK(token[at + fill] == of->how.pad && segments[at + fill] == 0 && labels[at + fill] == -100);
    }
    at += filled;
    if (filled > longest) longest = filled;
  }
  if (flat) {
    CHECK(max_seqlen[0] == longest && at == places && pack == packs - 1);
  } else {
    for (int64_t i = 1; i <= packs; i++) {
      int32_t wide = pack_offsets[i] - pack_offsets[i - 1];
      CHECK(wide == (buckets ? longest : (int32_t)of->pack.capacity));
    }
  }
  if (!buckets) {
    for (int64_t i = 0; i < packs; i++) CHECK(pack_offsets[i + 1] - pack_offsets[i] <= (int32_t)of->pack.capacity);
  }
  rowdex_array_release(&array);
  rowdex_schema_release(&schema);
  return packs;
}

static rowdex_sampler *sampler_of(const rowdex_index *index, uint32_t rank, uint32_t ranks, const packing *of) {
  rowdex_order *orders = new_orders("global", index, 5);
  described pack;
  memset(&pack, 0, sizeof pack);
  say(&pack, "{\"lengths\": \"tokens\", \"extra\": %d, \"multiple\": %d", (int)of->pack.extra, (int)of->pack.multiple);
  if (of->pack.capacity > 0) say(&pack, ", \"capacity\": %d", (int)of->pack.capacity);
  if (of->pack.block > 0) say(&pack, ", \"block\": %d", (int)of->pack.block);
  if (of->pack.max_pieces > 0) say(&pack, ", \"max_pieces\": %u", of->pack.max_pieces);
  if (of->pack.algorithm != NULL) say(&pack, ", \"algorithm\": \"%s\"", of->pack.algorithm);
  if (of->pack.overflow != NULL) say(&pack, ", \"overflow\": \"%s\"", of->pack.overflow);
  say(&pack, "}");
  rowdex_sampler_options options = {.struct_size = sizeof options, .rank = rank, .world_size = ranks,
                                    .batch_size = of->batch_size, .pack = pack.json};
  if (of->pack.algorithm != NULL && strcmp(of->pack.algorithm, "buckets") == 0) options.tail = "uneven";
  rowdex_sampler *sampler = NULL;
  OK(rowdex_sampler_new(orders, &options, &sampler, &error));
  rowdex_free(orders);
  return sampler;
}

/* What is told of an epoch of which no token is lost, and none comes twice. */
static void check_prediction(const rowdex_dataset *dataset, const rowdex_sampler *sampler,
                             const rowdex_loader_options *options) {
  char *told = NULL;
  OK(rowdex_loader_estimate(dataset, sampler, options, &told, &error));
  uint64_t tokens = 0;
  for (uint64_t row = 0; row < ROWS; row++) tokens += length_of(row);
  const char *packs = strstr(told, "\"packs\":{");
  CHECK(packs != NULL && reported(packs, "steps") == number_of(sampler, "steps"));
  CHECK(reported(packs, "tokens") == tokens && reported(packs, "tokens_left_out") == 0);
  CHECK(reported(packs, "tokens_repeated") == 0 && reported(packs, "tokens_truncated") == 0);
  CHECK(reported(packs, "cost_imbalance") >= 1 && reported(packs, "steps_looked_at") > 0);
  rowdex_free(told);
}

/* Serves an epoch on some ranks, from a state on if there is one, for so many steps at most. Writes the state behind
 * them. */
static void serve(const rowdex_dataset *dataset, const rowdex_index *index, uint32_t ranks, const packing *of,
                  char *state, uint64_t most_steps) {
  uint64_t steps = 0;
  char behind[ROWDEX_STATE_CAPACITY] = "";
  for (uint32_t rank = 0; rank < ranks; rank++) {
    rowdex_sampler *sampler = sampler_of(index, rank, ranks, of);
    if (*state != 0) OK(rowdex_resume(sampler, state, &error));
    const uint64_t left = number_of(sampler, "steps_left");
    rowdex_loader_options options = {.struct_size = sizeof options, .memory = 1 << 20, .epochs = 1,
                                     .threads = rank % 2 == 0 ? ROWDEX_NONE : 2};
    if (*state == 0) check_prediction(dataset, sampler, &options);
    rowdex_loader *loader = NULL;
    OK(rowdex_loader_new(dataset, sampler, &options, &loader, &error));
    uint64_t done = 0;
    for (; done < most_steps; done++) {
      rowdex_batch *batch = NULL;
      OK(rowdex_loader_next(loader, &batch, &error));
      if (batch == NULL) break;
      int64_t packs = check_batch(batch, of);
      CHECK((uint64_t)packs == of->batch_size || (done + 1 == left && (uint64_t)packs < of->batch_size));
      rowdex_free(batch);
    }
    CHECK(rank == 0 || done == steps);
    CHECK(done == (most_steps < left ? most_steps : left));
    steps = done;
    char stands[ROWDEX_STATE_CAPACITY];
    OK(rowdex_loader_state(loader, stands, sizeof stands, &error));
    CHECK(rank == 0 || strcmp(stands, behind) == 0);
    strcpy(behind, stands);
    rowdex_free(loader);
    rowdex_free(sampler);
  }
  strcpy(state, behind);
}

static void every_token_comes_once(const rowdex_dataset *dataset, const rowdex_index *index, packing of) {
  of.how.struct_size = sizeof of.how;
  static const int64_t bos = BOS, eos = EOS;
  if (of.bos_eos) of.how.bos = &bos, of.how.eos = &eos, of.pack.extra = 2;
  if (of.pack.multiple == 0) of.pack.multiple = 1;
  for (uint64_t row = 0; row < ROWS; row++) {
    served[row] = (uint8_t *)calloc(length_of(row) + 1, 1);
    CHECK(served[row] != NULL);
  }
  char state[ROWDEX_STATE_CAPACITY] = "";
  /* Some ranks stop within the epoch, and others go on. */
  serve(dataset, index, RANKS, &of, state, 5);
  serve(dataset, index, RANKS + 2, &of, state, 3);
  serve(dataset, index, 1, &of, state, UINT64_MAX);
  for (uint64_t row = 0; row < ROWS; row++) {
    for (uint32_t at = 0; at < length_of(row); at++) CHECK(served[row][at] == 1);
    free(served[row]);
  }
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  char parquet[4096], built[4096];
  snprintf(parquet, sizeof parquet, "%s/tokens.parquet", argv[1]);
  snprintf(built, sizeof built, "%s/tokens.rdx", argv[1]);
  write_parquet(parquet);
  OK(build(text("{\"files\": [\"%s\"], \"output\": \"%s\", \"overwrite\": true, \"lengths\": [\"tokens\"]}", parquet,
                built), &error));
  rowdex_index *index = NULL;
  rowdex_dataset *dataset = NULL;
  OK(rowdex_index_open(built, NULL, &index, &error));
  CHECK(number_of(index, "rows") == ROWS);
  OK(rowdex_dataset_open(index, NULL, &dataset, &error));

  packing packs = {.pack = {.capacity = 120}, .batch_size = 2};
  every_token_comes_once(dataset, index, packs);
  packing marked = {.pack = {.capacity = 128, .multiple = 8}, .batch_size = 2, .bos_eos = true, .how = {.pad = 99}};
  every_token_comes_once(dataset, index, marked);
  packing concat = {.pack = {.capacity = 90, .algorithm = "concat", .block = 700}, .batch_size = 3};
  every_token_comes_once(dataset, index, concat);
  packing buckets = {.pack = {.algorithm = "buckets", .block = 512}, .batch_size = 16};
  every_token_comes_once(dataset, index, buckets);
  packing padded = {.pack = {.algorithm = "buckets", .multiple = 4}, .batch_size = 16, .bos_eos = true,
                    .how = {.layout = "rows", .pad = 99}};
  every_token_comes_once(dataset, index, padded);

  rowdex_free(dataset);
  rowdex_free(index);
  CHECK(remove(parquet) == 0 && remove(built) == 0);
  return 0;
}
