// How fast a sparse image becomes a .tsz object and back, against the zstd program on the same
// bytes in the same run: 512 MiB of heap-like content in a file of 2 GiB.
//
//   tsz_bench [DIRECTORY] [REPEATS]     (default: /dev/shm, 5; needs 2 GiB there)
//
// The two sides run in turn. The first round warms up and is not counted. Medians, and the ratio
// zstd / Torpor: above 1 we are faster.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/log.h"
#include "heap_content.h"
#include "objstore/memory/memory_store.h"
#include "snapshot/load/file_loader.h"
#include "snapshot/save/encode.h"

namespace torpor::snapshot {
namespace {

constexpr int64_t kLogicalBytes = int64_t{2} << 30;
constexpr int64_t kPopulatedBytes = int64_t{512} << 20;
constexpr int64_t kRunBytes = 1 << 20;  // of data, each followed by a hole

// Takes parts and forgets them.
class NullStore : public objstore::MemoryStore {
 public:
  StatusOr<std::unique_ptr<objstore::MultipartUpload>> Begin(const std::string&, int64_t) override {
    class Upload : public objstore::MultipartUpload {
     public:
      Status PutPart(int, std::string_view) override { return OkStatus(); }
      Status Complete() override { return OkStatus(); }
      void Abort() override {}
    };
    return std::unique_ptr<objstore::MultipartUpload>(std::make_unique<Upload>());
  }
};

double Seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void Shell(const std::string& command) { CHECK(system(command.c_str()) == 0); }

struct Comparison {
  const char* name;
  std::function<void()> ours;
  std::function<void()> theirs;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  explicit Bench(const std::string& dir) : dir_(dir) {
    ResourceOptions options;
    options.threads_max = 2;
    resources_ = std::move(Resources::Create(options, Clock::Real())).value();
    image_ = dir_ + "/tsz_bench.image";
    plain_ = dir_ + "/tsz_bench.plain";
    object_ = dir_ + "/tsz_bench.tsz";
  }
  ~Bench() {
    for (const std::string& path : {image_, plain_, object_, dir_ + "/tsz_bench.out"}) {
      unlink(path.c_str());
    }
  }

  void MakeImage() {
    UniqueFd image(open(image_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600));
    CHECK(ftruncate(image.get(), kLogicalBytes) == 0);
    std::ofstream plain(plain_, std::ios::binary);
    HeapContent content;
    std::string run(kRunBytes, '\0');
    const int64_t step = kLogicalBytes / (kPopulatedBytes / kRunBytes);
    for (int64_t at = 0; at < kLogicalBytes; at += step) {
      content.Fill(&run);
      CHECK(pwrite(image.get(), run.data(), run.size(), at) == kRunBytes);
      plain << run;
    }
  }

  int64_t Encode(objstore::ObjectStore* store) {
    Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::hours(1));
    UniqueFd fd(open(image_.c_str(), O_RDONLY));
    EncodeArgs args;
    args.fd = fd.get();
    args.logical_bytes = kLogicalBytes;
    args.bound = BoundOf(ScanFile(fd.get(), kLogicalBytes, transfer).value());
    args.plan = PlanUpload(args.bound, {}, resources_->memory()->total()).value();
    args.resources = resources_.get();
    args.transfer = &transfer;
    auto hold = resources_->memory()->Admit(Urgency::kUpload, args.plan.minimum_bytes, transfer);
    args.hold = &*hold;
    ObjectWriter writer(store, "k", args.plan,
                        {resources_->buffers(), resources_->senders(), &*hold});
    auto encoded = EncodeFile(args, &writer);
    CHECK(encoded.ok());
    CHECK(encoded->populated_bytes == kPopulatedBytes);
    CHECK(writer.Finish().ok());
    sha256_ = encoded->index_sha256;
    return writer.bytes();
  }

  void Decode(objstore::ObjectStore* store, int64_t bytes) {
    Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::hours(1));
    const os::DirFd dir = std::move(os::DirFd::OpenPath(dir_)).value();
    StagedFiles staged(&dir);  // removed at its end
    FileLoadArgs args;
    args.file.file.set_name("tsz_bench.back");
    args.file.file.set_logical_bytes(kLogicalBytes);
    args.file.file.set_populated_bytes(kPopulatedBytes);
    args.file.object = ManifestObject{"k", bytes, sha256_};
    args.read = ReaderOf(store, "k", bytes, {});
    args.staged = &staged;
    args.resources = resources_.get();
    args.transfer = &transfer;
    CHECK(LoadFile(args).ok());
  }

  void Run(int repeats) {
    MakeImage();
    objstore::MemoryStore memory;
    NullStore null;
    const int64_t bytes = Encode(&memory);
    {
      std::ofstream out(object_, std::ios::binary);
      out << objstore::ReadAll(memory, "k", int64_t{1} << 40).value();
    }
    printf("%lld MiB of %lld MiB, object %.1f MiB, 2 threads\n",
           static_cast<long long>(kPopulatedBytes >> 20),
           static_cast<long long>(kLogicalBytes >> 20), static_cast<double>(bytes) / (1 << 20));
    const std::string out = dir_ + "/tsz_bench.out";
    Compare({"encode, zstd -2 -T2", [&] { Encode(&null); },
             [&] { Shell("zstd -q -2 -T2 -c " + plain_ + " > /dev/null"); }},
            repeats);
    Compare({"decode to a file, zstd -dc", [&] { Decode(&memory, bytes); },
             [&] { Shell("zstd -q -dc " + object_ + " > " + out); }},
            repeats);
  }

 private:
  static void Compare(const Comparison& c, int repeats) {
    std::vector<double> ours;
    std::vector<double> theirs;
    for (int i = 0; i <= repeats; ++i) {
      const double a = Seconds(c.ours);
      const double b = Seconds(c.theirs);
      if (i == 0) continue;
      ours.push_back(a);
      theirs.push_back(b);
    }
    const auto [low, high] = std::minmax_element(ours.begin(), ours.end());
    printf("%-28s %.3f s (%.3f..%.3f)   zstd %.3f s   ratio %.2f   n=%d\n", c.name, Median(ours),
           *low, *high, Median(theirs), Median(theirs) / Median(ours), repeats);
  }

  const std::string dir_;
  std::string image_, plain_, object_, sha256_;
  std::unique_ptr<Resources> resources_;
};

}  // namespace
}  // namespace torpor::snapshot

int main(int argc, char** argv) {
  torpor::snapshot::Bench bench(argc > 1 ? argv[1] : "/dev/shm");
  bench.Run(argc > 2 ? atoi(argv[2]) : 5);
}
