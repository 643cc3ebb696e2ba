/*
 * rowdex: Parquet files as a map-style dataset for distributed training.
 *
 * Generated from src/capi by tools/header.sh; do not edit.
 *
 * CONVENTIONS
 *
 * Names. Everything is called rowdex_ or ROWDEX_. Words mean what they mean in the manual: a row id is a row's place in
 * the index, a position its place in the order of an epoch, a step one batch on every rank. Orders, tails and levels
 * are named by the texts that the command line and Python use; an unknown one is refused, and the error lists them.
 *
 * Results. Any function that can fail returns a rowdex_status, and ROWDEX_STATUS_OK is 0. Results go to pointers, and
 * they are written only on success: after a failure the caller's variables and buffers hold what they held. Functions
 * without a status cannot fail; for NULL they answer 0, NULL or false.
 *
 * Errors. The last argument of a call takes the error; NULL if it is not wanted. It is written on failure only, with a
 * new rowdex_error that the caller frees; what it held before is lost, so free that first. The message is a whole
 * sentence that names file, row group and column where they are known, and says what to do. It is UTF-8, as all texts
 * are, but for paths.
 *
 * Ownership. Handles are opaque, come from _open, _new and the like through a pointer to a pointer, and end with
 * rowdex_free, once, and so do reports. Handles do not depend on each other: an index may be freed while a dataset of
 * it lives, and so on. Texts and arrays that a handle is asked for belong to it, until it is freed. What the caller
 * passes in is copied, or no longer looked at when the call returns. Arrow structs are the caller's, who calls their
 * release callback; they live on when everything of rowdex is freed.
 *
 * NULL. A NULL that is not allowed is refused (ROWDEX_STATUS_INVALID_ARGUMENT), and so is a misaligned array. Arrays of
 * length 0 may be NULL. Other pointers cannot be checked: they must be valid, texts must end with a NUL, and outputs
 * must not overlap.
 *
 * Options. All fields of a struct of options may be 0, which is their default: rowdex_dataset_options options = {0}. In
 * their place NULL stands for all defaults. ROWDEX_NONE asks for none of something where 0 asks for the default.
 *
 * Descriptions. What is built, selected or rewritten is described by a JSON text. What is left out has its default, and
 * so has what is null. A field that is not known, or that has a value of another kind, is refused by its name. Paths
 * are texts, in the encoding of the file system. Reports are JSON texts, too: later versions may add fields.
 *
 * Versions. As long as ROWDEX_ABI_VERSION stays, functions and fields of descriptions are added, and nothing is changed
 * or taken away: a program that was compiled with an older header still works. Compare rowdex_abi_version() with it
 * where the library may be another one. Status numbers are never reused.
 *
 * Threads. All functions of an index, a dataset, orders, a sampler and a batch may be called by many threads at once.
 * rowdex_loader and rowdex_prefetched serve one thread at a time: a call that meets another one under way returns an
 * error and does not wait. Their close functions may be called at any time; they end the wait of the other thread. No
 * handle is tied to the thread that made it; none may be freed while a call with it is under way. Threads of the
 * library belong to a handle and end with it. There is no global state; a thread has the number that it gave
 * rowdex_stop_when.
 *
 * Fork. A forked child may use all handles but loaders and prefetched rows that its parent has used: those are opened
 * again (rowdex_loader_reopen) or prefetched again, and return ROWDEX_STATUS_CLOSED otherwise. Datasets start new
 * caches and threads there. It must not use a handle that another thread of the parent was inside of at that moment,
 * and it need not free what it inherited. fork() waits while another thread parses a condition or evaluates it for some
 * rows, 10 seconds at most.
 *
 * Panics and exceptions. A defect of the library comes back as ROWDEX_STATUS_INTERNAL and does not unwind into the
 * caller. A callback must return: C++ exceptions and longjmp must not leave it. The library installs no signal handlers
 * and changes no locale.
 */


#ifndef ROWDEX_H
#define ROWDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The Arrow C data and stream interfaces, as Arrow specifies them. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
  const char *format;
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};

#endif /* ARROW_C_DATA_INTERFACE */

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};

#endif /* ARROW_C_STREAM_INTERFACE */

// The version of this header's functions and structs. It grows when one is taken away or changed, not when one is
// added.
#define ROWDEX_ABI_VERSION 1

// In an option, where 0 stands for the default: really none at all.
#define ROWDEX_NONE UINT64_MAX

// Room enough for any state with its NUL. Into less room a state is written if it fits; else the error says how much
// it needs.
#define ROWDEX_STATE_CAPACITY 512

// How a call went. Numbers are never used again for something else, and new ones may be added.
enum rowdex_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // All is done.
  ROWDEX_STATUS_OK = 0,
  // The operating system or the store failed a read, a write or a request.
  ROWDEX_STATUS_IO = 1,
  // A file that should be there is not.
  ROWDEX_STATUS_NOT_FOUND = 2,
  // A file is there already and the caller did not ask to replace it.
  ROWDEX_STATUS_ALREADY_EXISTS = 3,
  // The index bytes are not a valid index: not one at all, truncated, or damaged.
  ROWDEX_STATUS_INVALID_INDEX = 4,
  // The index is of a format version, or needs a feature, that this library does not know.
  ROWDEX_STATUS_UNSUPPORTED_INDEX = 5,
  // A Parquet file is malformed: not Parquet, truncated, or with damaged pages.
  ROWDEX_STATUS_INVALID_PARQUET = 6,
  // A Parquet file is valid but uses something that cannot be read here, such as encryption.
  ROWDEX_STATUS_UNSUPPORTED_PARQUET = 7,
  // Two files do not have the same columns, or a column cannot be brought to the asked type.
  ROWDEX_STATUS_SCHEMA = 8,
  // A data file is not the one that was indexed.
  ROWDEX_STATUS_STALE = 9,
  // A row id, row group, position or step beyond the end.
  ROWDEX_STATUS_OUT_OF_RANGE = 10,
  // An argument that can never be right, such as NULL or a batch size of 0.
  ROWDEX_STATUS_INVALID_ARGUMENT = 11,
  // Decoding would take more memory than the limit allows.
  ROWDEX_STATUS_TOO_LARGE = 12,
  // A saved state or fingerprint belongs to another order, dataset or sampler.
  ROWDEX_STATUS_STATE_MISMATCH = 13,
  // A defect of the library; please report it.
  ROWDEX_STATUS_INTERNAL = 14,
  // The handle was closed, before the call or meanwhile by another thread.
  ROWDEX_STATUS_CLOSED = 15,
  // Nothing came within the time to wait. Nothing is lost: call again.
  ROWDEX_STATUS_TIMED_OUT = 16,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rowdex_status rowdex_status;
#else
typedef int32_t rowdex_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The rows of one step on one rank. Concurrent use is fine.
typedef struct rowdex_batch rowdex_batch;

