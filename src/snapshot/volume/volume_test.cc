#include "snapshot/volume/volume.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <functional>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "os/process/process.h"
#include "snapshot/testing/temp_dir.h"
#include "snapshot/volume/tar_format.h"

namespace torpor::snapshot {
namespace {

using tar::Entry;
using tar::Type;

MonotonicTime Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(60); }

struct stat StatOf(const std::string& path) {
  struct stat st = {};
  EXPECT_EQ(lstat(path.c_str(), &st), 0) << path;
  return st;
}

void SetTime(const std::string& path, int64_t seconds, int64_t nanos) {
  const timespec times[2] = {{.tv_sec = seconds, .tv_nsec = nanos},
                             {.tv_sec = seconds, .tv_nsec = nanos}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
}

// The archive of a directory, as a file to read from.
UniqueFd Pack(const TempDir& from, PackReport* report = nullptr) {
  UniqueFd fd(memfd_create("archive", MFD_CLOEXEC));
  auto packed = PackVolume(from.fd(), fd.get(), Soon());
  EXPECT_OK(packed.status());
  if (packed.ok() && report != nullptr) *report = *packed;
  EXPECT_EQ(lseek(fd.get(), 0, SEEK_SET), 0);
  return fd;
}

UniqueFd FileOf(const std::string& bytes) {
  UniqueFd fd(memfd_create("archive", MFD_CLOEXEC));
  EXPECT_OK(os::WriteAll(fd.get(), bytes));
  EXPECT_EQ(lseek(fd.get(), 0, SEEK_SET), 0);
  return fd;
}

std::string BytesOf(int fd) {
  EXPECT_EQ(lseek(fd, 0, SEEK_SET), 0);
  return os::ReadAll(fd, 1 << 30).value();
}

Entry MakeEntry(Type type, const std::string& path, const std::string& link = "") {
  Entry entry;
  entry.type = type;
  entry.path = path;
  entry.link = link;
  entry.mode = type == Type::kDirectory ? 0755 : 0644;
  entry.uid = geteuid();
  entry.gid = getegid();
  return entry;
}

// As it lies in the archive, also when FormatEntry would refuse the path.
std::string Raw(const Entry& entry, const std::string& path, const std::string& data = "") {
  Entry valid = entry;
  valid.path = std::string(path.size(), 'p');
  if (path.size() > 255) valid.path[path.size() / 2] = '/';
  valid.stored = static_cast<int64_t>(data.size());
  valid.size = valid.stored;
  std::string bytes = tar::FormatEntry(valid).value();
  size_t at = bytes.find("path=" + valid.path);
  EXPECT_NE(at, std::string::npos);
  bytes.replace(at + 5, path.size(), path);
  return bytes + data + std::string(tar::PaddingOf(valid.stored), '\0');
}

std::string Archive(const std::vector<std::string>& entries) {
  std::string bytes = tar::FormatEntry(MakeEntry(Type::kDirectory, ".")).value();
  for (const std::string& entry : entries) bytes += entry;
  return bytes + std::string(2 * tar::kBlock, '\0');
}

Status Unpack(const std::string& bytes, const TempDir& to) {
  return UnpackVolume(FileOf(bytes).get(), to.fd(), Soon());
}

TEST(Volume, ComesBackAsItWas) {
  TempDir from, to;
  WriteFileTo(from / "a.txt", "hello");
  WriteFileTo(from / "empty", "");
  WriteFileTo(from / "dir/deep/er/b", RandomBytes(700000, 1));
  std::filesystem::create_directories(from / "nothing-in-it");
  std::filesystem::create_symlink("/etc/passwd", from / "link");
  std::filesystem::create_symlink("../nowhere", from / "dir/dangling");
  std::filesystem::create_hard_link(from / "a.txt", from / "dir/same");
  std::string odd = "caf\xc3\xa9 \xff\n=x";
  WriteFileTo(from / odd, "odd");
  std::string name_max(255, 'n');
  WriteFileTo(from / (name_max + "/" + name_max), "long");
  chmod((from / "a.txt").c_str(), 0640);
  chmod((from / "nothing-in-it").c_str(), 01777);
  SetTime(from / "a.txt", 1700000000, 123456789);
  SetTime(from / "empty", -2, 250000000);
  SetTime(from / "link", 5, 1);
  SetTime(from / "dir/deep", 1600000000, 987654321);
  SetTime(from.path(), 1500000000, 42);
  bool xattrs = setxattr((from / "a.txt").c_str(), "user.k", "a\0b", 3, 0) == 0;
  if (xattrs) {
    ASSERT_EQ(setxattr((from / "dir").c_str(), "user.dir", "", 0, 0), 0);
  }
  SetTime(from / "dir", 1600000001, 1);

  PackReport report;
  UniqueFd archive = Pack(from, &report);
  EXPECT_EQ(report.entries, 14);
  EXPECT_EQ(report.skipped, 0);
  ASSERT_OK(UnpackVolume(archive.get(), to.fd(), Soon()));

  EXPECT_EQ(ReadFileFrom(to / "a.txt"), "hello");
  EXPECT_EQ(ReadFileFrom(to / "dir/deep/er/b"), RandomBytes(700000, 1));
  EXPECT_EQ(ReadFileFrom(to / odd), "odd");
  EXPECT_EQ(ReadFileFrom(to / (name_max + "/" + name_max)), "long");
  EXPECT_EQ(std::filesystem::read_symlink(to / "link"), "/etc/passwd");
  EXPECT_EQ(std::filesystem::read_symlink(to / "dir/dangling"), "../nowhere");
  EXPECT_EQ(StatOf(to / "a.txt").st_ino, StatOf(to / "dir/same").st_ino);
  EXPECT_EQ(StatOf(to / "a.txt").st_mode & 07777, 0640u);
  EXPECT_EQ(StatOf(to / "nothing-in-it").st_mode & 07777, 01777u);
  for (const char* name : {"a.txt", "empty", "link", "dir", "dir/deep", "."}) {
    EXPECT_EQ(StatOf(to / name).st_mtim.tv_sec, StatOf(from / name).st_mtim.tv_sec) << name;
    EXPECT_EQ(StatOf(to / name).st_mtim.tv_nsec, StatOf(from / name).st_mtim.tv_nsec) << name;
  }
  if (xattrs) {
    char value[8];
    ASSERT_EQ(getxattr((to / "a.txt").c_str(), "user.k", value, sizeof value), 3);
    EXPECT_EQ(std::string(value, 3), std::string("a\0b", 3));
    EXPECT_EQ(getxattr((to / "dir").c_str(), "user.dir", value, sizeof value), 0);
  }
  // What was unpacked is packed to the same bytes.
  EXPECT_EQ(BytesOf(Pack(to).get()), BytesOf(archive.get()));
}

TEST(Volume, HolesStayHoles) {
  TempDir from, to;
  constexpr int64_t kSize = int64_t{1} << 30;
  {
    UniqueFd file(open((from / "sparse").c_str(), O_RDWR | O_CREAT, 0600));
    ASSERT_EQ(pwrite(file.get(), "begin", 5, 0), 5);
    ASSERT_EQ(pwrite(file.get(), "middle", 6, 500 << 20), 6);
    ASSERT_EQ(ftruncate(file.get(), kSize), 0);
    UniqueFd all_hole(open((from / "hole").c_str(), O_RDWR | O_CREAT, 0600));
    ASSERT_EQ(ftruncate(all_hole.get(), 12345), 0);
  }
  UniqueFd archive = Pack(from);
  EXPECT_LT(BytesOf(archive.get()).size(), 100000u);
  ASSERT_EQ(lseek(archive.get(), 0, SEEK_SET), 0);
  ASSERT_OK(UnpackVolume(archive.get(), to.fd(), Soon()));
  EXPECT_EQ(StatOf(to / "sparse").st_size, kSize);
  EXPECT_LT(DiskBytes(to / "sparse"), 1 << 20);
  EXPECT_EQ(StatOf(to / "hole").st_size, 12345);
  UniqueFd file(open((to / "sparse").c_str(), O_RDONLY));
  char text[6];
  ASSERT_EQ(pread(file.get(), text, 6, 500 << 20), 6);
  EXPECT_EQ(std::string(text, 6), "middle");
  ASSERT_EQ(pread(file.get(), text, 6, 0), 6);
  EXPECT_EQ(std::string(text, 6), std::string("begin\0", 6));
}

TEST(Volume, OnlyWhatSurvivesAStopIsPacked) {
  TempDir from, to;
  ASSERT_EQ(mkfifo((from / "pipe").c_str(), 0600), 0);
  UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::string path = from / "socket";
  memcpy(address.sun_path, path.c_str(), path.size());
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  WriteFileTo(from / "file", "x");
  PackReport report;
  UniqueFd archive = Pack(from, &report);
  EXPECT_EQ(report.skipped, 2);
  ASSERT_OK(UnpackVolume(archive.get(), to.fd(), Soon()));
  EXPECT_EQ(to.Entries(), 1u);
}

TEST(Volume, OtherProgramsReadIt) {
  TempDir from, to, place;
  WriteFileTo(from / "dir/file", "content");
  {
    UniqueFd file(open((from / "sparse").c_str(), O_RDWR | O_CREAT, 0600));
    ASSERT_EQ(pwrite(file.get(), "data", 4, 1 << 20), 4);
    ASSERT_EQ(ftruncate(file.get(), 2 << 20), 0);
  }
  std::filesystem::create_symlink("dir/file", from / "link");
  WriteFileTo(place / "a.tar", BytesOf(Pack(from).get()));
  auto output =
      os::CommandOutput({"tar", "-C", to.path(), "-xf", place / "a.tar"}, {.deadline = Soon()});
  ASSERT_OK(output.status());
  EXPECT_EQ(ReadFileFrom(to / "dir/file"), "content");
  EXPECT_EQ(ReadFileFrom(to / "link"), "content");
  EXPECT_EQ(StatOf(to / "sparse").st_size, 2 << 20);
  EXPECT_EQ(ReadFileFrom(to / "sparse").substr(1 << 20, 4), "data");
}

TEST(Volume, SetUserIdIsCleared) {
  TempDir to;
  Entry program = MakeEntry(Type::kFile, "program");
  program.mode = 06755;
  Entry directory = MakeEntry(Type::kDirectory, "directory");
  directory.mode = 06755;
  ASSERT_OK(Unpack(
      Archive({tar::FormatEntry(program).value(), tar::FormatEntry(directory).value()}), to));
  EXPECT_EQ(StatOf(to / "program").st_mode & 07777, 0755u);
  EXPECT_EQ(StatOf(to / "directory").st_mode & 07777, 02755u);
}

TEST(Volume, OwnersComeBack) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  TempDir from, to;
  WriteFileTo(from / "file", "x");
  std::filesystem::create_symlink("file", from / "link");
  ASSERT_EQ(lchown((from / "file").c_str(), 1000, 4000000000u), 0);
  ASSERT_EQ(lchown((from / "link").c_str(), 7, 8), 0);
  ASSERT_OK(UnpackVolume(Pack(from).get(), to.fd(), Soon()));
  EXPECT_EQ(StatOf(to / "file").st_uid, 1000u);
  EXPECT_EQ(StatOf(to / "file").st_gid, 4000000000u);
  EXPECT_EQ(StatOf(to / "link").st_uid, 7u);
  EXPECT_EQ(StatOf(to / "link").st_gid, 8u);
}

// G6: nothing that an archive says leads out of its directory.
TEST(Volume, G6_NoNameLeadsOutside) {
  Entry file = MakeEntry(Type::kFile, "p");
  for (const std::string& path :
       {std::string(".."), std::string("../x"), std::string("a/../../x"), std::string("/etc/x"),
        std::string("./x"), std::string("a//b"), std::string("x/"), std::string("a\0b", 3),
        std::string(256, 'x'), std::string("a/.")}) {
    TempDir to;
    Status status = Unpack(Archive({Raw(file, path, "evil")}), to);
    EXPECT_EQ(ReasonOf(status), "SNAPSHOT_CORRUPT") << path << ": " << status;
    EXPECT_EQ(to.Entries(), 0u) << path;
  }
}

TEST(Volume, G6_LinksAreNotFollowed) {
  TempDir outside;
  WriteFileTo(outside / "victim", "untouched");
  auto entry = [](Type type, const std::string& path, const std::string& link = "") {
    return tar::FormatEntry(MakeEntry(type, path, link)).value();
  };
  const std::string link = entry(Type::kSymlink, "link", outside.path());
  const std::string victim = entry(Type::kSymlink, "link", outside / "victim");
  const std::map<std::string, std::string> cases = {
      {"a file behind a link", link + Raw(MakeEntry(Type::kFile, "p"), "link/new", "evil")},
      {"a directory in place of a link", link + entry(Type::kDirectory, "link") +
                                             Raw(MakeEntry(Type::kFile, "p"), "link/new", "evil")},
      {"a file in place of a link", victim + Raw(MakeEntry(Type::kFile, "p"), "link", "evil")},
      {"a hard link through a link", link + entry(Type::kHardLink, "stolen", "link/victim")},
      {"a hard link to nothing", entry(Type::kHardLink, "stolen", "missing")},
      {"a hard link to a directory",
       entry(Type::kDirectory, "d") + entry(Type::kHardLink, "d/again", "d")},
  };
  for (const auto& [name, entries] : cases) {
    TempDir to;
    Status status = Unpack(Archive({entries}), to);
    EXPECT_EQ(ReasonOf(status), "SNAPSHOT_CORRUPT") << name << ": " << status;
    EXPECT_EQ(outside.Entries(), 1u) << name;
    EXPECT_EQ(ReadFileFrom(outside / "victim"), "untouched") << name;
    EXPECT_FALSE(std::filesystem::exists(to / "stolen")) << name;
  }
  // A hard link to a link is the link itself.
  TempDir to;
  ASSERT_OK(Unpack(Archive({victim, entry(Type::kHardLink, "again", "link")}), to));
  EXPECT_TRUE(std::filesystem::is_symlink(to / "again"));
  EXPECT_EQ(StatOf(outside / "victim").st_nlink, 1u);
}

TEST(Volume, G6_HardLinkTargetsStayInside) {
  for (const std::string& link : {std::string("../x"), std::string("/etc/passwd"),
                                  std::string("a/../../x"), std::string(".")}) {
    TempDir to;
    Status status =
        Unpack(Archive({tar::FormatEntry(MakeEntry(Type::kHardLink, "h", link)).value()}), to);
    EXPECT_EQ(ReasonOf(status), "SNAPSHOT_CORRUPT") << link << ": " << status;
  }
}

TEST(Volume, G6_DevicesAreRefused) {
  for (char type : {'3', '4', '6', '7', 'g', 'L', 'S'}) {
    TempDir to;
    std::string bytes = tar::FormatEntry(MakeEntry(Type::kFile, "f")).value();
    std::string header = bytes.substr(bytes.size() - tar::kBlock);
    // The sum is over the bytes, so one that grows is told by one that grows.
    int difference = type - '0';
    header[156] = type;
    uint32_t sum = static_cast<uint32_t>(std::stoul(header.substr(148, 6), nullptr, 8));
    header.replace(148, 6, fmt::format("{:06o}", sum + static_cast<uint32_t>(difference)));
    Status status = Unpack(Archive({bytes.substr(0, bytes.size() - tar::kBlock) + header}), to);
    EXPECT_EQ(ReasonOf(status), "SNAPSHOT_CORRUPT") << type;
    EXPECT_NE(status.message().find("neither file nor directory"), std::string::npos) << status;
  }
}

TEST(Volume, DamageIsNoticed) {
  TempDir from;
  WriteFileTo(from / "dir/file", RandomBytes(3000, 3));
  const std::string good = BytesOf(Pack(from).get());
  for (size_t length = 0; length < good.size(); length += 511) {
    TempDir to;
    // An archive that lacks only its second block of zeros is complete.
    if (length > good.size() - tar::kBlock) continue;
    EXPECT_EQ(ReasonOf(Unpack(good.substr(0, length), to)), "SNAPSHOT_CORRUPT") << length;
  }
  for (size_t at : {size_t{0}, size_t{148}, size_t{600}, size_t{1100}}) {
    TempDir to;
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x41);
    EXPECT_EQ(ReasonOf(Unpack(bad, to)), "SNAPSHOT_CORRUPT") << at;
  }
}

