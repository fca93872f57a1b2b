#include "objstore/file/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/testing/matchers.h"
#include "objstore/contract/store_contract.h"

namespace torpor::objstore {
namespace {

namespace fs = std::filesystem;

// In memory: these tests are about names and order, and a flush to a disk takes milliseconds.
struct TempRoot {
  TempRoot() {
    std::string pattern = "/dev/shm/torpor-filestore-XXXXXX";
    path = mkdtemp(pattern.data());
  }
  ~TempRoot() { fs::remove_all(path); }
  std::string path;
};

StoreUnderTest Make() {
  auto root = std::make_shared<TempRoot>();
  auto store = FileStore::Open(root->path);
  EXPECT_OK(store);
  return {root, std::move(*store)};
}

INSTANTIATE_TEST_SUITE_P(File, StoreContract, testing::Values(&Make));

class FileStoreTest : public testing::Test {
 protected:
  FileStoreTest() { store_ = std::move(FileStore::Open(root_.path)).value(); }
  size_t TempFiles() {
    return static_cast<size_t>(std::distance(fs::directory_iterator(root_.path + "/.tmp"), {}));
  }

  TempRoot root_;
  std::unique_ptr<FileStore> store_;
};

TEST_F(FileStoreTest, NeverFollowsALink) {
  TempRoot outside;
  std::ofstream(outside.path + "/secret") << "secret";
  fs::create_symlink(outside.path, root_.path + "/dir");
  fs::create_symlink(outside.path + "/secret", root_.path + "/link");
  auto ignore = [](std::string_view) { return OkStatus(); };
  EXPECT_THAT(store_->Get("link", {}, ignore), HasReason(Code::kPermissionDenied, "STORE_DENIED"));
  EXPECT_THAT(store_->Get("dir/secret", {}, ignore),
              HasReason(Code::kPermissionDenied, "STORE_DENIED"));
  EXPECT_FALSE(store_->Put("dir/new", "x").ok());
  EXPECT_FALSE(store_->Delete("dir/secret").ok());
  EXPECT_TRUE(fs::exists(outside.path + "/secret"));
  EXPECT_FALSE(fs::exists(outside.path + "/new"));
  // A link that waits where an object goes is replaced, not followed.
  ASSERT_OK(store_->Put("link", "mine"));
  std::ifstream in(outside.path + "/secret");
  std::string text;
  in >> text;
  EXPECT_EQ(text, "secret");
  ASSERT_OK_AND_ASSIGN(auto all, ListAll(*store_, "", 10));
  EXPECT_EQ(all.size(), 1u);
}

TEST_F(FileStoreTest, SpecialFilesAreRefusedAtOnce) {
  ASSERT_EQ(mkfifo((root_.path + "/fifo").c_str(), 0600), 0);
  EXPECT_THAT(store_->Head("fifo"), HasReason(Code::kPermissionDenied, "STORE_DENIED"));
}

TEST_F(FileStoreTest, AbortedAndFailedWritesLeaveNothing) {
  {
    ASSERT_OK_AND_ASSIGN(auto upload, store_->Begin("x", kPartBytesMin));
    ASSERT_OK(upload->PutPart(1, "abc"));
    EXPECT_EQ(TempFiles(), 1u);
  }
  EXPECT_EQ(TempFiles(), 0u);
  ASSERT_OK(store_->Put("k", "1"));
  EXPECT_FALSE(store_->Put("k", "2", {.if_absent = true}).ok());
  EXPECT_EQ(TempFiles(), 0u);
  ASSERT_OK(store_->Delete("k"));
}

TEST_F(FileStoreTest, DeleteRemovesEmptyDirectories) {
  ASSERT_OK(store_->Put("a/b/c", "1"));
  ASSERT_OK(store_->Put("a/d", "1"));
  ASSERT_OK(store_->Delete("a/b/c"));
  EXPECT_FALSE(fs::exists(root_.path + "/a/b"));
  EXPECT_TRUE(fs::exists(root_.path + "/a/d"));
}

TEST_F(FileStoreTest, OldLeftoversGo) {
  std::string old_file = root_.path + "/.tmp/old";
  std::ofstream(old_file) << "x";
  std::ofstream(root_.path + "/.tmp/young") << "x";
  timespec times[2] = {{time(nullptr) - 90000, 0}, {time(nullptr) - 90000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, old_file.c_str(), times, 0), 0);
  ASSERT_OK(store_->AbortUploads("a", std::chrono::system_clock::now() - std::chrono::hours(24)));
  EXPECT_FALSE(fs::exists(old_file));
  EXPECT_EQ(TempFiles(), 1u);
}

TEST_F(FileStoreTest, ModesLetAGroupShareTheRoot) {
  ASSERT_OK(store_->Put("a/b", "1"));
  struct stat st;
  ASSERT_EQ(stat((root_.path + "/a/b").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0640u);
  ASSERT_EQ(stat((root_.path + "/a").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 02770u);
}

TEST(FileStoreOpenTest, NeedsAnAbsoluteDirectory) {
  EXPECT_THAT(FileStore::Open("relative").status(), HasCode(Code::kInvalidArgument));
  EXPECT_THAT(FileStore::Open("/nonexistent/torpor").status(), HasCode(Code::kNotFound));
}

}  // namespace
}  // namespace torpor::objstore