// Rows by their row id. Concurrent use is fine, and so is freeing it while a loader uses it.
typedef struct rowdex_dataset rowdex_dataset;

// What went wrong, where, and what to do about it.
typedef struct rowdex_error rowdex_error;

// A set of row ids, out of a number of rows. At most 1.0625 bits for each of the rows. Concurrent use is fine.
typedef struct rowdex_id_set rowdex_id_set;

// Where a row is. Concurrent use is fine, and so is freeing it while a dataset that was opened with it lives.
typedef struct rowdex_index rowdex_index;

// Serves batches in the order of a sampler, epoch after epoch.
//
// One thread at a time, and a second one gets an error; but rowdex_close, rowdex_describe and rowdex_schema may be
// called at any time, also while a thread waits for a batch. So may rowdex_loader_get_info, rowdex_loader_state and
// rowdex_loader_reopen, which report the last batch that was handed out.
typedef struct rowdex_loader rowdex_loader;

// Which row comes at which position, in every epoch. Concurrent use is fine, and so is freeing it while a sampler uses
// it.
typedef struct rowdex_order rowdex_order;

// Serves rows in the order in which they were prefetched, and any others as the dataset does. One thread at a time,
// and a second one gets an error; but rowdex_close may be called at any time.
typedef struct rowdex_prefetched rowdex_prefetched;

// The samples and batches of one rank, epoch after epoch.
//
// All functions may run at once, those that change it too: each sees it as it was before or after a change.
typedef struct rowdex_sampler rowdex_sampler;

// Where one row is.
typedef struct rowdex_location {
  // The row group, counted over the whole index.
  uint32_t row_group;
  // The file.
  uint32_t file;
  // The row group, counted within its file.
  uint32_t ordinal;
  // 0.
  uint32_t reserved;
  // The row, counted within the row group as it is in the file.
  uint64_t row;
  // The place among the rows of the row group that are served; equal to row where all of them are.
  uint64_t slot;
} rowdex_location;

// A folder on a local disk that keeps row groups for all processes of a machine. Only its owner should be able to
// write to it.
typedef struct rowdex_disk_cache {
  // The folder, which is made when something is first kept.
  const char *folder;
  // The most bytes of files to keep in it.
  uint64_t bytes;
} rowdex_disk_cache;

// How a dataset is opened. All zeros are the defaults.
typedef struct rowdex_dataset_options {
  // The columns to serve, in this order; a path with dots names a nested field. NULL: all.
  const char *const *columns;
  // How many.
  size_t num_columns;
  // Finds the data files below this directory. NULL: where the index says that they were.
  const char *root;
  // How closely files are compared with what was indexed: "off", "stat" (NULL), "footer" or "deep".
  const char *check;
  // Bytes of decoded row groups to keep. 0: 1 GiB.
  uint64_t cache_bytes;
  // Threads that decode, started when they are first needed. 0: one for each available core, at most eight.
  // ROWDEX_NONE: none, the caller's decodes.
  uint64_t threads;
  // Refuses a row group that takes more bytes than this when decoded. 0: 2 GiB.
  uint64_t max_decoded_bytes;
  // How the object store is talked to, if the data is in one, as for rowdex_index_open. NULL: the defaults.
  const char *store;
  // Keeps row groups on a local disk. NULL: none does.
  const struct rowdex_disk_cache *disk_cache;
} rowdex_dataset_options;

// An array of numbers: row ids are uint64_t, weights double, labels uint32_t.
typedef struct rowdex_numbers {
  // The first one; NULL if there are none.
  const void *values;
  // How many.
  size_t len;
} rowdex_numbers;

// What a description refers to, because it is large or open: by its number in these arrays, from 0. All of it may go
// when the call is over.
typedef struct rowdex_operands {
  const struct rowdex_index *const *indexes;
  size_t num_indexes;
  const struct rowdex_numbers *numbers;
  size_t num_numbers;
  const struct rowdex_id_set *const *sets;
  size_t num_sets;
  // The dataset whose values are read: those of the columns that are named, which need not be among those served.
  const struct rowdex_dataset *dataset;
  // Another dataset, which that one is compared with.
  const struct rowdex_dataset *other;
  const struct rowdex_order *order;
  // A list of rows. It is moved from, and released in any case.
  struct ArrowArrayStream *stream;
} rowdex_operands;

// Gets how far a build or a check has come: files done, files in all, and rows found so far (0 where they are not
// counted).
//
// It is called by one thread at a time, not always the same one, and never after the call that it was given to has
// returned. It must return: by no exception, and by no longjmp. It must not use the dataset that it reports on, whose
// threads may be waiting for it.
typedef void (*rowdex_progress)(void *userdata, uint64_t files_done, uint64_t files, uint64_t rows);

// Who gets which rows when. Rank, world size and batch size have no defaults.
typedef struct rowdex_sampler_options {
  // This rank, counted from 0.
  uint32_t rank;
  // How many ranks there are.
  uint32_t world_size;
  // Rows, or packs, per step and rank.
  uint64_t batch_size;
  // What becomes of rows, or packs, that do not divide evenly: "wrap" (NULL), "drop", "uneven" or "error"; of packs,
  // "even" (NULL), too.
  const char *tail;
  // Which ranks form a replica group: "consecutive" (NULL) or "strided".
  const char *replica_layout;
  // How many ranks get the same rows, as those of a model-parallel group must. 0: 1.
  uint32_t replication;
  // 1 leaves out the last batch of an epoch if it is short on any rank.
  uint32_t drop_last_batch;
  // How positions are assigned to the shards: "strided" (NULL) in turn, or "contiguous" in one consecutive piece for
  // each.
  const char *partition;
  // Whether orders that are the same in every epoch begin elsewhere each epoch: "needed" (NULL) where rows are
  // dropped or repeated, which would be the same ones otherwise, "always" or "never".
  const char *rotation;
  // Batches of packs, such as "tokens:8192,overflow=truncate,extra=2". NULL: of rows.
  //
  // First the name by which the lengths are recorded in the index of the orders, a colon, and the tokens of a pack,
  // or "buckets"; then options with commas between them. algorithm: how pieces are put into packs: bfd (the
  // default), best-fit decreasing; concat, row after row; or, for batches of whole rows of like lengths with at most
  // this number of tokens, budget, or padded, which counts the padding to the longest row. Buckets are batches of a
  // fixed number of rows with like lengths: each row is a pack, and every row comes; their option capacity is the
  // most tokens of a row. overflow: rows that are longer than a pack can hold: split (the default) into pieces,
  // truncate, drop or error. Batches within a budget, and buckets, are of whole rows: there error is the default,
  // and split is refused. extra: tokens that each piece takes in addition to its own. multiple: what a piece takes
  // is rounded up to a multiple of this. max_pieces: the most of a pack. second: images-16 is a second limit, of
  // numbers that are recorded by this name; rows then stay whole. cost: 24576-1 assigns the packs of a step by what
  // they cost: the first number times the tokens, and the second one times the sum of the squares of the lengths of
  // the pieces. block: how many positions of the order are packed together, 131072 by default, or 16384 within a
  // second limit; of buckets, sorted together, 16384. empty: rows without tokens: skip (the default) or keep as
  // pieces without tokens. Buckets keep them.
  const char *pack;
} rowdex_sampler_options;

