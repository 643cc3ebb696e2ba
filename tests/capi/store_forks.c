/* A forked child reads on from a store that its parent has read from, with connections and threads of its own, and does
 * not hang; with a disk cache before the store, parent and child read on at the same time, and keep for each other what
 * they read. */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <ctype.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* Longer than anything here takes: whoever still runs then hangs, and is ended. */
enum { PATIENCE = 120 };

static void write_all(int to, const char *bytes, size_t count) {
  while (count > 0) {
    ssize_t written = write(to, bytes, count);
    if (written <= 0) _exit(0); /* the client has left */
    bytes += written;
    count -= (size_t)written;
  }
}

/* Answers the requests of one connection: data files of the folder by their last name, whole or a range. */
static void answer(int client, const char *folder) {
  for (;;) {
    char head[8192];
    size_t length = 0;
    do {
      ssize_t count = read(client, head + length, sizeof head - 1 - length);
      if (count <= 0) return;
      length += (size_t)count;
      head[length] = 0;
    } while (strstr(head, "\r\n\r\n") == NULL && length < sizeof head - 1);
    char method[8], target[4096];
    CHECK(sscanf(head, "%7s %4095s", method, target) == 2);
    for (char *at = head; *at != 0; at++) *at = (char)tolower((unsigned char)*at);
    char name[8192];
    snprintf(name, sizeof name, "%s/data%s", folder, strrchr(target, '/'));
    int file = open(name, O_RDONLY);
    struct stat stat;
    CHECK(file >= 0 && fstat(file, &stat) == 0);
    unsigned long long first = 0, last = (unsigned long long)stat.st_size - 1;
    const char *range = strstr(head, "\r\nrange: bytes=");
    int partial = range != NULL && sscanf(range, "\r\nrange: bytes=%llu-%llu", &first, &last) == 2;
    char reply[512];
    int count = snprintf(reply, sizeof reply,
                         "HTTP/1.1 %s\r\ncontent-length: %llu\r\ncontent-range: bytes %llu-%llu/%lld\r\n"
                         "etag: \"1\"\r\n\r\n",
                         partial ? "206 Partial Content" : "200 OK", last + 1 - first, first, last,
                         (long long)stat.st_size);
    write_all(client, reply, (size_t)count);
    CHECK(lseek(file, (off_t)first, SEEK_SET) >= 0);
    for (unsigned long long left = strcmp(method, "GET") == 0 ? last + 1 - first : 0; left > 0;) {
      char bytes[65536];
      ssize_t got = read(file, bytes, left < sizeof bytes ? (size_t)left : sizeof bytes);
      CHECK(got > 0);
      write_all(client, bytes, (size_t)got);
      left -= (unsigned long long)got;
    }
    close(file);
  }
}

/* A server of the folder, in a process of its own, a process for each connection. */
static pid_t serve(const char *folder, int *port) {
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  CHECK(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 64) == 0);
  CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
  *port = ntohs(address.sin_port);
  pid_t server = fork();
  CHECK(server >= 0);
  if (server == 0) {
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    alarm(4 * PATIENCE);
    for (;;) {
      int client = accept(listener, NULL, NULL);
      if (client < 0) continue;
      if (fork() == 0) {
        close(listener);
        alarm(4 * PATIENCE);
        answer(client, folder);
        _exit(0);
      }
      close(client);
    }
  }
  close(listener);
  return server;
}

/* Fifty rows from anywhere, none of which is kept: each time, they are fetched. */
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

enum { BATCH = 1000 };

/* The rest of an epoch: all ids are those of the row ids. */
static void read_on(rowdex_loader *loader) {
  for (;;) {
    rowdex_batch *batch = NULL;
    OK(rowdex_loader_next(loader, &batch, &error));
    if (batch == NULL) return;
    rowdex_batch_info info = {0};
    OK(rowdex_batch_get_info(batch, &info, &error));
    int64_t ids[BATCH];
    CHECK(info.num_rows <= BATCH);
    ids_of(batch, ids);
    for (uint64_t i = 0; i < info.num_rows; i++) CHECK(ids[i] == (int64_t)info.row_ids[i]);
    rowdex_free(batch);
  }
}

/* Parent and children read on from an inherited dataset with a disk cache, of which the parent was reading row groups
 * ahead when they were forked. */