TEST(Volume, SparseMapsAreChecked) {
  auto file = [](const std::string& map, int64_t size) {
    Entry entry = MakeEntry(Type::kFile, "s");
    entry.sparse = true;
    entry.size = size;
    std::string padded = map + std::string(tar::PaddingOf(static_cast<int64_t>(map.size())), '\0');
    entry.stored = static_cast<int64_t>(padded.size()) + 4;
    return tar::FormatEntry(entry).value() + padded + "data" + std::string(508, '\0');
  };
  TempDir good;
  ASSERT_OK(Unpack(Archive({file("1\n10\n4\n", 100)}), good));
  EXPECT_EQ(ReadFileFrom(good / "s").substr(10, 4), "data");
  EXPECT_EQ(StatOf(good / "s").st_size, 100);
  for (const char* map : {"1\n98\n4\n", "1\n0\n5\n", "2\n10\n2\n11\n2\n", "1\n-1\n4\n", "1\n10\n",
                          "999999999999\n", "x\n", "", "2\n9223372036854775807\n4\n0\n0\n"}) {
    TempDir to;
    EXPECT_EQ(ReasonOf(Unpack(Archive({file(map, 100)}), to)), "SNAPSHOT_CORRUPT") << map;
  }
}

TEST(Volume, EntriesComeInTheirDirectory) {
  auto entry = [](Type type, const std::string& path) {
    return tar::FormatEntry(MakeEntry(type, path)).value();
  };
  const std::string late =
      entry(Type::kDirectory, "a") + entry(Type::kDirectory, "b") + entry(Type::kFile, "a/late");
  for (const std::string& entries : {entry(Type::kFile, "a/b"), late, entry(Type::kDirectory, "."),
                                     entry(Type::kFile, "f") + entry(Type::kFile, "f")}) {
    TempDir to;
    EXPECT_EQ(ReasonOf(Unpack(Archive({entries}), to)), "SNAPSHOT_CORRUPT");
  }
  TempDir to;
  EXPECT_EQ(ReasonOf(Unpack(std::string(1024, '\0'), to)), "SNAPSHOT_CORRUPT");
}

TEST(Volume, StopsAtItsDeadline) {
  TempDir from, to;
  UniqueFd out(memfd_create("archive", MFD_CLOEXEC));
  EXPECT_EQ(PackVolume(from.fd(), out.get(), MonotonicTime{}).status().code(),
            Code::kDeadlineExceeded);
  EXPECT_EQ(UnpackVolume(Pack(from).get(), to.fd(), MonotonicTime{}).code(),
            Code::kDeadlineExceeded);
}

TEST(Volume, FullDiskIsToldAsSuch) {
  TempDir from;
  WriteFileTo(from / "file", RandomBytes(300000, 4));
  UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  if (!full.valid()) GTEST_SKIP() << "no /dev/full";
  EXPECT_EQ(ReasonOf(PackVolume(from.fd(), full.get(), Soon()).status()), "DISK_FULL");
}

}  // namespace
}  // namespace torpor::snapshot