// Where the pieces of a step are written: for each row id one, pack after pack.
typedef struct rowdex_pieces {
  // The token of its row that each piece begins with: room for one for each row id.
  uint64_t *offsets;
  // How many tokens each piece has: room for the same number.
  uint64_t *lengths;
  // How many pieces there are up to the end of each pack.
  uint64_t *packs;
  // For how many packs there is room: the batch size is always enough.
  size_t packs_capacity;
  // How many packs there are.
  size_t *num_packs;
} rowdex_pieces;

// A row of a batch that stands in for one that could not be read.
typedef struct rowdex_substituted {
  // The place in the batch, from 0.
  uint64_t place;
  // The row id that the order has there. The one that is served is among the row ids of the batch.
  uint64_t lost;
} rowdex_substituted;

// What is known of a batch.
typedef struct rowdex_batch_info {
  // The epoch that it is from.
  uint64_t epoch;
  // Which step of the epoch, from 0. After resuming within an epoch, steps continue from there.
  uint64_t step;
  // How many steps the epoch has in all, wherever the run was resumed. The last batch has step + 1 == steps.
  uint64_t steps;
  // The rank that it is for.
  uint64_t rank;
  // How many rows it has.
  uint64_t num_rows;
  // How many of them, always the last ones, are repeated: another rank or an earlier step serves them, too.
  uint64_t num_pads;
  // The row ids, one for each row, which belong to the batch.
  const uint64_t *row_ids;
  // Which rows stand in for others that could not be read, in ascending order of their places. They belong to the
  // batch.
  const struct rowdex_substituted *substituted;
  // How many.
  uint64_t num_substituted;
  // How many packs it has, whose pieces are its rows; 0 if its rows are in none.
  uint64_t num_packs;
  // For each row its position in the order, where that may serve a row more than once, the same for any number of
  // ranks; NULL in all other orders, and of packs. They belong to the batch.
  const uint64_t *positions;
} rowdex_batch_info;

// How the tokens of packs come. All zeros are the defaults.
typedef struct rowdex_sequence_options {
  // "flat" (NULL): packs one after the other, as long as each is. "rows": each has as many places as its capacity,
  // of which those behind its pieces are filled up.
  const char *layout;
  // 1 makes no labels where no column has them.
  uint64_t without_labels;
  // The token that each row begins with, one of the extra ones that packs reserve. NULL: none is added.
  const int64_t *bos;
  // The token that each row ends with, as bos.
  const int64_t *eos;
  // The token of places that are filled up.
  int64_t pad;
} rowdex_sequence_options;

// How a loader works. All zeros are the defaults.
typedef struct rowdex_loader_options {
  // Bytes of decoded rows to hold at most. 0: 1 GiB.
  uint64_t memory;
  // Threads that the loader has while it serves. 0: 2. ROWDEX_NONE: none, all work is done by the thread that asks
  // for batches.
  uint64_t threads;
  // About how many finished batches may wait to be asked for. 0: a few.
  uint64_t read_ahead;
  // How many epochs the run has: it ends before this one, wherever it was started or resumed. 0: no end.
  uint64_t epochs;
  // Serves the batches of these ranks, too: at every step one after another, that of the loader's sampler first. May
  // be NULL.
  const struct rowdex_sampler *const *more_ranks;
  // How many.
  size_t num_more_ranks;
  // What to do about a row group that cannot be read: "raise" (NULL), or "substitute", which replaces each of its
  // rows by another one that can be read. Set it alike on all ranks.
  const char *on_error;
  // With "substitute": another seed chooses other rows.
  uint64_t fault_seed;
  // 1 serves top-level string and binary columns as views, of any of their types, so that their values are not
  // copied into batches; in exchange a batch keeps alive what its values are in.
  uint64_t views;
  // How many row groups of an object store may be on their way at once. 0: chosen by measurement, so that batches do
  // not wait. ROWDEX_NONE: none is read ahead.
  uint64_t read_concurrency;
  // As JSON, such as {"ranks": 8}: shares one reader with the loaders of the other ranks on this machine: memory and
  // threads are then the machine's, and must be the same on all ranks, as all else. With samplers of
  // rowdex_sampler_worker that are all workers of all ranks. NULL: each loader reads for itself.
  //
  // All may be left out: name: which of the loaders of a rank this is, the same on all ranks; by default the first,
  // second, … of this process that shares. job: the name of the job, and ranks: how many are on this machine; by
  // default as the launcher says. drift: how many steps a rank may be ahead of another one, about; 32, fewer of
  // large batches. program: the program that reads, and arguments that come before its own, as a list: the command
  // of this version; by default `rowdex`, where the system finds programs.
  const char *share;
  // How many milliseconds rowdex_loader_next, rowdex_loader_peek and rowdex_loader_advance wait for a batch before
  // they return ROWDEX_STATUS_TIMED_OUT: call again, nothing is lost. For callers whose signal handlers run between
  // calls. 0: without end, as streams always do.
  uint64_t max_wait;
  // Which column has the tokens of packs: its name, or the path of a field of a struct, as doc.tokens. NULL: the one
  // whose items were counted for the lengths.
  const char *tokens;
  // The columns with an item for each token, as weights; those called labels, completion_mask and assistant_masks
  // need no mention. Rows are cut in them as in the tokens. May be NULL.
  const char *const *with_columns;
  // How many.
  size_t num_with_columns;
} rowdex_loader_options;

// Where a loader stands.
typedef struct rowdex_loader_info {
  // The epoch that the next batch is of.
  uint64_t epoch;
  // The step that it is of.
  uint64_t step;
  // How many steps that epoch has in all, wherever the run was resumed. Epochs of packs differ.
  uint64_t steps;
  // How many of them are left.
  uint64_t steps_left;
} rowdex_loader_info;

// How prefetched rows are served. All zeros are the defaults.
typedef struct rowdex_prefetched_options {
  // Bytes of decoded rows to hold at most. 0: 1 GiB.
  uint64_t memory;
  // Threads that read ahead, started by the first call that takes prefetched rows. 0: 2. ROWDEX_NONE: none, taking
  // does all work.
  uint64_t threads;
} rowdex_prefetched_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The ROWDEX_ABI_VERSION of the library that is linked, to be compared with that of the header.
uint32_t rowdex_abi_version(void);

// All of an error in one line: place, what went wrong, and what to do. NULL for NULL.
const char *rowdex_error_message(const struct rowdex_error *error);

