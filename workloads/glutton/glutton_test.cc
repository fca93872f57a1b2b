// Starts the real glutton binary on a loopback port and checks its protocol.

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "glutton/glutton.pb.h"
#include "workloads/base/digest.h"
#include "workloads/base/fast_random.h"
#include "workloads/base/io.h"
#include "workloads/glutton/quantity.h"
#include "workloads/testing/child.h"
#include "workloads/testing/client.h"

namespace torpor::workloads {
namespace {

namespace pb = ::glutton;
using testing::Answer;
using testing::Child;
using testing::Client;

class GluttonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    child_ = std::make_unique<Child>(std::vector<std::string>{
        GLUTTON_BINARY, "--grpc-listen-addr=127.0.0.1:0", "--metrics-listen-addr=127.0.0.1:0",
        "--data-dir=" + dir_.path(), "--mode=http"});
    port_ = child_->WaitForPort("service listening on ");
    metrics_port_ = child_->WaitForPort("metrics listening on ");
    ASSERT_NE(port_, 0) << child_->log();
    client_ = std::make_unique<Client>(port_);
  }

  // Posts a request and returns the HTTP status; parses the response of a success.
  template <typename In, typename Out>
  int Call(const std::string& path, const In& in, Out* out) {
    answer_ = client_->Do("POST", path, in.SerializeAsString(),
                          "Content-Type: application/x-protobuf\r\n");
    if (answer_.status == 200) {
      EXPECT_EQ(answer_.headers["content-type"], "application/x-protobuf");
      EXPECT_TRUE(out->ParseFromString(answer_.body));
    }
    EXPECT_TRUE(answer_.headers.contains("x-server-elapsed-us"));
    return answer_.status;
  }

  int WriteRam(const std::string& key, const std::string& size,
               pb::WriteMode mode = pb::WRITE_MODE_TRUNCATE, int content = 0) {
    pb::WriteRAMRequest in;
    pb::WriteRAMResponse out;
    in.set_key(key);
    in.set_size(size);
    in.set_write_mode(mode);
    in.set_content(static_cast<pb::Content>(content));
    return Call("/writeram", in, &out);
  }

  int ReadRam(const std::string& key, const std::string& size, pb::ReadRAMResponse* out) {
    pb::ReadRAMRequest in;
    in.set_key(key);
    in.set_size(size);
    return Call("/readram", in, out);
  }

  // The first byte of each page, found as the difference of the checksums of prefixes.
  std::vector<uint32_t> PageBytes(const std::string& key, int pages) {
    std::vector<uint32_t> bytes;
    uint32_t before = 0;
    for (int i = 1; i <= pages; ++i) {
      pb::ReadRAMResponse out;
      EXPECT_EQ(ReadRam(key, std::to_string(i * 4096), &out), 200);
      bytes.push_back(out.checksum() ^ before);
      before = out.checksum();
    }
    return bytes;
  }

  int WriteDisk(const std::string& key, int size, pb::WriteMode mode, int files,
                pb::WriteDiskResponse* out) {
    pb::WriteDiskRequest in;
    in.set_key(key);
    in.set_size(size);
    in.set_write_mode(mode);
    in.set_file_count(files);
    return Call("/writedisk", in, out);
  }

  int ReadDisk(const std::string& key, pb::ReadMode mode, pb::ReadDiskResponse* out) {
    pb::ReadDiskRequest in;
    in.set_key(key);
    in.set_read_mode(mode);
    return Call("/readdisk", in, out);
  }

  static std::string Digest(const std::string& data) {
    const Sha256::Digest digest = Sha256::Of(data);
    return std::string(digest.begin(), digest.end());
  }

  testing::TempDir dir_;
  std::unique_ptr<Child> child_;
  std::unique_ptr<Client> client_;
  Answer answer_;
  uint16_t port_ = 0;
  uint16_t metrics_port_ = 0;
};

TEST_F(GluttonTest, ReadyAndPing) {
  EXPECT_EQ(client_->Get("/readyz").status, 200);
  pb::PingRequest in;
  pb::PingResponse out;
  in.set_message("hello");
  EXPECT_EQ(Call("/ping", in, &out), 200);
  EXPECT_EQ(out.message(), "hello");
}

