/* The header is C++, too: statuses are an enum, handles fit smart pointers. */
#include <memory>
#include <string>
#include <vector>

#include "check.h"

namespace {

struct Free {
  void operator()(rowdex_index *index) const { rowdex_free(index); }
  void operator()(rowdex_dataset *dataset) const { rowdex_free(dataset); }
  void operator()(rowdex_error *error) const { rowdex_free(error); }
};

template <typename T>
using Handle = std::unique_ptr<T, Free>;

Handle<rowdex_index> open(const std::string &path) {
  rowdex_index *index = nullptr;
  rowdex_error *error = nullptr;
  if (rowdex_index_open(path.c_str(), NULL, &index, &error) != ROWDEX_STATUS_OK) {
    Handle<rowdex_error> owned(error);
    throw std::string(rowdex_error_message(owned.get()));
  }
  return Handle<rowdex_index>(index);
}

}  // namespace

int main(int argc, char **argv) {
  CHECK(argc == 2);
  const std::string folder = argv[1];
  Handle<rowdex_index> index = open(folder + "/train.rdx");
  CHECK(number_of(index.get(), "rows") == DEMO_ROWS);

  std::string message;
  try {
    open(folder + "/none.rdx");
  } catch (const std::string &thrown) {
    message = thrown;
  }
  CHECK(message.find("none.rdx") != std::string::npos);

  Handle<rowdex_dataset> dataset(open_dataset(argv[1], "id"));
  const std::vector<uint64_t> rows = {3, 199999};
  std::vector<int64_t> ids(rows.size());
  OK(take_ids(dataset.get(), rows.data(), rows.size(), ids.data(), &error));
  CHECK(ids[0] == 3 && ids[1] == 199999);
  static_assert(sizeof(rowdex_status) == 4, "the enum is as wide as in C");
  return 0;
}