// Ends the life of any handle, and of a text that a function made for its caller, once. Nothing is done for NULL.
//
// Handles do not depend on each other, nor does what was exported of them. Of a loader and of prefetched rows no other
// thread may have a call under way: close them first.
void rowdex_free(void *handle);

// What is known of a handle, as JSON that the caller frees; for NULL what is known of the library: version.
//
// An index: rows (those served: row ids are 0 up to rows - 1), source_rows (those that the row groups have in their
// files), row_groups, files, columns (at the top level, partition columns among them), size_bytes, fingerprint
// (another one if any row id means another row), root (where the files were when it was built), root_is_relative (to
// the folder of the index), build_info (a text: what built it and with which options, as JSON), and lengths, a list of
// what is recorded: name, of ("items" of a column of lists, "numbers" of a column of integers, or "given"), sum,
// longest, fingerprint.
//
// A dataset: rows; and, unless it is mixed, what it did so far in this process: hits and misses (look-ups that found
// the row group decoded, or not), decodes (of row groups, whole or in part), bytes_decoded, bytes_read (from the
// source, footers included), evictions, held_bytes (of decoded row groups), requests (to a store), bytes_fetched
// (those of failed and repeated requests included), and disk_cache: hits, misses, writes, bytes_written, evictions,
// bytes_evicted, discards (entries that were damaged or of another version), and fault: null, or why nothing more is
// kept there; rows are served all the same.
//
// A set: len, rows (out of how many), repeated (how often rows were listed beyond the first time), unserved (listed
// rows that the index does not serve). Orders: rows (of an epoch), fingerprint, augment_key (of the seed, for
// random numbers of rows: docs/orders.md).
//
// A sampler, of its current epoch: epoch, len (samples of this rank, repeated ones included, wherever the run was
// resumed; of packs pieces), steps, batch_size, rank, world_size, shards (different ones), shard (which of them this
// rank sees), fingerprint (of the orders), ends (the numbers of the datasets of a mixture with stages that end, each
// with the position before which it has served all that it may), samples_left (those from len - samples_left on),
// steps_left.
//
// A loader, since it was started, resumed or set to another epoch: decodes, extractions (times that rows of a row
// group were picked out), rows (put into batches; some may wait to be asked for), held_bytes, peak_bytes, planning_ns,
// decoding_ns, extracting_ns and assembling_ns (added up over its threads), substituted (rows that stand in for others
// that could not be read), drift (steps that the farthest rank is ahead of the last one) and window_bytes (sent to
// ranks and not taken yet), if ranks share a reader; and lost: the row groups that could not be read, whose rows
// others stand in for, each with its number, row_group (in the index, or for a mixed dataset over all), and its error.
//
// Prefetched rows: prefetched, waiting (not taken yet), followed (served from memory), fell_back (served by the
// dataset, because others come next, or because they could not be read when they were needed); and, since reading
// ahead was last started, decodes, held_bytes, peak_bytes.
//
// An error, as it is in other reports, too: status, message, and file, row_group (by its place in the file), column
// (by its dotted path) and hint (what to do about it, which the message has, too), which are null where nothing is
// known.
rowdex_status rowdex_describe(const void *handle, char **report, struct rowdex_error **error);

// The columns of an index, a dataset, or the batches of a loader, as an Arrow struct type that the caller releases: of
// all files, those served, or these with views in the place of strings.
rowdex_status rowdex_schema(const void *handle, struct ArrowSchema *schema, struct rowdex_error **error);

// The rows of a batch, or the batches of a loader to come, as an Arrow stream that the caller releases: rows only,
// without row ids and epochs, and without a mark of repeated rows. Nothing is copied, and either may be freed first.
//
// The stream of a loader and the loader are one: what is taken from either is gone from both, and rowdex_loader_state
// says where the stream is. A run without an end makes a stream without an end.
rowdex_status rowdex_stream(const void *handle, struct ArrowArrayStream *stream, struct rowdex_error **error);

// Rows of a dataset or of prefetched rows in the order asked, as a batch that the caller frees: export it. It says
// that it is step 0 of 1 on rank 0.
//
// Row ids may repeat. Each row group is decoded at most once in a call, several in parallel. A single row takes
// microseconds when its row group is cached, and otherwise reads the pages that hold the row, or the row group. All
// columns served are read, so open the dataset with those that are wanted.
//
// Of prefetched rows a call for exactly those that were prefetched next, any number of them, is served from memory,
// and any other call by the dataset. Rows of a call that failed count as taken: asked for again, they come from the
// dataset.
rowdex_status rowdex_take(const void *handle,
                          const uint64_t *rows,
                          size_t num_rows,
                          struct rowdex_batch **batch,
                          struct rowdex_error **error);

// Resumes a sampler or a loader from a state, which may come from a world of another size and another batch size. What
// a loader read ahead is dropped. Nothing is changed on failure.
rowdex_status rowdex_resume(void *handle, const char *state, struct rowdex_error **error);

// Ends a loader, or prefetched rows, from any thread: one that waits for a batch or for rows gets ROWDEX_STATUS_CLOSED
// within a moment, and so does every later call that asks for some, streams of a loader included. A loader without
// threads finishes the row group at hand first. Nothing is done for NULL and for other handles.
//
// The state and the stats of a loader can still be asked for, and it must still be freed, when no other thread has a
// call under way.
void rowdex_close(const void *handle);

// Opens the index at a path or a URL: maps and checks it, and reads no data file.
//
// `store` says as JSON how the object store is talked to that a URL is in; NULL: by the defaults. All may be left out:
// concurrency: how many requests may be under way at once, 64 by default. deadline: how many seconds a request may
// take with all of its retries, 120 by default. retries: how often a request is sent again after a fault that may
// pass, 10 by default. config: options of the store by the names that their environment variables have, in any case,
// such as {"aws_endpoint_url": "http://localhost:9000"}: they take precedence over the environment, may be secrets,
// and are in no message.
//
// The file must not be changed in place while the index is open; replacing it by rename, as a build does,
// is fine.
rowdex_status rowdex_index_open(const char *path,
                                const char *store,
                                struct rowdex_index **index,
                                struct rowdex_error **error);

// What is known of `len` files from `first` on, as a list in JSON that the caller frees: path (relative to the root,
// with / between its parts), size (in bytes, when it was indexed), first_row_group (over the whole index), first_row,
// rows (those served), and row_groups: how many, or, if `row_groups` is 1, a list of them: first_row, rows,
// source_rows (in the file), decoded_bytes (about how many all rows and columns take).
rowdex_status rowdex_index_files(const struct rowdex_index *index,
                                 uint32_t first,
                                 uint32_t len,
                                 uint32_t row_groups,
                                 char **report,
                                 struct rowdex_error **error);