TEST_F(GluttonTest, RefusesWrongMethodsPathsAndBodies) {
  for (const char* path : {"/ping", "/writedisk", "/readdisk", "/writeram", "/readram", "/burncpu",
                           "/ingest", "/usecpu"}) {
    EXPECT_EQ(client_->Get(path).status, 405) << path;
    EXPECT_EQ(client_->Do("POST", path, "\xff\xff").status, 400) << path;
  }
  EXPECT_EQ(client_->Do("POST", "/openfd", "").status, 404);
}

TEST_F(GluttonTest, ReadRamChecksumIsStableAndCoversPages) {
  EXPECT_EQ(WriteRam("a", "1Mi"), 200);
  pb::ReadRAMResponse first, second, part, beyond;
  EXPECT_EQ(ReadRam("a", "", &first), 200);
  EXPECT_EQ(ReadRam("a", "", &second), 200);
  EXPECT_EQ(first.size(), 1 << 20);
  EXPECT_EQ(first.checksum(), second.checksum());
  EXPECT_LT(first.checksum(), 256u);
  EXPECT_EQ(ReadRam("a", "64Ki", &part), 200);
  EXPECT_EQ(part.size(), 64 << 10);
  EXPECT_EQ(ReadRam("a", "1Gi", &beyond), 200);
  EXPECT_EQ(beyond.size(), 1 << 20);
  uint32_t sum = 0;
  for (uint32_t byte : PageBytes("a", 256)) sum ^= byte;
  EXPECT_EQ(sum, first.checksum());
}

TEST_F(GluttonTest, RotateAdvancesItsCursorAndWraps) {
  constexpr int kPages = 40;
  const std::string total = std::to_string(kPages * 4096);
  EXPECT_EQ(WriteRam("a", total), 200);
  std::vector<uint32_t> before = PageBytes("a", kPages);
  // 16 pages at a time: 0-15, 16-31, then 32-39 and 0-7.
  const std::vector<std::pair<int, int>> kept = {{16, 40}, {0, 16}, {8, 32}};
  const std::vector<std::string> cursors = {"65536", "131072", "32768"};
  for (size_t round = 0; round < kept.size(); ++round) {
    EXPECT_EQ(WriteRam("a", "64Ki", pb::WRITE_MODE_OVERWRITE_ROTATE), 200);
    EXPECT_EQ(answer_.headers["x-glutton-cursor"], cursors[round]);
    const std::vector<uint32_t> after = PageBytes("a", kPages);
    int changed = 0;
    for (int page = 0; page < kPages; ++page) {
      const bool keep = page >= kept[round].first && page < kept[round].second;
      if (round == 1 && page >= 32) {
        EXPECT_EQ(after[page], before[page]);
      } else if (keep) {
        EXPECT_EQ(after[page], before[page]) << "round " << round << " page " << page;
      } else if (after[page] != before[page]) {
        ++changed;
      }
    }
    // One byte in 256 stays the same by chance.
    EXPECT_GE(changed, 12) << round;
    before = after;
  }
  // More than the array is clamped to it and comes back to the same place.
  EXPECT_EQ(WriteRam("a", "1Gi", pb::WRITE_MODE_OVERWRITE_ROTATE), 200);
  EXPECT_EQ(answer_.headers["x-glutton-cursor"], "32768");
  EXPECT_EQ(WriteRam("a", total), 200);
  EXPECT_EQ(answer_.headers["x-glutton-cursor"], "0");
}

TEST_F(GluttonTest, OverwriteGrowsAndKeepsTheRest) {
  EXPECT_EQ(WriteRam("a", "64Ki"), 200);
  const std::vector<uint32_t> before = PageBytes("a", 16);
  EXPECT_EQ(WriteRam("a", "8Ki", pb::WRITE_MODE_OVERWRITE), 200);
  const std::vector<uint32_t> after = PageBytes("a", 16);
  EXPECT_TRUE(std::equal(after.begin() + 2, after.end(), before.begin() + 2));
  EXPECT_EQ(WriteRam("a", "128Ki", pb::WRITE_MODE_OVERWRITE), 200);
  pb::ReadRAMResponse out;
  EXPECT_EQ(ReadRam("a", "", &out), 200);
  EXPECT_EQ(out.size(), 128 << 10);
  EXPECT_EQ(WriteRam("new", "8Ki", pb::WRITE_MODE_OVERWRITE), 200);
  EXPECT_EQ(WriteRam("a", "4Ki"), 200);
  EXPECT_EQ(ReadRam("a", "", &out), 200);
  EXPECT_EQ(out.size(), 4096);
}

