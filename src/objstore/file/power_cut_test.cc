// What a Put to file:// promises, with a disk that keeps only what was flushed.

#include <gtest/gtest.h>

#include <map>

#include "base/testing/matchers.h"
#include "objstore/file/file_store.h"
#include "os/fs/testing/power_cut.h"
#include "os/fs/testing/temp_dir.h"

namespace torpor::objstore {
namespace {

std::string ReadObject(FileStore& store, const std::string& key) {
  std::string out;
  auto got = store.Get(key, {}, [&](std::string_view piece) {
    out += piece;
    return OkStatus();
  });
  return got.ok() ? out : "(none)";
}

// A generation as the mover writes it: data, then the manifest that commits it.
Status SaveGeneration(FileStore& store, int number) {
  const std::string below = fmt::format("demo/a/g{}/", number);
  ASSIGN_OR_RETURN(auto upload, store.Begin(below + "memory.tsz", kPartBytesMin));
  RETURN_IF_ERROR(upload->PutPart(1, fmt::format("memory of {}", number)));
  RETURN_IF_ERROR(upload->Complete());
  return store.Put(below + "manifest.json", fmt::format("manifest of {}", number));
}

void ExpectWhole(const os::PowerCut& cut, int number, bool acknowledged) {
  os::TempDir found;
  cut.After(found.path());
  auto store = FileStore::Open(found.path());
  ASSERT_OK(store);
  const std::string below = fmt::format("demo/a/g{}/", number);
  const std::string manifest = ReadObject(**store, below + "manifest.json");
  if (manifest == "(none)") {  // not committed: nobody reads the rest
    EXPECT_FALSE(acknowledged);
    return;
  }
  EXPECT_EQ(manifest, fmt::format("manifest of {}", number));
  EXPECT_EQ(ReadObject(**store, below + "memory.tsz"), fmt::format("memory of {}", number));
}

// For every flush of a save in turn: it fails, the save is tried again as the mover does, and the
// power goes. Also a save into directories that another one, which failed, has made.
TEST(FileStorePowerCutTest, A10_FsyncErrorIsNeverRetriedAsSuccess) {
  int total = 1;
  for (int nth = 1; nth <= total; ++nth) {
    SCOPED_TRACE(nth);
    os::TempDir temp;
    auto store = FileStore::Open(temp.path());
    ASSERT_OK(store);
    os::PowerCut cut(temp.path());
    cut.FailFlush(nth);
    bool first = SaveGeneration(**store, 4).ok();
    ExpectWhole(cut, 4, first);
    if (first) {
      EXPECT_LT(cut.flushes(), nth);
      break;
    }
    total = nth + 1;
    ASSERT_OK(SaveGeneration(**store, 5));
    ExpectWhole(cut, 5, true);
    ASSERT_OK(SaveGeneration(**store, 4));
    ExpectWhole(cut, 4, true);
    ExpectWhole(cut, 5, true);
    ASSERT_LT(nth, 100);
  }
  EXPECT_GE(total, 6);  // two objects, each with its data and the directories above it
}

}  // namespace
}  // namespace torpor::objstore