// Where each of `len` rows is; `locations` has room for `len`. Tens of nanoseconds a row.
rowdex_status rowdex_index_locate(const struct rowdex_index *index,
                                  const uint64_t *rows,
                                  size_t len,
                                  struct rowdex_location *locations,
                                  struct rowdex_error **error);

// Opens the dataset of an index, which may be freed afterwards. Reads no data file and starts no thread.
rowdex_status rowdex_dataset_open(const struct rowdex_index *index,
                                  const struct rowdex_dataset_options *options,
                                  struct rowdex_dataset **dataset,
                                  struct rowdex_error **error);

// Several datasets of the same columns as one: the row ids of a dataset follow those of the ones before. They may be
// freed afterwards.
//
// Each keeps its own cache, threads and options. The indexes of rowdex_order_new number rows in the same way. Rows and
// loaders work as with any dataset; what is about one index or one cache is refused.
rowdex_status rowdex_dataset_mixed(const struct rowdex_dataset *const *datasets,
                                   size_t num_datasets,
                                   struct rowdex_dataset **mixed,
                                   struct rowdex_error **error);

// How many rows there are: row ids are 0 up to len - 1.
uint64_t rowdex_dataset_len(const struct rowdex_dataset *dataset);

// About how many bytes the chosen columns of all rows take when decoded, according to the footers. May parse a few
// footers.
rowdex_status rowdex_dataset_decoded_bytes(const struct rowdex_dataset *dataset,
                                           uint64_t *bytes,
                                           struct rowdex_error **error);

// Does what is described, and reports what came of it: both are JSON. `report` may be NULL; the caller frees it.
// `operands` are what a description refers to, and may be NULL. The description names one kind of work:
//
// {"build": {"files": ["data/"], "output": "train.rdx"}} builds an index from the footers of Parquet files. Its path
// holds what it held, or the whole new index, at any moment. Costs about one read for each file. All but these two may
// be left out: files: files, folders (searched for *.parquet, *.parq and *.pq) and patterns. root: stores paths
// relative to this directory, which must contain all files; the deepest one that does by default. schema: "strict"
// (the same columns and types in every file) or "union" (missing columns are null, types are widened). threads: that
// read footers, one for each available core by default. overwrite: true replaces an existing file. update: true
// updates the index at output, if there is one: its unchanged leading files keep their row ids. footers: false does
// not store footers, so everyone who opens the index reads them again. partitions: false does not turn folders named
// key=value into columns. rename: columns of the files that are served by other names, {"content": "text"}. lengths:
// columns by which it is recorded how long rows are, as "lengths" does; progress is reported once more, then. store:
// as for rowdex_index_open. Progress is reported after each window of files. The report: files, kept_files (of an
// update), read_files, requests, footer_bytes, row_groups, rows, index_bytes, repeated_files (named more than once),
// unlike_files (with other columns than the first one), unlike_example, a text that names one of these and says in
// what it differs, or null, and undecodable_columns, which a newer writer encoded or compressed, so that this version
// serves all others. find: "or_build" looks for an index of the files as they are now, and builds one only if
// there is none; output may then be left out for the cache folder of the user ($ROWDEX_CACHE, $XDG_CACHE_HOME/rowdex
// or ~/.cache/rowdex), and files may be one index, which is taken. Of several processes one builds, and the others
// wait. "only" builds none, and returns ROWDEX_STATUS_NOT_FOUND. The report is then: index (its path), built (the
// report above, or null), and is_rebuilt (whether there was an index of the data as it was before).
//
// {"lengths": {"index": "train.rdx", "columns": ["tokens"]}} records how long the rows are in an index, a file or a
// URL: it holds the index as it was, or with all of these lengths, at any moment. Lengths of the same names are
// replaced, others stay, and so does the fingerprint. An index that is open stays without them; open it again.
// columns: of lists, whose items are counted without decoding a value, or of integers, which say the lengths
// themselves. Null and empty lists have the length 0; an integer must be there, and not be negative. given: lists of
// lengths, by the names to record them by: tables or folders of tables with every row of the index once and a column
// `length`. Such rows are served whole. stream: the name of the lengths that the stream of the operands has, another
// such list. root: where the data is, instead of where the index says. threads, store: as above. Progress is reported
// after each window of row groups. The report is empty.
//
// {"select": {"output": "view.rdx", "where": "lang = 'en'"}} writes a view of index 0: an index of the same files that
// serves only some of the rows. No data is copied, and none is read but for a condition and for a split by a column.
// Its path holds what it held, or the whole view, at any moment. A view without rows is refused. At least one choice
// must be made. Every choice leaves rows out; only union adds rows, to what the others leave. rows: keeps only the
// rows that this file lists, as the list of rowdex_id_set_new. skip: leaves out those that this file lists. kept:
// keeps only the rows of this set; note: what is recorded of them. intersect: keeps only rows that these indexes of
// the same files serve, too; exclude: leaves out the rows that these serve; union: adds the rows that these serve.
// sample: {"fraction": 0.01, "seed": 7} keeps a sample of the rows by a hash: a row stays in it when files are
// appended. split: as for rowdex_id_set_new. where: keeps only rows that meet this condition in SQL. root: where the
// data is that where and split read, instead of where the index says. overwrite, store: as above. Progress is how far
// the condition is: rows decided, rows in all, and 0. The report: rows, base_rows, source_rows, repeated (how often
// lists had rows beyond the first time), unserved (listed rows that the base does not serve), index_bytes.
//
// {"rewrite": {"output": "shuffled", "memory": 4294967296}} writes the rows of the dataset again: row i of the output
// is row order(i) of the dataset, in epoch 0 of the order of the operands. The output is a folder of Parquet files, or
// a prefix of a store (s3, gs or az), which is talked to as the dataset's is, with an index next to them, index.rdx.
// docs/rewriting.md says what is written, and what it takes. The files are the same to the byte with any memory,
// threads and tasks. A call that was stopped (rowdex_stop_when) or has failed leaves no file half written, and another
// one with resume continues. memory: about how many bytes of rows to hold, 1 GiB by default. threads: that decode and
// encode, one for each available core and at most eight by default. files: writes this number of files, of equal
// numbers of rows or one row more. Or file_bytes: about how large a file is, 512 MiB by default. row_group_rows: the
// last row group of a file may have fewer; by default such that it takes 32 MiB in memory, and up to 64 MiB if it
// would take less than 4 MiB in the file. page_bytes: of values, after which a page ends; by default 128 KiB, and 1
// MiB where a value takes 4 KiB or more. compression: "none", "snappy", "lz4", "zstd" or "zstd:LEVEL"; by default for
// each column what makes a sample smallest. origin: adds a column of this name with the row ids of the dataset. spill:
// spills rows to a folder in this one, which is local; by default in the output, if that is local. step: one step of
// the work, where several machines share it: all tasks of "spill", then all of "write", then "index"; by default all
// of it. task: [2, 8] is the task with number 2, from 0, of 8 that share the step. resume: true resumes from what an
// earlier call left in the output. overwrite: true replaces what an earlier call wrote there. Progress is rows that
// are done and rows in all, both of two passes together, and bytes that were spilled and written so far. The report:
// rows, files, kept_files (finished by a call that this one resumes), bytes_written and bytes_spilled (by this call),
// and index, which is null for a step that does not write it.
//
// {"verify": {"check": "footer"}} checks the index of the dataset, every byte of it, then every data file at this
// level, and reports all bad files at once: "off" looks at the index alone, "stat" costs a stat for each file,
// "footer" a read for each file, and "deep" decodes the chosen columns of every row group. Without a dataset index 0
// alone is checked. The report: files (that were looked at), rows (that were decoded; 0 below "deep"), and problems:
// what is wrong with bad files, in their order, as rowdex_describe reports errors.
//
// {"digest": {}} is the digest of the rows of the dataset over the columns that it serves, in any order of the rows;
// docs/digests.md specifies it. With `other` among the operands the rows of both are compared, over the columns that
// both serve; with an order, too, of which epoch is the epoch: row i of the other one is row order(i) of the dataset.
// Reads and decodes all rows once, on the threads of each dataset. Progress is rows that were read, rows to read, and
// 0. The report: rows, digest (32 hexadecimal digits), other_rows, other_digest, same_rows (whether every row of the
//    dataset is once in the other one and nothing else is; null where that was not compared, because the order leaves
//    rows out, or repeats some), in_order, and difference: null, or what differs, as rowdex_describe reports errors:
//    with an order, with the file and row group of rows that differ.
//
// {"launch": {}} says which rank this process is, as torchrun, Open MPI, PMI or Slurm put it into its environment:
// rank (below world_size), world_size, local_rank and local_world_size (of this machine; null if the launcher does not
// say), and launcher. It fails if no launcher is found, if a variable is missing or no number, or if launchers
// disagree; the error names the variables. The environment must not be changed by another thread meanwhile.
rowdex_status rowdex_run(const char *description,
                         const struct rowdex_operands *operands,
                         rowdex_progress progress,
                         void *progress_userdata,
                         char **report,
                         struct rowdex_error **error);