TEST_F(GluttonTest, RamErrors) {
  pb::ReadRAMResponse out;
  EXPECT_EQ(ReadRam("none", "", &out), 404);
  EXPECT_EQ(WriteRam("none", "4Ki", pb::WRITE_MODE_OVERWRITE_ROTATE), 404);
  EXPECT_EQ(WriteRam("", "4Ki"), 400);
  for (const char* size : {"", "-1", "4Xi", "4 Ki", "Ki", "1..5", "99999999999Ei", "1e99"}) {
    EXPECT_EQ(WriteRam("a", size), 400) << size;
  }
  EXPECT_EQ(WriteRam("a", "4Ki", static_cast<pb::WriteMode>(3)), 400);
  EXPECT_EQ(WriteRam("a", "4Ki", pb::WRITE_MODE_TRUNCATE, 7), 400);
  EXPECT_EQ(WriteRam("a", "4Ki"), 200);
  EXPECT_EQ(ReadRam("a", "x", &out), 400);
  // What does not fit is an error, and what was there stays.
  EXPECT_EQ(WriteRam("a", "4Pi"), 500);
  EXPECT_NE(answer_.body.find("exceed the memory"), std::string::npos) << answer_.body;
  EXPECT_EQ(ReadRam("a", "", &out), 200);
  EXPECT_EQ(out.size(), 4096);
}