static void share_a_disk_cache(const char *folder, const char *root) {
  char path[4096], tidy[4200];
  snprintf(path, sizeof path, "%s/disk_cache-XXXXXX", folder);
  CHECK(mkdtemp(path) != NULL);
  rowdex_index *index = open_index(folder);
  const char *id = "id";
  rowdex_disk_cache disk_cache = {.folder = path, .bytes = 1 << 30};
  rowdex_dataset_options options = {.columns = &id, .num_columns = 1, .root = root,
                                    .cache_bytes = 1, .threads = 4, .disk_cache = &disk_cache};
  rowdex_dataset *dataset = NULL;
  OK(rowdex_dataset_open(index, &options, &dataset, &error));
  rowdex_free(index);
  rowdex_sampler *sampler = new_sampler(dataset, "global", 0, 1, BATCH);
  rowdex_loader_options sizes = {.memory = DEMO_ROWS * 8 / 4, .epochs = 1};
  rowdex_loader *loader = NULL;
  OK(rowdex_loader_new(dataset, sampler, &sizes, &loader, &error));
  take_a_few(dataset);
  pull(loader);
  pid_t children[4];
  for (int child = 0; child < 4; child++) {
    children[child] = fork();
    CHECK(children[child] >= 0);
    if (children[child] == 0) {
      alarm(PATIENCE);
      take_a_few(dataset);
      loader = opened_again(loader);
      read_on(loader);
      take_a_few(dataset);
      char *known = describe(dataset);
      const char *kept = strstr(known, "\"disk_cache\":");
      CHECK(kept != NULL && reported(kept, "hits") > 0);
      rowdex_free(known);
      rowdex_free(loader);
      rowdex_free(sampler);
      rowdex_free(dataset);
      _exit(0);
    }
  }
  read_on(loader);
  take_a_few(dataset);
  for (int child = 0; child < 4; child++) {
    int status = 0;
    CHECK(waitpid(children[child], &status, 0) == children[child]);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  rowdex_free(loader);
  rowdex_free(sampler);
  rowdex_free(dataset);
  snprintf(tidy, sizeof tidy, "rm -r '%s'", path);
  CHECK(system(tidy) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  /* Before there is any thread. */
  int port = 0;
  pid_t server = serve(argv[1], &port);
  char root[64];
  snprintf(root, sizeof root, "http://127.0.0.1:%d", port);
  alarm(4 * PATIENCE);
  for (int used = 0; used < 2; used++) {
    rowdex_index *index = open_index(argv[1]);
    const char *id = "id";
    rowdex_dataset_options options = {.columns = &id, .num_columns = 1, .root = root, .cache_bytes = 1, .threads = 4};
    rowdex_dataset *dataset = NULL;
    OK(rowdex_dataset_open(index, &options, &dataset, &error));
    rowdex_free(index);
    rowdex_sampler *sampler = new_sampler(dataset, "global", 0, 1, 100);
    rowdex_loader *loader = NULL;
    OK(rowdex_loader_new(dataset, sampler, NULL, &loader, &error));
    uint64_t ids[2];
    OK(rowdex_sampler_fill(sampler, 0, 100, 1, &ids[1], NULL, &error));
    if (used) {
      take_a_few(dataset);
      pull(loader);
    }
    /* Several, at moments that differ in what the parent's threads are doing. */
    for (int turn = 0; turn < 8; turn++) {
      pid_t child = fork();
      CHECK(child >= 0);
      if (child == 0) {
        alarm(PATIENCE);
        take_a_few(dataset);
        loader = opened_again(loader);
        if (!used) pull(loader);
        CHECK(pull(loader) == ids[1]);
        rowdex_free(loader);
        rowdex_free(sampler);
        rowdex_free(dataset);
        _exit(0);
      }
      int status = 0;
      CHECK(waitpid(child, &status, 0) == child);
      CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
      take_a_few(dataset);
      if (!used) break;
    }
    if (!used) pull(loader);
    CHECK(pull(loader) == ids[1]);
    rowdex_free(loader);
    rowdex_free(sampler);
    rowdex_free(dataset);
  }
  for (int turn = 0; turn < 2; turn++) share_a_disk_cache(argv[1], root);
  kill(server, SIGKILL);
  waitpid(server, NULL, 0);
  return 0;
}