// A set of rows as it is described.
//
// The description is JSON, {"where": "lang = 'en'"}. The rows are those of one of these: row_ids: an array of row ids,
// in any order; repeats count once. ranges: an array of starts and ends of ranges, in turn, which may come in any
// order, overlap and be empty; the end is not in the range. list: a file of the rows of index 0: Parquet (.parquet)
// and Arrow (.arrow) have a column row_id, or the columns file and row_in_file; any other file is text with a row id
// on each line. stream: true takes the stream of the operands, with the columns of a list in Parquet: what any engine
// that speaks Arrow hands over, read a batch at a time. view: the rows of index 0 that this index, a view of the same
// files, serves, too. where: the rows of the dataset that meet this condition in SQL. Its columns are read and decoded
// once, where the footers do not decide; a library that was built without the feature `filter` refuses. split:
// {"side": "train", "validation_fraction": 0.1, "seed": 0} is one side of a split by a hash, "train" or "validation".
// A row keeps its side when files are appended, and the sizes are as by a coin toss for each row. With "by" it is by
// the values of this column of the dataset, so that rows with equal values are on one side: integers, dates, booleans,
// strings and binary, and dictionaries of them; a null is refused. The column is decoded in every row group that has
// one of the rows, on the dataset's threads and past its cache. set: another set.
//
// Then only those of the set `of` are left, those of the set `union` are added, and complement, if it is true, takes
// all others. All sets are out of equally many rows. rows: out of how many the set is, for row_ids, for ranges, and
// for a split by row id.
rowdex_status rowdex_id_set_new(const char *description,
                                const struct rowdex_operands *operands,
                                struct rowdex_id_set **set,
                                struct rowdex_error **error);

// Whether a row is in the set.
bool rowdex_id_set_contains(const struct rowdex_id_set *set, uint64_t row);

// The row ids at places `first`, `first + 1`, … of the set in ascending order, all that there are, but at most `len`;
// `filled` is how many.
rowdex_status rowdex_id_set_fill(const struct rowdex_id_set *set,
                                 uint64_t first,
                                 uint64_t *ids,
                                 size_t len,
                                 size_t *filled,
                                 struct rowdex_error **error);

// What the values of a column say of rows, as an Arrow array that the caller releases, as its type, which may be NULL.
//
// The description is JSON, {"labels": {"column": "lang"}}. The column is one of the dataset of the operands, and need
// not be among those served. It is decoded in every row group that has one of the rows, on the dataset's threads and
// past its cache. of: the set of the rows that are asked for; all by default. It is one of these:
//
// labels: the classes of the rows: equal values are one class. 4 bytes a row. A dictionary, whose codes (32 bits, in
// the second buffer) are what the labels of an order are, and whose values are the classes as large texts, ascending,
// bytes in hexadecimal. Integers, dates, booleans, strings and binary, and dictionaries of them; a null is refused.
//
// counts: how many rows each class has, ascending by value, and last how many have no value, if any. Memory is in
// proportion to the classes. A struct array with a child `value` (booleans, 64-bit integers, also for the days of a
// date since 1970, large texts or large binary; null for the rows without one) and a child `rows` (unsigned 64-bit
// integers).
//
// weights: numbers that are finite and not negative, as the weights of an order take them: doubles, in the second
// buffer. Without a dataset, those that a list has for the rows of index 0, as an engine worked them out: list, a file
// or a folder of them, or the stream of the operands, as for rowdex_id_set_new. Every row that is asked for needs one
// weight; rows that the index does not serve are passed over.
//
// lengths: those of index 0 that are recorded by the name of the column: unsigned 64-bit integers, in the second
// buffer.
rowdex_status rowdex_column(const char *description,
                            const struct rowdex_operands *operands,
                            struct ArrowArray *array,
                            struct ArrowSchema *schema,
                            struct rowdex_error **error);