TEST_F(GluttonTest, AnswersPingWhileRamIsFilled) {
  std::thread filler([this] {
    Client client(port_);
    pb::WriteRAMRequest in;
    in.set_key("big");
    in.set_size("512Mi");
    EXPECT_EQ(client.Do("POST", "/writeram", in.SerializeAsString()).status, 200);
  });
  int64_t slowest = 0;
  for (int i = 0; i < 20; ++i) {
    const int64_t start = MonotonicNs();
    EXPECT_EQ(client_->Get("/readyz").status, 200);
    EXPECT_EQ(client_->Do("POST", "/ping", "").status, 200);
    slowest = std::max(slowest, MonotonicNs() - start);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  filler.join();
  EXPECT_LT(slowest, 200'000'000);
}

TEST_F(GluttonTest, DiskRoundTrip) {
  for (int size : {0, 1024, (1 << 20) + 1}) {
    pb::WriteDiskResponse written;
    pb::ReadDiskResponse read, digest;
    EXPECT_EQ(WriteDisk("f-1_A", size, pb::WRITE_MODE_TRUNCATE, 0, &written), 200);
    EXPECT_EQ(written.size(), size);
    EXPECT_EQ(ReadDisk("f-1_A", pb::READ_MODE_DATA, &read), 200);
    EXPECT_EQ(read.data().size(), static_cast<size_t>(size));
    EXPECT_EQ(read.sha256(), written.sha256());
    EXPECT_EQ(read.sha256(), Digest(read.data()));
    EXPECT_EQ(ReadDisk("f-1_A", pb::READ_MODE_DIGEST_ONLY, &digest), 200);
    EXPECT_EQ(digest.size(), size);
    EXPECT_EQ(digest.sha256(), written.sha256());
    EXPECT_TRUE(digest.data().empty());
  }
}

TEST_F(GluttonTest, DiskOverwriteKeepsTheTail) {
  pb::WriteDiskResponse written;
  pb::ReadDiskResponse before, after;
  EXPECT_EQ(WriteDisk("f", 4096, pb::WRITE_MODE_TRUNCATE, 1, &written), 200);
  EXPECT_EQ(ReadDisk("f", pb::READ_MODE_DATA, &before), 200);
  EXPECT_EQ(WriteDisk("f", 1024, pb::WRITE_MODE_OVERWRITE, 1, &written), 200);
  EXPECT_EQ(ReadDisk("f", pb::READ_MODE_DATA, &after), 200);
  EXPECT_EQ(written.size(), 4096);
  EXPECT_EQ(written.sha256(), after.sha256());
  EXPECT_EQ(after.data().substr(1024), before.data().substr(1024));
  EXPECT_NE(after.data().substr(0, 1024), before.data().substr(0, 1024));
}

TEST_F(GluttonTest, DiskSpreadsOverManyFiles) {
  pb::WriteDiskResponse written;
  pb::ReadDiskResponse read;
  const std::filesystem::path path = dir_.path() + "/d";
  const auto files = [&path] {
    return std::distance(std::filesystem::directory_iterator(path), {});
  };
  EXPECT_EQ(WriteDisk("d", 1000, pb::WRITE_MODE_TRUNCATE, 7, &written), 200);
  EXPECT_EQ(written.size(), 1000);
  EXPECT_EQ(files(), 7);
  EXPECT_TRUE(std::filesystem::exists(path / "00000006"));
  EXPECT_EQ(ReadDisk("d", pb::READ_MODE_DATA, &read), 200);
  EXPECT_EQ(read.sha256(), written.sha256());
  EXPECT_EQ(read.sha256(), Digest(read.data()));
  EXPECT_EQ(WriteDisk("d", 10, pb::WRITE_MODE_OVERWRITE, 1, &written), 400);
  EXPECT_EQ(WriteDisk("d", 100, pb::WRITE_MODE_TRUNCATE, 3, &written), 200);
  EXPECT_EQ(files(), 3);
  EXPECT_EQ(WriteDisk("d", 100, pb::WRITE_MODE_TRUNCATE, 1, &written), 200);
  EXPECT_TRUE(std::filesystem::is_regular_file(path));
}

TEST_F(GluttonTest, DiskErrors) {
  pb::WriteDiskResponse written;
  pb::ReadDiskResponse read;
  EXPECT_EQ(ReadDisk("none", pb::READ_MODE_DATA, &read), 404);
  for (const char* key : {"", "../escape", "a/b", ".", "a b", "a\n"}) {
    EXPECT_EQ(WriteDisk(key, 1, pb::WRITE_MODE_TRUNCATE, 1, &written), 400) << key;
    EXPECT_EQ(ReadDisk(key, pb::READ_MODE_DATA, &read), 400) << key;
  }
  EXPECT_EQ(WriteDisk("f", -1, pb::WRITE_MODE_TRUNCATE, 1, &written), 400);
  EXPECT_EQ(WriteDisk("f", 1, pb::WRITE_MODE_OVERWRITE_ROTATE, 1, &written), 400);
  EXPECT_EQ(WriteDisk("f", 1, static_cast<pb::WriteMode>(9), 1, &written), 400);
  EXPECT_EQ(ReadDisk("f", static_cast<pb::ReadMode>(9), &read), 400);
}

TEST_F(GluttonTest, IngestWritesAndAppends) {
  pb::IngestRequest in;
  pb::IngestResponse out;
  in.set_key("upload");
  in.set_payload(std::string(3 << 20, 'p'));
  EXPECT_EQ(Call("/ingest", in, &out), 200);
  EXPECT_EQ(out.size(), 3 << 20);
  EXPECT_EQ(out.sha256(), Digest(in.payload()));
  in.set_payload("tail");
  in.set_append(true);
  EXPECT_EQ(Call("/ingest", in, &out), 200);
  EXPECT_EQ(out.size(), (3 << 20) + 4);
  EXPECT_EQ(out.sha256(), Digest("tail"));
  in.set_append(false);
  EXPECT_EQ(Call("/ingest", in, &out), 200);
  EXPECT_EQ(out.size(), 4);
  in.set_key("../x");
  EXPECT_EQ(Call("/ingest", in, &out), 400);
}

TEST_F(GluttonTest, BurnsCpuForTheTimeAsked) {
  pb::BurnCPURequest in;
  pb::BurnCPUResponse out;
  in.set_duration_ms(50);
  in.set_parallelism(2);
  const int64_t start = MonotonicNs();
  EXPECT_EQ(Call("/burncpu", in, &out), 200);
  EXPECT_GE(MonotonicNs() - start, 50'000'000);
  EXPECT_GT(out.iterations(), 1000);
  EXPECT_GE(std::stol(answer_.headers["x-server-elapsed-us"]), 50'000);
  in.set_duration_ms(-1);
  EXPECT_EQ(Call("/burncpu", in, &out), 400);
}

TEST_F(GluttonTest, UseCpuReplacesTheLoad) {
  pb::UseCPURequest in;
  pb::UseCPUResponse out;
  in.set_num_cores(1000);
  in.set_duty_cycle(0.01);
  EXPECT_EQ(Call("/usecpu", in, &out), 200);
  EXPECT_GE(out.num_cores(), 1);
  EXPECT_LT(out.num_cores(), 1000);
  in.set_num_cores(5);
  in.set_cap_at_gomaxprocs(false);
  EXPECT_EQ(Call("/usecpu", in, &out), 200);
  EXPECT_EQ(out.num_cores(), 5);
  in.set_duty_cycle(1.5);
  EXPECT_EQ(Call("/usecpu", in, &out), 400);
  in.set_duty_cycle(0);
  in.set_num_cores(0);
  EXPECT_EQ(Call("/usecpu", in, &out), 200);
  EXPECT_EQ(out.num_cores(), 0);
}

TEST_F(GluttonTest, MetricsCountRequests) {
  EXPECT_EQ(WriteRam("a", "1Mi"), 200);
  EXPECT_EQ(WriteRam("a", "x"), 400);
  const std::string text = Client(metrics_port_).Get("/metrics").body;
  EXPECT_NE(text.find("glutton_ram_bytes 1048576\n"), std::string::npos) << text;
  EXPECT_NE(text.find("glutton_requests_total{path=\"/writeram\"} 2\n"), std::string::npos);
  EXPECT_NE(text.find("glutton_failures_total{path=\"/writeram\"} 1\n"), std::string::npos);
}

TEST_F(GluttonTest, StopsOnSigterm) {
  child_->Signal(SIGTERM);
  EXPECT_EQ(child_->Wait(), 0);
}

TEST(GluttonFlagsTest, SaysWhatIsWrong) {
  Child grpc({GLUTTON_BINARY, "--mode", "grpc", "--data-dir=/tmp"});
  EXPECT_EQ(grpc.Wait(), 2);
  EXPECT_NE(grpc.log().find("this build serves http only"), std::string::npos) << grpc.log();
  Child no_dir({GLUTTON_BINARY, "--mode=http"});
  EXPECT_EQ(no_dir.Wait(), 2);
  EXPECT_NE(no_dir.log().find("--data-dir is required"), std::string::npos);
  Child version({GLUTTON_BINARY, "--version"});
  EXPECT_EQ(version.Wait(), 0);
  EXPECT_TRUE(version.log().starts_with("glutton ")) << version.log();
}

TEST(QuantityTest, ReadsKubernetesQuantities) {
  const std::pair<const char*, int64_t> cases[] = {
      {"0", 0},           {"512", 512},    {"+5", 5},     {"64Mi", 64 << 20},
      {"2Gi", 2LL << 30}, {"1.5Ki", 1536}, {".5Ki", 512}, {"2k", 2000},
      {"3M", 3'000'000},  {"1e3", 1000},   {"1E3", 1000}, {"1E", 1'000'000'000'000'000'000},
      {"1500m", 2},       {"1n", 1},       {"5e-1", 1},   {"7Ei", 7LL << 60},
      {"1.0", 1}};
  for (const auto& [text, value] : cases) EXPECT_EQ(glutton::ParseQuantity(text), value) << text;
  for (const char* text : {"", "x", "1x", "1ki", "8Ei", "1e", "1e+", "1e19", "--1", "1Mi ", "0x10",
                           "1234567890123456789"}) {
    EXPECT_EQ(glutton::ParseQuantity(text), std::nullopt) << text;
  }
}

TEST(FastRandomTest, FillsFastAndEachKindAsNamed) {
  std::vector<unsigned char> data(64 << 20);
  FastRandom random;
  for (FillKind kind : {FillKind::kRandom, FillKind::kHeap, FillKind::kZero40}) {
    random.Fill(kind, data.data(), data.size());
    const int64_t start = MonotonicNs();
    random.Fill(kind, data.data(), data.size());
    const double rate = static_cast<double>(data.size()) / (MonotonicNs() - start);
    RecordProperty("gb_per_s_" + std::to_string(static_cast<int>(kind)), std::to_string(rate));
    size_t zero_pages = 0;
    for (size_t i = 0; i < data.size(); i += 4096) {
      zero_pages += std::all_of(&data[i], &data[i] + 4096, [](unsigned char b) { return b == 0; });
    }
    const double share = static_cast<double>(zero_pages) / (data.size() / 4096);
    EXPECT_NEAR(share, kind == FillKind::kZero40 ? 0.4 : 0.0, 0.05);
    std::printf("fill kind %d: %.2f GB/s\n", static_cast<int>(kind), rate);
  }
}

}  // namespace
}  // namespace torpor::workloads