// Orders as they are described, over the rows of the index in `operands`, or of several indexes one after the other,
// as in rowdex_dataset_mixed. Without an index the description says how many rows there are.
//
// The description is JSON, {"order": "blocks(8)", "seed": 42}, and what is left out has its default. The order is by
// one of these: order: a name, "global" (the default), "sequential", "torch" or "blocks(8)". row_ids: an array of row
// ids, in this order in every epoch; rows may repeat and be left out. file: a file of row ids: little-endian 64-bit
// integers and nothing else. It is mapped, so that all processes of a machine share it, and read once to check it; it
// must not be changed while the orders are used. weights: an array of weights, for each row or for each row that is
// kept, finite and not negative, by which rows are drawn; 16 bytes a row for all epochs. scored: the number of an
// array of scores, doubles as weights are, by which rows are sorted, the lowest first; the number of sweeps, each of
// which has every so many-th row; and how many neighbours are shuffled. labels: an array of the classes of the rows,
// or of the rows that are kept, which come equally often or by proportions; 8 bytes a row for all epochs. parts:
// several datasets by proportions: a description for each, without rows; dataset `i`, from 0 on, has the seed of the
// mixture plus `i + 1` plus its own. With stages, their weights change in the course of the run, and their seeds come
// from their names: {"sources": names of the datasets, "stages": [[position, {name: weight}], ...], "ramp": "step" or
// "linear", "repetitions": {name: how often all rows may be served}, "on_exhausted": "repeat", "renormalise" or
// "stop"}; the last three may be left out. inner: another description, without rows, whose seed is added; under kept
// it takes the rows that are kept for one row group.
//
// The steps that are asked for are taken in this sequence; another sequence takes one description around another.
// kept: a set; only its rows are served. size: how many positions an epoch has. Weights, classes and mixtures draw
// this number (by default the number of rows; without replacement, that of the rows with a weight above 0); of other
// orders, a pass over the rows continues where the epoch before ended. paired: true serves every epoch once more,
// backwards: epoch 2e + 1 is epoch 2e from its end on. shards: assigns one consecutive piece to each of so many
// shards. rotated: true begins elsewhere each epoch.
//
// In addition to these: rows, or row_groups (how many rows each has), where there is no index. seed: the same on all
// ranks. proportions: how often each class or dataset comes, in relation to the others. permutation: true refuses a
// list or file that does not have every row exactly once. replacement: false draws no row twice in an epoch. What the
// order cannot honour is refused.
rowdex_status rowdex_order_new(const char *description,
                               const struct rowdex_operands *operands,
                               struct rowdex_order **orders,
                               struct rowdex_error **error);

// The sampler of one rank, at the beginning of epoch 0.
rowdex_status rowdex_sampler_new(const struct rowdex_order *orders,
                                 const struct rowdex_sampler_options *options,
                                 struct rowdex_sampler **sampler,
                                 struct rowdex_error **error);

// Makes `epoch` the current one. An epoch that was resumed stays resumed if it is the current one already.
rowdex_status rowdex_sampler_set_epoch(struct rowdex_sampler *sampler, uint64_t epoch, struct rowdex_error **error);

// This rank's samples `first`, `first + 1`, … of an epoch, `len` of them: row ids and, unless `pads` is NULL, 1 for
// each repeated row and 0 for each other.
rowdex_status rowdex_sampler_fill(const struct rowdex_sampler *sampler,
                                  uint64_t epoch,
                                  uint64_t first,
                                  size_t len,
                                  uint64_t *rows,
                                  uint8_t *pads,
                                  struct rowdex_error **error);

// This rank's batch at a step of an epoch: row ids, `len` of them, of which the last `pads` are repeated.
//
// `rows` has room for `capacity` ids, at least the number that the batch has. Of rows the batch size is always enough.
// A batch of packs has a row id for each piece: with `rows` NULL and a capacity of 0, only `len` and `pads` are
// written.
//
// Which tokens of the rows are served, and in which packs, is written to `pieces` unless that is NULL.
rowdex_status rowdex_sampler_batch(const struct rowdex_sampler *sampler,
                                   uint64_t epoch,
                                   uint64_t step,
                                   uint64_t *rows,
                                   size_t capacity,
                                   size_t *len,
                                   size_t *pads,
                                   const struct rowdex_pieces *pieces,
                                   struct rowdex_error **error);

// Where the run stands once every rank is done with all steps of an epoch before this one, the same on all of them, as
// text of one line with a NUL. For the first step that is left: where the epoch begins. For the number of steps: where
// the next epoch begins.
rowdex_status rowdex_sampler_state(const struct rowdex_sampler *sampler,
                                   uint64_t epoch,
                                   uint64_t step,
                                   char *buffer,
                                   size_t capacity,
                                   struct rowdex_error **error);

// The batches of one of `workers` workers of a rank, those whose step is `worker` modulo `workers`, as a separate
// sampler: its step `i` is step `worker + i * workers` of the rank's. A loader of it plans for just what that worker
// serves.
//
// It begins with the first step of the current epoch. Steps in which the rank has no rows are left out. It reports the
// rank, as a rowdex_batch_info of its batches does.
rowdex_status rowdex_sampler_worker(const struct rowdex_sampler *sampler,
                                    uint64_t worker,
                                    uint64_t workers,
                                    struct rowdex_sampler **own,
                                    struct rowdex_error **error);

// Writes another struct for the same Arrow schema, which the caller releases, too.
rowdex_status rowdex_schema_copy(const struct ArrowSchema *schema,
                                 struct ArrowSchema *copy,
                                 struct rowdex_error **error);

// Calls the release function of an Arrow schema, unless it was released or moved: for languages in which a destructor
// is an address. The struct itself stays the caller's.
void rowdex_schema_release(struct ArrowSchema *schema);

// As rowdex_schema_release, for an Arrow array.
void rowdex_array_release(struct ArrowArray *array);

// What is known of a batch.
rowdex_status rowdex_batch_get_info(const struct rowdex_batch *batch,
                                    struct rowdex_batch_info *info,
                                    struct rowdex_error **error);

// The rows of a batch, as an Arrow struct array that the caller releases, and its type (may be NULL if it is not
// wanted).
//
// Nothing is copied: array and batch share the buffers, and either may go first.
rowdex_status rowdex_batch_export(const struct rowdex_batch *batch,
                                  struct ArrowArray *array,
                                  struct ArrowSchema *schema,
                                  struct rowdex_error **error);

// The tokens of a batch of packs as the arrays that a model takes: an Arrow struct array that the caller releases, and
// its type (may be NULL if it is not wanted). The struct has one row, and its children are lists, each of which is one
// of the arrays.
//
// `tokens`, under the name of the column: the tokens of all packs, one after the other. `cu_seqlens` (int32): where
// each piece begins, and where the last one ends; `pack_offsets` (int32): the same of packs, counted in tokens, too;
// `max_seqlen` (int32, one number): the longest piece; `lengths` (int32): the tokens of each piece, without those that
// fill it up. For each token `position_ids` (int64), which restart at each piece; `segment_ids` (int32), which number
// the pieces of a pack from 1, and are 0 where nothing but filling is; and `labels` (int64): the label of the token
// that follows in the row, or -100. That is the token itself, unless a column has labels. For each piece `row_ids` and
// `offsets` (int64): which row it is of, and from which token on. Other columns with an item for each token come under
// their names: for each token the item of the one that follows in the row, or 0.
//
// Nothing is copied of tokens that nothing is added to.
rowdex_status rowdex_batch_sequences(const struct rowdex_batch *batch,
                                     const struct rowdex_sequence_options *options,
                                     struct ArrowArray *array,
                                     struct ArrowSchema *schema,
                                     struct rowdex_error **error);

// A loader at the state of the sampler. Dataset and sampler may be freed or changed afterwards. Reads nothing and
// starts no thread.
rowdex_status rowdex_loader_new(const struct rowdex_dataset *dataset,
                                const struct rowdex_sampler *sampler,
                                const struct rowdex_loader_options *options,
                                struct rowdex_loader **loader,
                                struct rowdex_error **error);

// What a loader with these arguments will do, from the index alone. The report is JSON that the caller frees. It takes
// a fraction of a second, with packs as long as planning an epoch and packing some of its blocks.
//
// first_passes, first_decodes, first_bytes_read and first_requests are of the first epoch, in which no row is held at
// the beginning, and passes, decodes, bytes_read and requests of every later one: decodes of each row group on
// average, row groups decoded, bytes read, and requests to a store. first_batch_decodes: row groups decoded before the
// first batch is there. peak_bytes: the most bytes held; bookkeeping_bytes: how many of them are not rows. units: what
// row groups are read, decoded and held in: one for each, or for several small ones of a file. least_memory: the least
// that a loader takes. packs: null where rows are served, or what an epoch of packs has over all ranks: steps, packs
// (those that come twice and opened ones included), opened (so that steps are equal), pieces (each counted once),
// pieces_a_pack, fill (the part of all places that has tokens), tokens, tokens_truncated, tokens_dropped,
// tokens_left_out and tokens_repeated (by the tail), rows_split, rows_truncated, rows_dropped, rows_empty,
// cost_imbalance (what the rank with the most work has at a step, as a multiple of the mean, on average over
// steps_looked_at), seconds_to_plan.
rowdex_status rowdex_loader_estimate(const struct rowdex_dataset *dataset,
                                     const struct rowdex_sampler *sampler,
                                     const struct rowdex_loader_options *options,
                                     char **report,
                                     struct rowdex_error **error);

// Another loader like a given one, at the place where that stands, which may be closed, or inherited by a forked
// child: it continues with the batch after the last one that was handed out.
rowdex_status rowdex_loader_reopen(const struct rowdex_loader *loader,
                                   struct rowdex_loader **reopened,
                                   struct rowdex_error **error);

// The next batch, which the caller frees; `*batch` is NULL at the end of the run. After an error the same error comes
// each time, until the loader is resumed; but not after a call that has waited for max_wait, or was stopped.
rowdex_status rowdex_loader_next(struct rowdex_loader *loader,
                                 struct rowdex_batch **batch,
                                 struct rowdex_error **error);

// The batch of this step, which must be the next, without handing it out; `*batch` is NULL at the end of the epoch.
// The caller frees it.
//
// Or the batch of the step after the one that was looked at last, to work on several at once: each is handed out in
// its turn, and until then the loader stands before it. A loader with more_ranks shows its next batch alone.
//
// Or that batch and the ones that follow it in the epoch, as one, if they are ready, lie one after the other in
// memory, and have no more than `max_rows` rows: to convert many rows in one call. An error comes at the step that it
// belongs to. A loader that was set to another epoch meanwhile, or is closed, returns ROWDEX_STATUS_CLOSED.
rowdex_status rowdex_loader_peek(struct rowdex_loader *loader,
                                 uint64_t epoch,
                                 uint64_t step,
                                 size_t max_rows,
                                 struct rowdex_batch **batch,
                                 struct rowdex_error **error);

// Hands out the batch of this step, which must be the next, to a caller that has it from rowdex_loader_peek: the state
// is then the one after it.
rowdex_status rowdex_loader_advance(struct rowdex_loader *loader,
                                    uint64_t epoch,
                                    uint64_t step,
                                    struct rowdex_error **error);

// Where a loader stands.
rowdex_status rowdex_loader_get_info(const struct rowdex_loader *loader,
                                     struct rowdex_loader_info *info,
                                     struct rowdex_error **error);

// Where the run stands after the last step of which all batches were handed out, as text of one line with a NUL.
rowdex_status rowdex_loader_state(const struct rowdex_loader *loader,
                                  char *buffer,
                                  size_t capacity,
                                  struct rowdex_error **error);

// Continues with this step of an epoch. What was read ahead is dropped, unless it comes next anyway. After an error,
// that error.
rowdex_status rowdex_loader_seek(struct rowdex_loader *loader,
                                 uint64_t epoch,
                                 uint64_t step,
                                 struct rowdex_error **error);

// Begins an epoch, or continues one that was resumed, and says which one that is and where it begins: `*epoch`, or for
// NULL the next one that was not begun. `info` may be NULL.
//
// If some of the current epoch's batches were served and others not, these are dropped, and so is what was read ahead,
// unless it comes next anyway. The epoch's last batch is the one with step + 1 == steps.
rowdex_status rowdex_loader_begin_epoch(struct rowdex_loader *loader,
                                        const uint64_t *epoch,
                                        struct rowdex_loader_info *info,
                                        struct rowdex_error **error);

// Reads ahead for row ids that will be asked for in this order: one epoch of a sampler, or as much as is known. They
// are copied, and may be none yet.
//
// They are then served at about the speed of a scan within the memory: each row group is decoded once per horizon,
// instead of once per call. The dataset may be freed afterwards. Reads nothing and starts no thread.
rowdex_status rowdex_dataset_prefetch(const struct rowdex_dataset *dataset,
                                      const uint64_t *rows,
                                      size_t num_rows,
                                      const struct rowdex_prefetched_options *options,
                                      struct rowdex_prefetched **prefetched,
                                      struct rowdex_error **error);

// Says what will be asked for after all that was prefetched before. Row ids may repeat, and are copied: 8 bytes each
// until they are passed.
//
// If one is not in the dataset, none of them is prefetched. Prefetch early: fewer rows than the horizon
// mean more decodes than need be.
rowdex_status rowdex_prefetched_prefetch(struct rowdex_prefetched *prefetched,
                                         const uint64_t *rows,
                                         size_t num_rows,
                                         struct rowdex_error **error);

// Forgets what was prefetched and not taken, as when an epoch is abandoned.
rowdex_status rowdex_prefetched_clear(struct rowdex_prefetched *prefetched, struct rowdex_error **error);

// Lets calls of this thread be ended by another: those that wait for an object store or for a batch of a loader, or
// that put a file in its place, end with ROWDEX_STATUS_CLOSED soon after `*flag` is no longer 0. They leave no file
// half written, and report no progress any more. A loader whose call was ended so continues with the same batch at the
// next call.
//
// Any thread may write to the flag while the calls last, as an atomic number of 4 bytes. It must be there until this
// thread has ended or has called this again. NULL: calls are not ended.
rowdex_status rowdex_stop_when(const uint32_t *flag, struct rowdex_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ROWDEX_H */
